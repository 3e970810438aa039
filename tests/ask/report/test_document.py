"""What a report's document says agrees with the plan, the lifetimes and the reasons, and its events lead there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import ggmltool
from ggmltool.api.report import Report
from ggmltool.ask.explain.node import explain_node
from ggmltool.ask.report import build as told
from ggmltool.ask.report.build import report, tell
from ggmltool.ask.report.tables import _KINDS
from ggmltool.ask.words import reason_sentence, reason_text, words
from ggmltool.ggml.events import SPLIT_GRAPH
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.scenario.errors import ScenarioError
from tests.cli.conftest import SAMPLES
from tests.conformance import fuzz
from tests.conformance.golden import random_scenarios

SEEDS = (*range(10), 100, 123)
"""Some of them; of the last two one has copies with the same name, the other a graph without nodes."""
Document = dict[str, Any]


class Page:
    """What the page does with its data: rows by the names of their fields, texts with the names in them, a walk."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.tensors = document["tensors"]

    def name(self, tensor: int) -> str:
        return "" if tensor == -1 else str(self.tensors[tensor][0])

    def text(self, number: int, row: dict[str, int]) -> str:
        parts = self.document["texts"][number]
        return "".join(self.name(row[part]) if i % 2 else part for i, part in enumerate(parts))

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, *values in self.document["events"]:
            kind = self.document["kinds"][number]
            padded = [*values, *[-1] * (len(kind["fields"]) - len(values))]
            yield kind["name"], dict(zip(kind["fields"], padded, strict=True))

    def walk(self) -> Iterator[State]:
        resets = {(event, what) for event, what in self.document["resets"]}
        state = State()
        for number, (kind, row) in enumerate(self.events()):
            for what in range(3):
                if (number, what) in resets:
                    state.forget(what)
            state.apply(kind, row)
            yield state


class State:
    def __init__(self) -> None:
        for what in range(3):
            self.forget(what)

    def forget(self, what: int) -> None:
        if what == 0:
            self.backends: dict[int, int] = {}
        elif what == 1:
            self.splits: list[tuple[int, int]] = []
            self.inputs: list[tuple[int, int]] = []
        else:
            self.living: dict[tuple[int, int, int, int], int] = {}
            self.step = -1
            self.last = (0, 0, 0, 0)

    def apply(self, kind: str, row: dict[str, Any]) -> None:
        place = tuple(row.get(field, -1) for field in ("tensor", "buffer", "chunk", "offset"))
        match kind:
            case "Assigned":
                self.backends[row["tensor"]] = row["backend"]
            case "SplitStarted":
                self.splits.append((row["backend"], row["at"]))
            case "InputAdded":
                self.inputs.append((row["split"], row["tensor"]))
            case "AllocationStarted":
                self.step = row["at"]
            case "Allocated" if row["size"]:
                self.living[place] = row["size"]
                self.last = place
            case "Reused":
                before = (row["by"], *place[1:])
                if before in self.living:
                    self.living[place] = self.living.pop(before)
                    self.last = place
            case "Freed" if row["extra"] == 1:
                self.living[self.last] -= row["size"]
            case "Freed" if row["size"]:
                del self.living[place]


def document_of(scenario: ggmltool.Scenario, moment: Moment | None = None) -> Document:
    document: Document = msgspec.to_builtins(report(scenario.opened, moment or Moment()))
    return document


def check(opened: Opened, moment: Moment) -> None:
    """Everything in the document, against what the inspector and the engine say."""
    document = msgspec.to_builtins(report(opened, moment))
    page, known = Page(document), tell(opened, moment)
    plan, memory = known.at.plan, known.at.record.memory
    names = [row["name"] for row in document["backends"]]
    check_tensors(page, plan, names)
    check_memory(page, memory)
    check_walk(page, plan, names)
    check_events(page, known)
    assert [(s["i_start"], s["i_end"], [*names, "NULL"][s["backend"]]) for s in document["splits"]] == [
        (s.i_start, s.i_end, s.backend) for s in plan.splits
    ]
    assert [[page.name(i[0]) for i in s["inputs"]] for s in document["splits"]] == [list(s.inputs) for s in plan.splits]


