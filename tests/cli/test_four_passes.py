"""The commands on a scenario of January 2024: what they show of it, and what they say that it does not have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import Call


def test_times_and_outputs_go_into_one_file(call: Call) -> None:
    assert call("run", "--times", "-o", "out.txt", "four-passes").err == "Wrote out.txt\n"
    assert Path("out.txt").read_text().startswith("sched_compute_splits times")


def test_times_are_printed_as_ggml_does(call: Call) -> None:
    out = call("run", "--times", "four-passes").out
    lines = out.splitlines()
    assert lines[0] == "sched_compute_splits times (3 splits):"
    assert all(re.fullmatch(r"\t( CUDA0|CUDA0|  CPU): \d+ us copy, \d+ us compute", line) for line in lines[1:3])
    document = json.loads(call("run", "--times", "--json", "four-passes").out)
    assert [b["backend"] for b in document["times"][0]["backends"]] == ["CUDA0", "CPU"]


def test_a_plan_as_json_has_the_allocators(call: Call) -> None:
    plan = json.loads(call("plan", "--json", "--step", "reserve", "four-passes").out)
    assert (plan["step"], plan["measured"]) == ("measure", {"CUDA0": 1024, "CPU": 1088})
    assert [t["buffer_size"] for t in plan["tallocs"]] == [1, 65]
    assert plan["inplace"] == ["masked", "sum", "norm", "k_half", "act", "shifted", "result"]
