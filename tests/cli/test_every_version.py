"""Every view of a scenario under every older ggml: what that ggml decides, named as that ggml's, or its refusal."""

from __future__ import annotations

import json
from functools import cache

import pytest

import ggmltool
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from tests.cli.conftest import Call, Result

VERSIONS = [name for name in RELEASES if name != DEFAULT.name]
SCENARIOS = ("allocator", "arena", "inplace", "matmul", "outgrown", "packed-weights", "pipeline", "preallocated",
             "transformer", "versions-memory", "versions-splits", "views")  # fmt: skip
IN_TURN = [(s, v) for i, s in enumerate(SCENARIOS) for j, v in enumerate(VERSIONS) if (i + j) % 2 == 0]
"""Each scenario under every second ggml, each ggml with every second scenario."""
TITLED = (
    "plan", "plan --step reserve", "splits --format table", "splits --pass 1", "splits --pass 4", "splits --bytes",
    "splits --by op,backend", "buffers", "buffers --step reserve", "buffers --chunks", "buffers --copies", "allocs",
    "allocs --trace", "hash", "hash --sched", "check", "lifetime NODE", "context", "tensor NODE", "explain NODE",
    "explain split 0", "run --zeros",
)  # fmt: skip
"""Views with a heading, which names the release."""
PLAIN = (
    "splits", "splits --debug 2 --no-causes", "buffers --chart", "allocs --format gdb", "hash --format gdb",
    "trace --no-compute", "trace --decisions --no-compute", "backends", "backends --interface", "supports", "dot",
    "dot --style ggmltool", "graph", "run -v --zeros",
)  # fmt: skip
JSON = (
    "plan", "plan --step reserve", "splits", "splits --bytes", "splits --by op,backend", "splits --pass 4", "buffers",
    "buffers --chunks", "buffers --copies", "allocs", "allocs --trace", "hash", "hash --sched", "check",
    "lifetime NODE", "context", "tensor NODE", "trace --no-compute", "supports", "graph", "explain NODE",
    "explain split 0", "run --zeros", "report",
)  # fmt: skip
ONLY_LATER = ("buffers --copies",)
"""Views of what that ggml may not have; they say so."""


@cache
def plan_of(scenario: str, version: str) -> Plan | None:
    """None where that ggml has not what the scenario uses."""
    try:
        return ggmltool.load(scenario, ggml=version).plan()
    except ggmltool.ScenarioError:
        return None


def asked(call: Call, view: str, version: str, scenario: str, *more: str) -> Result:
    plan = plan_of(scenario, version)
    node = "x" if plan is None else last_node(scenario, version)
    return call(*view.replace("NODE", node).split(), *more, "--ggml", version, scenario)


@cache
def last_node(scenario: str, version: str) -> str:
    return next(iter(ggmltool.load(scenario, ggml=version).model.graphs.values())).nodes[-1].id


def check_status(result: Result, plan: Plan, view: str) -> bool:
    """Whether there is something to look at: what ggml refuses is said in its words, as far as the view meets it."""
    if view in ONLY_LATER and result.status == 2:
        assert "has no" in result.err, view
        return False
    if plan.ok and not view.startswith("run"):  # which does the file's own steps
        assert result.status == 0, (view, result.err)
        return True
    words = dict(plan.error or ()).get("message") or "ggml"
    assert result.status == 0 or words.strip() in result.out + result.err, (view, result.err)
    return result.status != 2 and bool(result.out)


@pytest.mark.parametrize(("scenario", "version"), IN_TURN)
def test_every_screen_says_which_ggml_decides(call: Call, version: str, scenario: str) -> None:
    plan = plan_of(scenario, version)
    for view in (*TITLED, *PLAIN):
        result = asked(call, view, version, scenario)
        if plan is None:
            assert result.status == 2, view
            assert ".yaml:" in result.err, view
        elif check_status(result, plan, view) and view in TITLED:
            assert f"ggml {version}" in result.out.split("\n\n")[0], view


@pytest.mark.parametrize(("scenario", "version"), IN_TURN)
def test_every_document_says_which_ggml_decides(call: Call, version: str, scenario: str) -> None:
    plan = plan_of(scenario, version)
    for view in JSON:
        result = asked(call, view, version, scenario, "--json")
        if plan is not None and check_status(result, plan, view):
            document = json.loads(result.out)
            assert (document["ggmltool"], document["ggml"]) == (1, version), view


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_screens_have_the_figures_of_that_plan(call: Call, version: str, scenario: str) -> None:
    plan = plan_of(scenario, version)
    if plan is None or not plan.ok:
        pytest.skip(f"ggml {version} does not plan {scenario}")
    document, ours = json.loads(call("plan", "--json", "--ggml", version, scenario).out), plan.as_dict()
    document["debug_log"] = ours["debug_log"] = []  # the command's compute of 2024-01 logs its copies, too
    assert document == ours
    buffers = json.loads(call("buffers", "--json", "--ggml", version, scenario).out)
    assert {b["backend"]: b["size"] for b in buffers["buffers"]} == plan.as_dict()["buffer_sizes"]
    text = call("splits", "--debug", "1", "--no-causes", "--ggml", version, scenario).out
    assert text.count("SPLIT #") == len(plan.splits)


def test_march_2025_says_in_its_own_words_why_it_plans_again(call: Call) -> None:
    out = call("explain", "realloc", "small", "large", "--ggml", "2025-03", "outgrown").out
    assert "ggml_gallocr_reserve_n: reallocating CPU buffer from size 0.00 MiB to 0.00 MiB" in out
    assert "reserve_n_impl" not in out
    assert "GGML_SCHED_DEBUG_REALLOC" not in out


def test_january_2024_keeps_no_plan_that_could_serve_another_graph(call: Call) -> None:
    result = call("explain", "realloc", "small", "large", "--ggml", "2024-01", "outgrown")
    assert result.status == 2
    assert "ggml 2024-01 keeps no plan" in result.err
