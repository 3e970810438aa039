"""What differs between hand-made plans, as values, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import replace as replace_row

from ggmltool.ask.diff import Diff
from ggmltool.ask.diff.plans import PARTS, PlanDiff, plan_diff
from ggmltool.ask.diff.side import DiffSide, Held, HeldBuffer, Titles
from ggmltool.ask.words import words
from ggmltool.ggml.events import Assigned, SplitStarted
from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.ggml.why import Facts, Why
from ggmltool.show.document import json_text
from ggmltool.show.table import Style
from tests.ask.plans import EVENTS, GOLDEN, KIB, REFUSED, STYLES, TENSORS, TWO_DEVICES
from tests.golden import check_golden
from tests.lifetimes import memory_plan

TITLES = Titles("before.yaml", "after.yaml")
HELD = (Held("w1", "CUDA0", "weights", 10 * KIB), Held("w2", "CPU", "weights", 10 * KIB))


def on_weight(tensor: str, weight: str, buft: str) -> dict[str, Assigned]:
    """That a tensor's weight settled its backend."""
    return {tensor: Assigned(tensor, buft, 1, "1.wgt0", Why.WEIGHT, weight, Facts(buft=buft))}


FIRST = SplitStarted(0, "CUDA0", 0, "a", Why.FIRST_NODE)
A = DiffSide(
    TWO_DEVICES,
    TENSORS,
    memory_plan(EVENTS),
    on_weight("b", "w2", "CPU"),
    (FIRST, SplitStarted(1, "CPU", 2, "b", Why.OTHER_BACKEND), SplitStarted(2, "CUDA0", 3, "d", Why.OTHER_BACKEND)),
    HELD,
    (HeldBuffer("CUDA0", "weights", 10 * KIB), HeldBuffer("CPU", "weights", 10 * KIB)),
)


def changed(plan: Plan, **nodes: dict[str, object]) -> Plan:
    """The plan with some fields of some nodes replaced."""
    rows: tuple[NodePlan, ...] = tuple(msgspec.structs.replace(n, **nodes.get(n.id, {})) for n in plan.nodes)
    return replace(plan, nodes=rows)


ON_ONE_DEVICE = replace(
    A,
    plan=replace(
        changed(
            TWO_DEVICES, a={"cause": "usr"}, b={"backend": "CUDA0", "split": 0}, d={"split": 0, "alloc_size": 20 * KIB}
        ),
        splits=(SplitPlan(0, "CUDA0", 0, 4, ("inp",)),),
        copies=TWO_DEVICES.copies[:1],
        buffer_sizes=(("CUDA0", 60 * KIB), ("CPU", 0)),
    ),
    settled=on_weight("b", "w2", "CUDA0"),
    held=(HELD[0], replace_row(HELD[1], buft="CUDA0")),
    held_buffers=(HeldBuffer("CUDA0", "weights", 20 * KIB),),
)
WITHOUT_B = replace(
    A,
    plan=replace(
        TWO_DEVICES,
        nodes=tuple(
            msgspec.structs.replace(TWO_DEVICES.nodes[i], index=place, split=0) for place, i in enumerate((1, 0, 3))
        ),
        splits=(SplitPlan(0, "CUDA0", 0, 3, ("inp",)),),
    ),
    starts=(FIRST,),
)

PAIRS: dict[str, tuple[DiffSide, DiffSide]] = {
    "moved": (A, ON_ONE_DEVICE),
    "shorter": (A, WITHOUT_B),
    "longer": (WITHOUT_B, A),
    "refused": (A, DiffSide(REFUSED, {})),
    "same": (A, A),
}


def diff_of(name: str) -> PlanDiff:
    return plan_diff(*PAIRS[name])


@pytest.mark.parametrize("width", STYLES)
@pytest.mark.parametrize("name", PAIRS)
def test_a_difference_looks_as_accepted(name: str, width: str) -> None:
    text = Diff().between(*PAIRS[name], TITLES).shown("text", STYLES[width])
    if width == "80" and name != "refused":
        assert max(map(len, text.splitlines())) <= 80
    check_golden(GOLDEN / f"diff_{name}_{width}.txt", text)


@pytest.mark.parametrize("name", PAIRS)
def test_its_json_looks_as_accepted(name: str) -> None:
    text = json_text(Diff().between(*PAIRS[name], TITLES).document())
    document = json.loads(text)
    assert document["same"] == (not document["differing"]) == (name == "same")
    check_golden(GOLDEN / f"diff_{name}_json.txt", text)


def test_a_node_on_another_backend_is_the_first_divergence_with_both_reasons() -> None:
    (first,) = diff_of("moved").divergences
    assert (first.kind, first.at) == ("backend", 2)
    assert first.a is not None
    assert first.b is not None
    assert (first.a.id, first.a.backend, first.a.reason) == ("b", "CPU", words(A.settled["b"]))
    assert first.a.start == words(A.starts[1])
    assert (first.b.id, first.b.backend, first.b.reason) == ("b", "CUDA0", words(ON_ONE_DEVICE.settled["b"]))
    assert first.b.start is None