def check_tensors(page: Page, plan: Any, names: list[str]) -> None:
    document = page.document
    for node, row in zip(plan.nodes, page.tensors, strict=False):
        assert (row[0], row[1] or row[0], row[2]) == (node.id, node.name, 0)
        assert document["strings"][row[4]] == f"{node.type}[{', '.join(map(str, shape_of(node.ne)))}]"
        assert (None if row[7] == -1 else names[row[7]], row[9]) == (node.backend, node.split)
        assert (None if row[8] == -1 else document["strings"][row[8]]) == node.cause
        where = (None, None) if row[11] == -1 else tuple(document["buffers"][row[11]][k] for k in ("buft", "usage"))
        assert where == (node.buffer, node.usage if node.buffer is not None else None)
        assert [None if n == -1 else n for n in row[12:14]] == [node.chunk, node.offset]
        reads = row[22] or row[21]
        assert [page.name(i) or None for i in reads] == list(node.src)
    for leaf, row in zip(plan.leafs, page.tensors[len(plan.nodes) :], strict=False):
        assert (row[0], row[2]) == (leaf.id, 1)
        assert (None if row[7] == -1 else names[row[7]]) == leaf.backend
    copies = [row for row in page.tensors if row[2] == 2]
    assert [(row[0], page.name(row[21][0])) for row in copies] == [(c.name, c.of) for c in plan.copies]


def shape_of(ne: tuple[int, ...]) -> list[int]:
    rows = list(ne)
    while len(rows) > 1 and rows[-1] == 1:
        rows.pop()
    return rows


def check_memory(page: Page, memory: Any) -> None:
    document = page.document
    rows = document["allocations"]
    assert len(rows) == len(memory.lifetimes)
    assert [page.name(i) for i in document["order"]] == list(memory.nodes)
    for row, life in zip(rows, memory.lifetimes, strict=True):
        tensor, buffer, chunk, offset, size, _, start, end, _, _, took, _, kept = row
        assert (page.name(tensor), document["buffers"][buffer]["buft"]) == (life.tensor, life.buft)
        assert (chunk, offset, size, start, kept) == (life.chunk, life.offset, life.size, life.start, life.kept)
        assert (None if end == -1 and life.end is None else end) == life.end
        assert (page.name(rows[took][0]) if took != -1 else None) == life.reused
        if took != -1:
            assert rows[took][11] == rows.index(row)
    n_events = len(document["events"])
    for i, one in enumerate(rows):
        for other in rows[:i]:
            if one[1:3] == other[1:3] and one[3] < other[3] + other[4] and other[3] < one[3] + one[4]:
                first, second = sorted((one, other), key=lambda row: row[8])
                assert (n_events if first[9] == -1 else first[9]) <= second[8]
    for number, buffer in enumerate(document["buffers"]):
        if buffer["usage"] == "compute":
            mine = [row for row in rows if row[1] == number]
            ends: dict[int, int] = {}
            for row in mine:
                ends[row[2]] = max(ends.get(row[2], 0), row[3] + row[4])
            assert buffer["chunks"] == [ends.get(chunk, 0) for chunk in range(len(buffer["chunks"]))]
            if buffer["peak"] is not None:
                assert buffer["peak"]["nbytes"] == sum(rows[i][4] for i in buffer["peak"]["allocations"])


def check_walk(page: Page, plan: Any, names: list[str]) -> None:
    """Stepping through the events gives the plan in the end, and the memory of every allocation in between."""
    born: dict[int, list[Any]] = {}
    for row in page.document["allocations"]:
        born.setdefault(row[8], []).append(row)
    resets = [event for event, what in page.document["resets"] if what == 2]
    planned = resets[-1] if resets else 0
    state = State()
    for number, state in enumerate(page.walk()):
        for row in born.get(number, ()) if number >= planned else ():
            assert state.living[tuple(row[:4])] == row[4] + row[5]
            assert state.step == row[6]
    living = {tuple(row[:4]): row[4] for row in page.document["allocations"] if row[9] == -1}
    assert state.living == living
    if plan.ok:
        assert state.splits == [(names.index(s.backend), s.i_start) for s in plan.splits[: len(state.splits)]]
        assert state.inputs == [(s.id, page.tensors.index(row)) for s in plan.splits for row in inputs_of(page, s)]
        for number, node in enumerate(plan.nodes):
            assert names[state.backends[number]] == node.backend


def inputs_of(page: Page, split: Any) -> list[list[Any]]:
    ids = [row for row in page.tensors if row[2] < 2]
    return [next(row for row in ids if row[0] == i) for i in split.inputs]


def check_events(page: Page, known: Any) -> None:
    """Each row says what its event said."""
    rows = list(page.events())
    assert [kind for kind, _ in rows] == [type(event).__name__ for event in known.events]
    for event, (_, row) in zip(known.events, rows, strict=True):
        for field, value in event._asdict().items():
            if field == "tensor" and value:
                assert page.name(row["tensor"]) == value
            elif field in ("size", "offset", "chunk", "at", "split"):
                assert row[field] == value
        if "text" in row:
            assert page.text(row["text"], row) == words(event)


@pytest.mark.parametrize("release", [name for name, release in RELEASES.items() if release.library is not None])
def test_the_document_agrees_with_the_plan_of_random_scenarios(release: str) -> None:
    for seed in SEEDS:
        try:
            opened = ggmltool.load(fuzz.scenario(seed), ggml=release).opened
        except ScenarioError:
            continue
        check(opened, Moment())
        check(opened, Moment(step="reserve"))


