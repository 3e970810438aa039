"""The commands that look into the engine's state: golden files of a sample, and the figures of gdb sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"

WALK = {
    "ggmltool": 1,
    "backends": ["CPU"],
    "contexts": {
        "inputs": {
            "tensors": {
                "a": {"type": "f32", "ne": [1], "flags": ["input"], "data": [2]},
                "b": {"type": "f32", "ne": [1], "flags": ["input"], "data": [3]},
                "a2": {"type": "f32", "ne": [1], "flags": ["input"], "data": [4]},
                "b2": {"type": "f32", "ne": [1], "flags": ["input"], "data": [5]},
                "c": {"type": "f32", "ne": [1], "flags": ["input"], "data": [6]},
            }
        }
    },
    "graphs": {
        "one": {"nodes": {"mul": "mul(a, b)"}},
        "two": {"nodes": {"mul1": "mul(a2, b2)", "mul2": "mul(c, mul1)"}, "expand": ["mul2"]},
    },
}
"""A product of two inputs, and a second graph with one input and one node more."""
WALK_TEXT = json.dumps(WALK).encode()

COMMANDS: dict[str, tuple[str, ...]] = {
    "graph": ("graph",),
    "graph_sched": ("graph", "--sched"),
    "graph_json": ("graph", "--json"),
}


@pytest.mark.parametrize("sample", ["matmul", "transformer"])
@pytest.mark.parametrize("command", COMMANDS)
def test_output_is_as_accepted(call: Call, command: str, sample: str) -> None:
    result = call(*COMMANDS[command], SAMPLES / f"{sample}.yaml", columns=100)
    assert (result.status, result.err) == (0, "")
    check_golden(GOLDEN / f"{sample}_{command}.txt", result.out)


def test_graph_prints_two_products_as_a_gdb_session_shows_them(call: Call) -> None:
    text = call("graph", "--graph", "two", "-", stdin=WALK_TEXT).out
    assert text == (
        "=== GRAPH ===\n"
        "n_nodes = 2\n"
        " -   0: [     1,     1,     1]              MUL  \n"
        " -   1: [     1,     1,     1]              MUL  \n"
        "n_leafs = 3\n"
        " -   0: [     1,     1]     NONE                c\n"
        " -   1: [     1,     1]     NONE               a2\n"
        " -   2: [     1,     1]     NONE               b2\n"
        "========================================\n"
    )
