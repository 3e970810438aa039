"""The views of `splits` that count, add up and go pass by pass, against the plan itself."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import watch
from tests.cli.conftest import SAMPLES, Call

SCENARIOS = ["moe.yaml", "transformer.yaml", "gemma-3-270m-ngl9.json.gz"]
NO_CPU_ADD = b"""ggmltool: 1
backends: [{name: CUDA0, supports: {only: [mul]}}, {name: CPU, supports: {only: [mul]}}]
contexts: {c: {tensors: {x: 'f32[4]'}}}
graphs: {main: {nodes: {y: 'mul(x, x)', z: 'add(y, x)'}}}
"""


def plan_of(sample: str) -> Plan:
    return ggmltool.load(SAMPLES / sample).plan()


@pytest.mark.parametrize("sample", SCENARIOS)
@pytest.mark.parametrize("keys", ["op", "op,backend", "cause,type", "split,op,backend"])
def test_the_counts_of_a_matrix_add_up_to_the_nodes(call: Call, sample: str, keys: str) -> None:
    document = json.loads(call("splits", "--by", keys, "--json", SAMPLES / sample).out)
    n = len(plan_of(sample).nodes)
    assert document["nodes"] == n == sum(c["nodes"] for c in document["counts"])


@pytest.mark.parametrize("columns", [50, 80, 200])
@pytest.mark.parametrize("keys", ["op,backend", "backend,split", "backend,cause,op", "op,split"])
def test_a_matrix_shows_all_nodes_in_every_width(call: Call, keys: str, columns: int) -> None:
    lines = call("splits", "--by", keys, SAMPLES / "gemma-3-270m-ngl9.json.gz", columns=columns).out.splitlines()
    assert max(len(line) for line in lines[1:]) <= columns
    start = next(i for i, line in enumerate(lines) if line == "") + 2
    rows = [[0 if cell == "–" else int(cell) for cell in line.split()[len(keys.split(",")) - 1 :]]
            for line in lines[start:-1]]  # fmt: skip
    total = [int(cell) for cell in lines[-1].split()[1:]]
    assert total[-1] == 727
    assert [sum(column) for column in zip(*rows, strict=True)] == total
    assert all(sum(row[:-1]) == row[-1] for row in rows)


@pytest.mark.parametrize("sample", SCENARIOS)
def test_the_bytes_are_those_of_the_copies_of_the_plan(call: Call, sample: str) -> None:
    document = json.loads(call("splits", "--bytes", "--json", SAMPLES / sample).out)
    plan = plan_of(sample)
    assert [(i["id"], i["to"]) for i in document["inputs"]] == [(c.of, c.backend) for c in plan.copies]
    model = ggmltool.load(SAMPLES / sample).model
    tensors = {t.id: t for t in (*model.tensors(), *model.graphs["main"].nodes)}
    by_hand = [
        t.nb[0] * (t.ne[0] // t.type.block_size - 1)
        + t.type.type_size
        + sum((n - 1) * b for n, b in zip(t.ne[1:], t.nb[1:], strict=True))
        for t in (tensors[c.of] for c in plan.copies)
    ]
    assert [i["nbytes"] for i in document["inputs"]] == by_hand
    assert document["nbytes"] == sum(by_hand) == sum(pair["nbytes"] for pair in document["pairs"])


def test_op_offload_is_compared_with_the_plan_without_it(call: Call, tmp_path: Path) -> None:
    sample = SAMPLES / "gemma-3-270m-ngl9.json.gz"
    compared = json.loads(call("splits", "--bytes", "--json", sample).out)["without_op_offload"]
    scenario = ggmltool.load(sample)
    scenario.model.scheduler = type(scenario.model.scheduler)(op_offload=False)
    assert compared["inputs"] == sum(len(split.inputs) for split in scenario.plan().splits)


@pytest.mark.parametrize("sample", SCENARIOS)
@pytest.mark.parametrize("step", ["reserve", "alloc"])
def test_the_passes_end_in_the_backends_and_causes_of_the_plan(sample: str, step: str) -> None:
    watched = watch(Opened(ggmltool.load(SAMPLES / sample), sample), Moment("main", step), Record(Keep.PASSES))
    records = watched.record.passes.records
    plan = watched.plan
    assert [record.number for record in records] == list(range(len(watched.sched.passes)))
    last = records[5]
    nodes = [(n.index, n.id, n.backend, n.cause) for n in plan.nodes]
    assert [(a.index, a.tensor, a.backend, a.cause) for a in last.assignments if not a.is_leaf] == nodes
    leafs = [(leaf.id, leaf.backend) for leaf in plan.leafs]
    assert [(a.tensor, a.backend) for a in last.assignments if a.is_leaf] == leafs
    assert [(s.split, s.backend, s.at) for s in last.splits] == [(s.id, s.backend, s.i_start) for s in plan.splits]
    assert [(i.split, i.tensor) for i in last.inputs] == [(s.id, i) for s in plan.splits for i in s.inputs]


@pytest.mark.parametrize("sample", SCENARIOS)
def test_a_pass_changes_what_it_announces_and_nothing_else(sample: str) -> None:
    opened = Opened(ggmltool.load(SAMPLES / sample), sample)
    records = watch(opened, Moment("main"), Record(Keep.PASSES)).record.passes.records
    for before, after in pairwise(records):
        announced = {e.tensor: (e.backend, e.cause) for e in after.assigned}
        for old, new in zip(before.assignments, after.assignments, strict=True):
            expected = announced.get(new.tensor, (old.backend, old.cause))
            assert (new.backend, new.cause) == expected


def test_pipeline_copies_of_inputs_are_made_in_pass_6_since_0_26_and_in_pass_5_before(call: Call) -> None:
    for ggml, number, cause in (("0.20.2", "5", "4.cpy"), ("0.26", "6", "6.cpy")):
        args = ("splits", "--pass", number, "--ggml", ggml, "--json", SAMPLES / "pipeline.yaml")
        document = json.loads(call(*args).out)
        assert document["graph_inputs"] == [
            {"tensor": "x", "backend": "CPU", "copies": ["x", "CPU#x#1", "CPU#x#2", "CPU#x#3"]}
        ]
        assert next(t["cause"] for t in document["tensors"] if t["id"] == "x") == cause
        before = json.loads(call("splits", "--pass", str(int(number) - 1), *args[3:]).out)
        assert before["graph_inputs"] == []
    result = call("splits", "--pass", "6", "--ggml", "0.20.2", SAMPLES / "pipeline.yaml")
    assert (result.status, result.err) == (2, "Error: the scheduler of ggml 0.20.2 has 5 passes, no pass 6\n")


def test_the_choices_of_the_user_are_pass_zero(call: Call) -> None:
    scenario = NO_CPU_ADD.replace(b"y: 'mul(x, x)', z: 'add(y, x)'", b"y: {op: mul, src: [x, x], backend: CPU}")
    result = call("splits", "--pass", "1", "-", stdin=scenario, columns=80)
    assert result.status == 0
    assert "0  the user's choices" in result.out
    assert "usr" in next(line for line in result.out.splitlines() if " y " in line)


def test_a_pass_that_ggml_does_not_finish_shows_the_ones_before(call: Call) -> None:
    result = call("splits", "--pass", "4", "-", stdin=NO_CPU_ADD, columns=80)
    assert result.status == 1
    assert "     3  the rest, and upgrades" in result.out
    assert result.err.startswith("GGML_ASSERT(*cur_backend_id != -1) failed")
    document = json.loads(call("splits", "--pass", "4", "--json", "-", stdin=NO_CPU_ADD).out)
    assert (document["complete"], document["ok"]) == (False, False)
