"""N2: a node has one number, its index in the graph, in every view; what the scheduler puts between has none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ggmltool.debugger.screen.story import when_text
from tests.cli.conftest import Call
from tests.debugger.screen.screens import app_of

SAMPLES = Path(__file__).parents[2] / "sample_graphs"
CASES = [
    ("transformer", "kq"),
    ("transformer", "down"),
    ("moe", "h"),
    ("pipeline", "y"),
    ("four-passes", "out"),
    ("node-order", "wide_b"),
]


def number_of(call: Call, sample: str, node: str) -> int:
    nodes = json.loads(call("graph", "--json", sample).out)["nodes"]
    return [n["id"] for n in nodes].index(node)


@pytest.mark.parametrize(("sample", "node"), CASES)
def test_every_view_has_the_number_of_the_graph(call: Call, sample: str, node: str) -> None:
    number = number_of(call, sample, node)
    shown = {
        "explain": rf"\bnode {number} of \d+",
        "lifetime": rf"\b(?:at|from) node {number} {node}\b",
        "allocs": rf"(?m)^ *{number}  {node} ",
    }
    for command, pattern in shown.items():
        arguments = [node, sample] if command != "allocs" else [str(SAMPLES / f"{sample}.yaml")]
        assert re.search(pattern, call(command, *arguments, columns=200).out), command
    trace = call("allocs", "--trace", str(SAMPLES / f"{sample}.yaml"), columns=200).out
    assert re.search(rf"(?m)^ *{number}  [A-Z_0-9]+ +{node} ", trace)
    assert call("buffers", "-o", "map.svg", str(SAMPLES / f"{sample}.yaml")).status == 0
    assert f"from node {number} {node} to " in Path("map.svg").read_text("utf-8")


def test_a_copy_has_no_number(call: Call) -> None:
    out = call("allocs", str(SAMPLES / "transformer.yaml"), columns=200).out
    assert re.search(r"(?m)^ +CUDA0#x#0 ", out)
    assert "Read by node 23 ffn_in." in call("lifetime", "CPU#norm2#0", "transformer").out
    assert "at node CPU#norm2#0 only" in " ".join(call("lifetime", "CPU#norm2#0", "transformer").out.split())


def test_the_axis_of_the_map_has_the_numbers_of_the_graph(call: Call) -> None:
    """With copies before it, the tenth node is not the tenth step."""
    call("buffers", "-o", "map.svg", str(SAMPLES / "transformer.yaml"))
    svg = Path("map.svg").read_text("utf-8")
    axis = [int(n) for n in re.findall(r'text-anchor="middle"[^>]*>(\d+)</text>', svg)]
    assert axis
    assert max(axis) <= 30


def test_the_screen_has_the_number_of_the_graph() -> None:
    scene = app_of("transformer", False).scene
    scene.walker.goto(scene.last)
    now = scene.now(scene.last)
    plan = scene.timeline.plannings[-1]
    (span,) = plan.by_tensor["kq"]
    assert when_text(plan, span, now.program) == "at node 14 kq only"
    (copied,) = plan.by_tensor["CUDA0#mask#0"]
    assert when_text(plan, copied, now.program) == "from node CUDA0#mask#0 to node 15 probs"