def test_what_moved_is_copied_grew_and_came_is_told() -> None:
    found = diff_of("moved")
    assert [(p.a.id, p.b.backend) for p in found.moved] == [("b", "CUDA0")]
    assert [(p.a.id, p.a.cause, p.b.cause) for p in found.other_cause] == [("a", "1.wgt0", "usr")]
    assert [(p.a and p.a.id, p.b and p.b.id) for p in found.splits] == [(0, 0), (1, None), (2, None)]
    assert [(p.id, p.dst, p.a and p.a.nbytes, p.b) for p in found.copied] == [
        ("a+mask", "CPU", 10 * KIB, None),
        ("b", "CUDA0", 10 * KIB, None),
    ]
    assert [(c.src, c.dst, *((x.tensors, x.nbytes) for x in (c.a, c.b))) for c in found.copies][1:] == [
        ("CUDA0", "CPU", (1, 10 * KIB), (0, 0))
    ]
    assert [(pair.id, pair.growth) for pair in found.sizes] == [("d", 10 * KIB)]
    assert [(m.id, m.a and m.a.buft, m.b and m.b.buft) for m in found.context_tensors] == [("w2", "CPU", "CUDA0")]
    assert [(h.buft, h.a, h.b) for h in found.contexts] == [("CUDA0", 10 * KIB, 20 * KIB), ("CPU", 10 * KIB, 0)]


def test_nodes_that_are_gone_or_at_another_place_are_told() -> None:
    found = diff_of("shorter")
    assert [place.id for place in found.only_in_a] == ["b"]
    assert len(found.reordered) == 1
    assert [place.id for place in diff_of("longer").only_in_b] == ["b"]
    assert found.divergences[0].kind == "order"


def test_a_refused_plan_differs_in_every_part() -> None:
    found = diff_of("refused")
    assert all(found.differs(part) for part in PARTS)
    both = plan_diff(DiffSide(REFUSED, {}), DiffSide(REFUSED, {}))
    assert all(both.differs(part) for part in PARTS)


def test_only_the_parts_that_are_asked_for_are_compared() -> None:
    b = replace(A, plan=replace(TWO_DEVICES, buffer_sizes=(("CUDA0", 1), ("CPU", 1))))
    assert Diff().between(A, b, TITLES).facts.differing == ("buffers",)
    text = Diff(only=("splits", "copies")).between(A, b, TITLES).shown("text", Style(80))
    assert text.startswith("before.yaml and after.yaml · no difference in splits, copies · ")
    line = Diff(brief=True).between(A, b, TITLES).shown("text", Style(80))
    assert line == "before.yaml and after.yaml differ in buffers\n"
    assert Diff(only=("sizes",)).between(A, b, TITLES).facts.document().compared == ("sizes",)


def test_many_of_everything_are_counted() -> None:
    def long(backend: str, n: int) -> DiffSide:
        row = TWO_DEVICES.nodes[0]
        nodes = tuple(
            msgspec.structs.replace(row, index=i, id=f"n{i}", name=f"n{i}", backend=backend, split=i, alloc_size=i * n)
            for i in range(40)
        )
        splits = tuple(SplitPlan(i, backend, i, i + 1, (f"n{i}",)) for i in range(40))
        tensors = {n.id: TENSORS["a"]._replace(id=n.id, name=n.id, src=(), nbytes=n.alloc_size or 0) for n in nodes}
        return DiffSide(replace(TWO_DEVICES, nodes=nodes, splits=splits, leafs=()), tensors, memory_plan([]))

    text = Diff().between(long("CPU", 1), long("CUDA0", 2), TITLES).shown("text", Style(80))
    assert "30 rows" in text
    assert "and 29 tensors more, together +435 B" in text
    assert "40  CPU → CUDA0" in text
    assert len(text.splitlines()) < 80


def test_names_cannot_steer_a_terminal() -> None:
    bad = "x\x1b[2J"

    def renamed(side: DiffSide) -> DiffSide:
        plan = changed(side.plan, b={"id": bad, "backend": side.plan.nodes[2].backend})
        return replace(side, plan=plan, tensors=side.tensors | {bad: TENSORS["b"]._replace(id=bad, name=bad)},
                       settled=on_weight(bad, bad, bad),
                       held=[*side.held, Held(bad, bad, bad, len(side.plan.splits))])  # fmt: skip

    for brief in (False, True):
        answer = Diff(brief=brief).between(renamed(A), renamed(ON_ONE_DEVICE), Titles(bad, bad))
        assert "\x1b" not in answer.shown("text", Style(80))
