"""Folding: repeated pieces are found by structure, and unfolding gives back every node and every edge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggmltool
from ggmltool.ask.dot.folded import fold_dot
from ggmltool.ask.dot.overview import MOST_ROWS, LayerGroup, overview, overview_dot
from ggmltool.inspect.copied import bytes_of
from ggmltool.inspect.fold import Fold, FoldNode, Item, fold, fold_plan, layers, masked, unfolded
from ggmltool.scenario.samples import sample_name, samples
from tests.ask.plans import GOLDEN, TENSORS, TWO_DEVICES
from tests.conformance.fuzz import scenario as random_scenario
from tests.conformance.fuzz_wide import wide_scenario
from tests.golden import check_golden


def chain(keys: Sequence[object], residual: int = 0) -> list[FoldNode]:
    """Nodes of which each reads the one before, and every `residual`-th the one that many before."""
    nodes = []
    for i, key in enumerate(keys):
        far = (i - residual,) if residual and i >= residual and i % residual == 0 else ()
        nodes.append(FoldNode(key, (i - 1, *far) if i else ()))
    return nodes


def folds(items: Sequence[Item]) -> list[Fold]:
    return [item for item in items if isinstance(item, Fold)]


LAYER = tuple("abcdefgh")


def test_layers_between_a_head_and_a_tail_are_one_fold() -> None:
    items = fold(chain(["x", *LAYER * 16, "y", "z"]))
    assert items == (0, Fold(1, 8, 16, tuple(range(1, 9))), 129, 130)


def test_layers_that_alternate_fold_as_a_period_with_the_equal_ones_folded_within() -> None:
    other = tuple("ABCDEFGH")
    (run,) = folds(fold(chain(["x", *(*LAYER * 5, *other) * 3])))
    assert (run.start, run.period, run.times) == (1, 48, 3)
    assert run.body == (Fold(1, 8, 5, tuple(range(1, 9))), *range(41, 49))


def test_a_layer_on_another_backend_ends_the_fold() -> None:
    keys = [(op, "CPU" if layer < 4 else "CUDA0") for layer in range(12) for op in LAYER]
    assert [(run.start, run.times) for run in folds(fold(chain([("x", "CPU"), *keys])))] == [(1, 4), (33, 8)]


def test_a_layer_that_begins_a_split_within_is_not_folded_with_those_that_do_not() -> None:
    nodes = chain(["x", *LAYER * 6])
    nodes[21] = nodes[21]._replace(border=True)
    assert [(run.start, run.times) for run in folds(fold(nodes))] == [(1, 2), (21, 3)]


def test_the_first_layer_may_begin_a_split() -> None:
    nodes = chain(["x", *LAYER * 6])
    nodes[1] = nodes[1]._replace(border=True)
    assert [(run.start, run.times) for run in folds(fold(nodes))] == [(1, 6)]


def test_layers_that_read_one_node_before_them_fold_and_those_that_read_into_another_layer_do_not() -> None:
    shared = chain(["x", *LAYER * 6])
    shared = [node._replace(src=(*node.src, 0)) if node.key == "e" else node for node in shared]
    assert [run.times for run in folds(fold(shared))] == [6]
    into = [node._replace(src=(*node.src, 3)) if node.key == "e" and i > 40 else node for i, node in enumerate(shared)]
    assert [run.times for run in folds(fold(into))] == [5]


def test_short_repetitions_stay_as_they_are() -> None:
    assert folds(fold(chain("ab" * 2))) == []
    assert folds(fold([])) == []


@st.composite
def graphs(draw: st.DrawFn) -> list[FoldNode]:
    """Pieces repeated now and then, on two backends, with edges near and far, and some that break the pattern."""
    keys: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(0, 4))):
        piece = draw(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 1)), min_size=1, max_size=14))
        keys += piece * draw(st.integers(1, 6))
    reach = draw(st.lists(st.integers(1, 30), min_size=1, max_size=7))
    nodes = [
        FoldNode(key, tuple(i - r for r in (1, reach[i % len(reach)]) if i >= r), draw(st.integers(0, 20)) == 0)
        for i, key in enumerate(keys)
    ]
    for i in range(1, len(nodes), 9):
        if draw(st.booleans()):
            nodes[i] = nodes[i]._replace(src=(*nodes[i].src, draw(st.integers(0, i - 1))))
    return nodes


@given(graphs())
def test_unfolding_gives_back_every_node_once_and_only_alike_nodes_are_folded(nodes: list[FoldNode]) -> None:
    items = fold(nodes)
    groups = dict(unfolded(items))
    assert sorted(i for all in groups.values() for i in all) == list(range(len(nodes)))
    for drawn, all in groups.items():
        assert all[0] == drawn
        assert {nodes[i].key for i in all} == {nodes[drawn].key}, "folded across backends or ops"
    check_borders(nodes, items)


def check_borders(nodes: list[FoldNode], items: Sequence[Item]) -> None:
    """Repetitions have their borders at the same places; only the first may begin with another."""
    for run in folds(items):
        for i in range(run.start, run.start + run.period):
            first = 1 if i == run.start else 0
            assert len({nodes[i + n * run.period].border for n in range(first, run.times)}) == 1
        check_borders(nodes, run.body)


@given(graphs())
def test_repetitions_read_the_same_places(nodes: list[FoldNode]) -> None:
    """Said anew: from the second repetition on, an edge either moves along with its reader or stays where it was."""

    def check(items: Sequence[Item]) -> None:
        for run in folds(items):
            assert run.times > 1
            for i in range(run.start, run.start + run.period):
                sources = [nodes[i + n * run.period].src for n in range(run.times)]
                for before, after in pairwise(sources[1:]):
                    for old, new in zip(before, after, strict=True):
                        assert new == old + run.period or (new == old and new < run.start)
                for first, second in zip(sources[0], sources[1], strict=True):
                    within = second >= run.start + run.period
                    assert first == second - run.period if within else first < run.start
            check(run.body)

    check(fold(nodes))


def test_every_tensor_copy_and_edge_of_a_plan_is_in_the_folded_one_exactly_once() -> None:
    folded = fold_plan(TWO_DEVICES, TENSORS)
    ids = [t.id for t in (*TWO_DEVICES.nodes, *TWO_DEVICES.leafs)]
    assert Counter(id for key, group in folded.members.items() if key[0] != "c" for id in group) == Counter(ids)
    assert {(c.of, c.backend) for c in TWO_DEVICES.copies} == set(folded.copies)
    assert folded.edges.total() == sum(src is not None for n in TWO_DEVICES.nodes for src in TENSORS[n.id].src)


def test_names_that_differ_in_numbers_only_are_one() -> None:
    assert masked(["Qcur-0", "Qcur-11"]) == "Qcur-N"
    assert masked(["blk.3.ffn_up.weight", "blk.4.ffn_up.weight"]) == "blk.N.ffn_up.weight"
    assert masked(["q2-7", "q2-8"]) == "q2-N"
    assert masked(["one", "two"]) == ""
    assert layers(["blk.3.a", "blk.12.b", "x"]) == "layers 3–12"
    assert layers(["l_out-7"]) == "layer 7"
    assert layers(["pos"]) == ""


def test_the_picture_looks_as_accepted() -> None:
    check_golden(GOLDEN / "folded.dot", fold_dot(TWO_DEVICES, TENSORS, 'two "devices"'))


@pytest.mark.parametrize("hostile", ['"]; evil [label="', "a\\", "\x1b[31m\n", "<b>&"])
def test_names_cannot_leave_their_labels(hostile: str) -> None:
    nodes = tuple(msgspec.structs.replace(node, name=hostile) for node in TWO_DEVICES.nodes)
    tensors = {id: info._replace(name=hostile) for id, info in TENSORS.items()}
    text = fold_dot(replace(TWO_DEVICES, nodes=nodes), tensors, hostile)
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert "evil" not in outside
    assert "\x1b" not in text


def test_two_devices_look_as_accepted() -> None:
    check_golden(GOLDEN / "overview.dot", overview_dot(TWO_DEVICES, TENSORS, "two devices"))


def test_a_long_column_goes_on_beside_itself() -> None:
    """As many splits as nodes, on two backends in turns."""
    node, split = TWO_DEVICES.nodes[0], TWO_DEVICES.splits[0]
    n = 2 * MOST_ROWS + 1
    backends = [name for name, _ in TWO_DEVICES.backends]
    many = replace(
        TWO_DEVICES,
        nodes=tuple(msgspec.structs.replace(node, index=i, split=i) for i in range(n)),
        splits=tuple(
            msgspec.structs.replace(split, id=i, backend=backends[i % 2], i_start=i, i_end=i + 1, inputs=())
            for i in range(n)
        ),
    )
    text = overview_dot(many, TENSORS, '"]; evil [label="')
    assert text.count('label="continued"') == 2
    assert 'label="graph"' in text
    assert '\\"]; evil [label=\\"' in text
    assert text.count("node: ") == n
    assert "what is copied" not in text


def overviews(scenario: ggmltool.Scenario) -> list[tuple[ggmltool.Plan, tuple[LayerGroup, ...]]]:
    """Those of all graphs that ggml takes, checked against their plans."""
    found = []
    for graph in scenario.model.graphs:
        plan, tensors = scenario.plan(graph), scenario.opened.tensors(graph)
        if not plan.splits:
            continue
        groups = overview(plan, tensors)
        stages = [stage for group in groups for column in group.columns for stage in column.stages]
        assert sum((stage.ops for stage in stages), Counter()) == Counter(tensors[n.id].op for n in plan.nodes)
        assert {split for stage in stages for split in stage.splits} == {split.id for split in plan.splits}
        alone = [stage for group in groups if group.times == 1 for c in group.columns for stage in c.stages]
        for stage in alone:
            (split,) = (plan.splits[id] for id in stage.splits)
            assert stage.backend == split.backend
            assert stage.inputs in ((0, 0), (len(split.inputs),) * 2)
            assert bool(stage.nbytes[1]) <= bool(bytes_of([tensors[of] for of in split.inputs]))
        if len(alone) == len(stages):
            assert sum(stage.inputs[0] for stage in stages) == sum(len(split.inputs) for split in plan.splits)
        found.append((plan, groups))
    return found


@pytest.mark.parametrize("sample", [sample_name(path) for path in samples()])
def test_every_node_of_a_sample_is_told_once(sample: str) -> None:
    overviews(ggmltool.load(sample))


@pytest.mark.parametrize("seed", range(20))
def test_every_node_of_a_random_scenario_is_told_once(seed: int) -> None:
    assert overviews(ggmltool.load(random_scenario(seed) if seed % 2 else wide_scenario(seed))) is not None


def test_layers_that_are_alike_are_one_column() -> None:
    ((_, groups),) = overviews(ggmltool.load("gemma-3-270m-ngl9"))
    assert [(group.times, group.columns[0].layers[0]) for group in groups] == [
        (1, None), (10, 0), (7, 10), (1, 17), (1, None),
    ]  # fmt: skip
    (column,) = groups[1].columns
    assert column.layers == tuple(range(10))
    assert [stage.backend for stage in column.stages].count("CPU") == 1
    assert column.stages[2].splits == tuple(range(3, 150, 15))


def test_layers_that_take_turns_are_a_group() -> None:
    """Every second layer has one node more: two columns for them. With the first layer the split begins."""
    nodes: dict[str, dict[str, object]] = {}
    last = "x"
    for layer in range(12):
        for op in ("sqr", "neg", "sqrt") if layer % 2 else ("sqr", "sqrt"):
            nodes[f"{op}-{layer}"] = {"op": op, "src": [last]}
            last = f"{op}-{layer}"
    inputs = {"tensors": {"x": {"type": "f32", "ne": [8]}}}
    scenario = ggmltool.load({"ggmltool": 1, "contexts": {"inputs": inputs}, "graphs": {"main": {"nodes": nodes}}})
    ((_, groups),) = overviews(scenario)
    assert [(group.times, [column.layers for column in group.columns]) for group in groups] == [
        (1, [(0,)]),
        (5, [(1, 3, 5, 7, 9), (2, 4, 6, 8, 10)]),
        (1, [(11,)]),
    ]