@pytest.mark.parametrize("version", ["2024-01", "2025-03"])
def test_the_document_agrees_with_the_plan_of_older_releases(version: str) -> None:
    for real in random_scenarios(version)[:40]:
        opened = ggmltool.load(real["scenario"], ggml=version).opened
        check(opened, Moment())
        for number, step in enumerate(opened.model.steps, 1):
            if step.graph is not None and number < 4:
                check(opened, Moment(after=number))


def test_why_a_tensor_is_on_its_backend_is_what_explain_says() -> None:
    for name in ("moe", "missing-op", "priority-any", "offload", "transformer", "preallocated", "four-passes"):
        opened = ggmltool.load(name).opened
        document = document_of(ggmltool.load(name))
        page = Page(document)
        fresh = opened.scenario.start()
        built, names = fresh.build(document["graph"]), [b.name for b in fresh.backends]
        for row in page.tensors[: document["nodes"]]:
            state, facts = explain_node(opened, Moment(), row[0])
            reason = state.record.decisions.reason(row[0], built, names)
            assert facts.reason.text == reason_sentence(reason)
            told = page.text(row[17], {"tensor": page.tensors.index(row), "by": row[18], "other": row[19]})
            assert told == (reason_text(reason) or reason_sentence(reason))
            answers = document["answers"][row[20]]
            for backend, said in zip(facts.answers, answers, strict=True):
                assert (document["strings"][said[0]] == "no") == (not backend.supports_op or not backend.supports_buft)
                assert [page.name(row[21][slot]) for slot, _ in said[2]] == [copy.id for copy in backend.copies]


def test_what_was_asked_and_settled_nothing_is_left_out_of_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = ggmltool.load("transformer")
    whole = document_of(scenario)
    monkeypatch.setattr(told, "MOST_EVENTS", 100)
    document = document_of(scenario)
    (left,) = document["left_out"]
    assert (left["of"], left["here"]) == (len(whole["events"]), len(document["events"]))
    assert len(document["events"]) < len(whole["events"])
    assert not {kind for kind, _ in Page(document).events()} & {"PassedOver", "Refused", "NotReused"}
    for *_, state in (Page(document).walk(), Page(whole).walk()):
        assert state.backends
    check(scenario.opened, Moment())


def test_seconds_are_there_where_the_hardware_is_named() -> None:
    spec = yaml.safe_load((SAMPLES / "transformer.yaml").read_text("utf-8"))
    document = document_of(ggmltool.load(spec))
    assert "Name the hardware" in document["no_seconds"]
    assert "seconds" not in document
    assert all("computes" not in split for split in document["splits"])
    spec["backends"][0] = {"name": "CUDA0", "rates": "RTX 3090"}
    rated = ggmltool.load(spec)
    document = document_of(rated)
    told = rated.splits(seconds=True)
    for row, split in zip(document["splits"], told.rows, strict=True):
        assert row["computes"]["mid"] == pytest.approx(split.computes.mid, rel=1e-3)
        assert row["copies"]["high"] == pytest.approx(split.copies.high, rel=1e-3)
    assert document["seconds"]["all"]["mid"] == pytest.approx(told.facts.all.mid, rel=1e-3)
    assert document["no_seconds"] == ""


def test_every_kind_of_event_says_what_it_is() -> None:
    document = document_of(ggmltool.load("moe"))
    for kind in document["kinds"]:
        assert set(kind["says"][1::2]) <= set(kind["fields"]), kind["name"]
    assert len(document["kinds"]) == len(_KINDS)


def test_a_page_has_the_document_and_nothing_that_is_asked_for(tmp_path: Any) -> None:
    page = Report(report(ggmltool.load("moe").opened, Moment()))
    data = page.html.partition('id="document">')[2].partition("</script>")[0]
    assert json.loads(data) == page.as_dict()
    assert "http:" not in page.html.replace("http://www.w3.org/", "")
    assert "{{" not in page.html


def test_a_walk_forgets_what_a_new_split_forgets() -> None:
    document = document_of(ggmltool.load("outgrown"), Moment(after=2))
    kinds = list(Page(document).events())
    for event, what in document["resets"]:
        kind, row = kinds[event]
        if what == 1:
            assert document["strings"][row["function"]] in SPLIT_GRAPH
        elif what == 2:
            assert (kind, row["at"]) == ("AllocationStarted", -1)


def test_the_walk_of_the_manual_runs(capsys: pytest.CaptureFixture[str]) -> None:
    manual = (Path(ggmltool.__file__).parent / "docs" / "report.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", manual, re.DOTALL)
    exec(code, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "3584 bytes with out"
