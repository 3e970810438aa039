"""`lifetime`: who has a tensor's bytes before and after it, and whether two tensors collide."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.lifetime.record import Lifetimes
from ggmltool.ask.lifetime.text import collision, shared, story, together
from ggmltool.inspect.opened import Moment, Opened
from tests.cli.conftest import SAMPLES, Call
from tests.conformance.fuzz import scenario as random_scenario
from tests.invariants import violations


def lived(call: Call, *args: str, stdin: bytes = b"", status: int = 0) -> dict[str, Any]:
    result = call("lifetime", *args, "--json", stdin=stdin)
    assert result.status == status, result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


@pytest.mark.parametrize("sample", ["transformer", "moe", "inplace", "missing-op", "pipeline", "allocator"])
def test_places_are_the_plans(call: Call, sample: str) -> None:
    plan = ggmltool.load(SAMPLES / f"{sample}.yaml").plan().as_dict()
    for row in (*plan["nodes"], *plan["leafs"]):
        (life,) = lived(call, row["id"], sample)["tensors"]
        if life["where"] is not None:
            assert (life["chunk"], life["offset"]) == (row["chunk"], row["offset"])
            assert life["where"].startswith(row["buffer"])


@pytest.mark.parametrize("sample", ["transformer", "moe", "inplace", "pipeline"])
def test_what_ggml_plans_never_collides(sample: str) -> None:
    found = Lifetimes(Opened(ggmltool.load(SAMPLES / f"{sample}.yaml"), sample), Moment(None, "alloc"))
    lives = [found.of(name) for name in found.tensors]
    over = 0
    for a, b in combinations(lives, 2):
        assert "DANGER" not in " ".join([*collision(a, b, found.nodes), *story(a, found.nodes, "")])
        if a.life != b.life and shared(a, b) is not None:
            assert together(a, b, len(found.nodes)) is None
            over += 1
    assert over >= 1


def test_a_copy_that_lies_over_what_it_is_made_of_is_a_danger(call: Call) -> None:
    """ggml gives the memory of the tensor back just before it gives some to the copy, in the same buffer."""
    scenario = {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "host": True, "alignment": 64, "profile": "custom"}, "CPU"],
        "contexts": {
            "w": {"buft": "CUDA0", "usage": "weights", "tensors": {"w": "f32[32, 32]", "w2": "f32[32, 64]"}},
            "in": {"tensors": {"x": {"type": "f32", "ne": [32, 4], "flags": ["input"]}}},
        },
        "graphs": {
            "g": {
                "nodes": {
                    "h": "mul_mat(w, x)",
                    "t": "sum_rows(h)",
                    "big": "mul_mat(w2, h)",
                    "s": {"op": "scale", "src": ["big"], "s": 2, "backend": "CPU"},
                    "y": {"op": "add", "src": ["s", "t"], "backend": "CUDA0"},
                }
            }
        },
    }
    text = json.dumps(scenario).encode()
    (life,) = lived(call, "s", "-", stdin=text)["tensors"]
    assert life["overwritten_too_early"] == [{"by": "CUDA0#s#0", "read_by": "CUDA0#s#0"}]
    out = " ".join(call("lifetime", "s", "-", stdin=text, columns=200).out.split())
    assert "DANGER: CUDA0#s#0 overwrites it at node" in out
    assert "bytes are overwritten before they are copied" in out
    told = " ".join(lived(call, "s", "CUDA0#s#0", "-", stdin=text)["told"])
    assert "DANGER" in told


@pytest.mark.parametrize("seed", range(40))
def test_danger_is_told_only_where_ggml_itself_goes_wrong(seed: int) -> None:
    """Another checker, which knows nothing of the allocator's events, sees the same in random scenarios."""
    scenario = ggmltool.load(random_scenario(seed))
    for graph in scenario.model.graphs:
        plan = scenario.plan(graph)
        if plan.ok:
            kinds = {v.kind for v in violations(scenario.model, plan.as_dict())}
            found = Lifetimes(Opened(scenario, "it"), Moment(graph, "alloc"))
            dangers = [name for name in found.tensors if found.of(name).overwritten_too_early]
            assert not dangers or kinds & {"self_copy", "leaf_view", "early"}
            assert dangers or "self_copy" not in kinds


def test_an_input_must_be_set_again_and_an_output_is_kept(call: Call) -> None:
    x = " ".join(call("lifetime", "x", "transformer").out.split())
    assert "set it again before the graph is computed again" in x
    out = " ".join(call("lifetime", "out", "transformer").out.split())
    assert "to the end: it is an output" in out
    assert "Nothing overwrites it" in out


def test_of_two_words_the_second_is_a_scenario_where_there_is_one(call: Call) -> None:
    assert [t["id"] for t in lived(call, "q", "transformer")["tensors"]] == ["q"]
    Path("graph.yaml").write_bytes((SAMPLES / "transformer.yaml").read_bytes())
    assert [t["id"] for t in lived(call, "q", "k")["tensors"]] == ["q", "k"]
    assert [t["id"] for t in lived(call, "q")["tensors"]] == ["q"]


def test_what_was_measured_only_has_a_lifetime_too(call: Call) -> None:
    (alloc,) = lived(call, "q", "transformer")["tensors"]
    (reserve,) = lived(call, "q", "transformer", "--step", "reserve")["tensors"]
    assert reserve == alloc


def test_a_tensor_that_the_graph_does_not_reach_has_no_memory(call: Call) -> None:
    result = call("lifetime", "c", "buffer-not-set", columns=100)
    assert "c (f32[4, 3]) has no memory: the graph does not reach it, or it has no bytes." in result.out


def test_a_view_of_no_bytes_lies_in_what_it_is_a_view_of(call: Call) -> None:
    text = b"""ggmltool: 1
backends: [CPU]
contexts: {c: {tensors: {x: {type: f32, ne: [64, 2], flags: [input]}}}}
graphs: {main: {nodes: {none: 'view(x, ne=[64, 0], nb=[256], offset=0)', y: 'scale(x, s=2)'}}}
"""
    result = call("lifetime", "none", "-", stdin=text, columns=100)
    assert result.status == 0
    assert "none (VIEW f32[64, 0]) is a view of x and has 0 B" in result.out
    assert "start" in result.out.split("Who has these bytes, in order")[1]


def test_what_keeps_values_is_what_that_ggml_knows(call: Call) -> None:
    old, new = (
        " ".join(call("lifetime", *words).out.split()) for words in (("k", "four-passes"), ("kq", "transformer"))
    )
    assert "Copy it (cpy) into memory of a context to keep it." in old
    assert "Flag it as an output to keep it." in new
