"""`diff`: two scenarios, two graphs of one, two options, two versions of ggml with the rule behind each difference."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import ggmltool
from ggmltool.ask.diff import PARTS
from ggmltool.ask.diff import plans as plan_diff
from ggmltool.ask.diff.rules import changes, changes_between
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.samples import samples
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"
TRANSFORMER = SAMPLES / "transformer.yaml"


def test_the_parts_of_the_option_are_those_of_the_view() -> None:
    assert tuple(plan_diff.PARTS) == PARTS


def document(call: Call, *args: object) -> dict[str, Any]:
    result = call("diff", "--json", *args)
    out: dict[str, Any] = json.loads(result.out)
    assert result.status == (not out["same"])
    return out


@pytest.mark.parametrize("path", samples(), ids=lambda path: path.name)
@pytest.mark.parametrize("step", ["alloc", "reserve"])
def test_nothing_differs_from_itself_unless_ggml_refuses_it(call: Call, path: Path, step: str) -> None:
    found = document(call, "--step", step, path, path)
    assert found["same"] == ggmltool.load(path).plan(step=step).ok
    assert not found["divergences"]
    assert not found["moved"]
    assert not found["sizes"]


@pytest.mark.parametrize("names", [("transformer", "moe"), ("gemma-3-270m-ngl9", "gemma-3-270m"), ("views", "inplace")])
def test_what_is_only_in_a_is_only_in_b_the_other_way_round(call: Call, names: tuple[str, str]) -> None:
    there, back = document(call, *names), document(call, *reversed(names))
    assert len(there["only_in_a"]) == len(back["only_in_b"])
    assert len(there["moved"]) == len(back["moved"])
    assert {(c["from"], c["to"], c["a"]["nbytes"]) for c in there["copies"]} == {
        (c["from"], c["to"], c["b"]["nbytes"]) for c in back["copies"]
    }


@pytest.mark.parametrize("names", [("transformer", "moe"), ("gemma-3-270m", "gemma-3-270m-ngl9"), ("moe", "views")])
def test_its_numbers_are_those_of_the_plans(call: Call, names: tuple[str, str]) -> None:
    found = document(call, *names)
    for side, name in zip("ab", names, strict=True):
        plan = json.loads(call("plan", "--json", name).out)
        bytes_ = json.loads(call("splits", "--bytes", "--json", name).out)
        assert found[side]["nodes"] == len(plan["nodes"])
        assert found[side]["buffer_sizes"] == plan["buffer_sizes"]
        assert [s[side]["id"] for s in found["splits"] if s[side] is not None] == [s["id"] for s in plan["splits"]]
        assert sum(c[side]["nbytes"] for c in found["copies"]) == bytes_["nbytes"]
        assert sum(s[side]["copied"]["nbytes"] for s in found["splits"] if s[side] is not None) == bytes_["nbytes"]
    pairs = found["a"]["nodes"] - len(found["only_in_a"])
    assert pairs == found["b"]["nodes"] - len(found["only_in_b"])


def test_moved_nodes_are_those_with_another_backend(call: Call) -> None:
    names = "gemma-3-270m", "gemma-3-270m-ngl9"
    found = document(call, *names)
    a, b = ({n["id"]: n for n in json.loads(call("plan", "--json", name).out)["nodes"]} for name in names)
    differ = [id for id in a if a[id]["backend"] != b[id]["backend"]]
    assert [pair["a"]["id"] for pair in found["moved"]] == differ
    assert len(differ) == 666
    assert found["divergences"][0]["b"]["id"] == differ[0]
    assert "expanding up" in found["divergences"][0]["b"]["reason"]


def test_exit_status_is_diffs(call: Call) -> None:
    assert call("diff", "moe", "moe").status == 0
    assert call("diff", "moe", "views").status == 1
    assert call("diff", "moe", "nowhere.yaml").status == 2
    assert call("diff", "preallocated", "preallocated").status == 1
    assert call("diff", "--only", "splits,copies", "outgrown:small", "outgrown:large").status == 1
    assert call("diff", "--only", "nodes,contexts", "outgrown:small", "outgrown:large").status == 0
    assert call("diff", "--brief", "moe", "moe").status == 0


def test_brief_is_one_line(call: Call) -> None:
    assert call("diff", "--brief", "moe", "moe").out == "moe and moe do not differ\n"
    result = call("diff", "--brief", "offload", "--no-op-offload")
    assert result.out == ("offload --op-offload and offload --no-op-offload differ in nodes, splits, copies, buffers\n")
    assert result.status == 1


def test_one_scenario_is_compared_with_the_option_the_other_way_round(call: Call) -> None:
    on, off = document(call, "pipeline", "--pipeline"), document(call, "pipeline", "--no-pipeline")
    assert on["a"]["title"] == off["b"]["title"] == "pipeline --no-pipeline"
    assert on["a"]["buffer_sizes"] == off["b"]["buffer_sizes"]
    assert document(call, "pipeline", "pipeline", "--no-pipeline")["same"]


def test_options_of_the_scheduler_can_come_from_the_environment(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGMLTOOL_DIFF_OP_OFFLOAD", "0")
    assert document(call, "offload", "offload")["same"]
    assert document(call, "offload")["b"]["title"] == "offload --no-op-offload"


def test_a_graph_is_named_behind_a_colon_or_for_both(call: Call) -> None:
    named = document(call, "offload:prompt", "offload:token")
    assert (named["a"]["graph"], named["b"]["graph"]) == ("prompt", "token")
    both = document(call, "--graph", "token", "offload", "offload:prompt")
    assert (both["a"]["graph"], both["b"]["graph"]) == ("token", "prompt")
    Path("x:y.yaml").write_bytes(TRANSFORMER.read_bytes())
    assert document(call, "x:y.yaml", "transformer")["same"]
    assert document(call, "x:y.yaml:main", "transformer")["a"]["graph"] == "main"


def test_standard_input_can_be_both(call: Call) -> None:
    text = (SAMPLES / "two-orders.yaml").read_bytes()
    result = call("diff", "--", "-:together", "-:apart", stdin=text, columns=80)
    assert result.status == 1
    assert result.out.startswith("A  standard input:together · alloc together\nB  standard input:apart · alloc apart\n")
    assert call("diff", "-", "two-orders", stdin=text).status == 0


def test_steps_of_two_scenarios_are_compared(call: Call) -> None:
    grown = document(call, "--after", "2", "outgrown", "outgrown")
    assert grown["same"]
    assert grown["a"]["graph"] == "large"


def test_files_of_one_name_are_told_apart_by_their_folders(call: Call) -> None:
    for folder in "ab":
        Path(folder).mkdir()
        Path(folder, "model.yaml").write_bytes((SAMPLES / "moe.yaml").read_bytes())
    assert call("diff", "a/model.yaml", "b/model.yaml").out.startswith("a/model.yaml and b/model.yaml · no difference")


def test_two_thousand_nodes_under_other_names_are_compared_quickly(call: Call) -> None:
    """Names that say nothing: all is found again by what it is computed from."""
    import time

    def scenario(first: int) -> bytes:
        nodes = {f"node_{first}": "add(x, x)"}
        for n in range(first + 1, first + 2000):
            nodes[f"node_{n}"] = f"{'sqr' if n % 3 else 'silu'}(node_{n - 1})"
        head = {"ggmltool": 1, "backends": ["CPU"], "contexts": {"c": {"tensors": {"x": "f32[8]"}}}}
        return json.dumps(head | {"graphs": {"main": {"nodes": nodes}}}).encode()

    Path("a.json").write_bytes(scenario(0))
    Path("b.json").write_bytes(scenario(3))
    start = time.process_time()
    found = document(call, "a.json", "b.json")
    assert time.process_time() - start < 5
    assert found["same"]


IN_PLACE = b"""ggmltool: 1
backends: [CPU]
contexts: {c: {tensors: {x: 'f32[8]'}}}
graphs:
  reused: {nodes: {p: 'sqr(x)', q: 'silu(p)', r: 'sqrt(q)'}}
  kept: {nodes: {p: {op: sqr, src: [x], flags: [output]}, q: 'silu(p)', r: 'sqrt(q)'}}
"""


def test_nodes_that_are_computed_in_place_in_one_plan_only_are_named(call: Call) -> None:
    Path("model.yaml").write_bytes(IN_PLACE)
    there = call("diff", "model.yaml:reused", "model.yaml:kept", columns=80).out
    assert "  in place in A, in new memory in B: q\n" in there
    back = call("diff", "model.yaml:kept", "model.yaml:reused", columns=80).out
    assert "  in place in B, in new memory in A: q\n" in back
    found = document(call, "model.yaml:reused", "model.yaml:kept")
    assert found["differing"] == ["buffers"]
    assert found["reuse"] == [{"id": "q", "a": "p", "b": None}]
    assert found["elsewhere"] == 2


@pytest.mark.parametrize(
    ("scenarios", "n"),
    [("two-orders:together two-orders:apart", 1), ("gemma-3-270m gemma-3-270m-ngl9", 1), ("preallocated moe", 0)],
)
def test_the_command_that_tells_more_can_be_pasted(call: Call, scenarios: str, n: int) -> None:
    commands = re.findall(r"^  more: ggmltool (.*)$", call("diff", *scenarios.split()).out, re.MULTILINE)
    assert len(commands) == n
    for command in commands:
        result = call(*shlex.split(command))
        assert (result.status, result.err) == (0, "")
        assert result.out


def test_a_placement_is_compared(call: Call) -> None:
    """llama.cpp's own, captured with -ngl 9, and what it would do with -ngl 9: the same but for offsets in contexts."""
    placed = call("place", "-ngl", "9", "gemma-3-270m", "-o", "placed.json.gz")
    assert placed.status == 0
    parts = "nodes,splits,copies,sizes,contexts"
    assert call("diff", "--only", parts, "placed.json.gz", "gemma-3-270m-ngl9").status == 0
    moved = document(call, "gemma-3-270m", "placed.json.gz")["context_tensors"]
    assert {(m["a"]["buft"], m["b"]["buft"]) for m in moved if m["a"] and m["b"]} == {("CPU", "CUDA0")}


LOGS = Path(__file__).parents[1] / "sources" / "logs"


@pytest.mark.parametrize("path", [p for p in samples() if p.name != "preallocated.yaml"], ids=lambda path: path.name)
@pytest.mark.parametrize("causes", ["--causes", "--no-causes"])
def test_a_scenario_is_what_its_own_print_tells(call: Call, path: Path, causes: str) -> None:
    for graph in ggmltool.load(path).model.graphs:
        printed = call("splits", causes, "--graph", graph, path).out
        if not printed:
            continue
        Path("printed.log").write_text(printed)
        for names in ((f"{path}:{graph}", "printed.log"), ("printed.log", f"{path}:{graph}")):
            found = document(call, *names)
            assert found["same"], found["differing"]
            assert found["compared"] == ["nodes", "splits", "copies"]


def test_a_print_differs_from_another_scenario_as_the_scenarios_do(call: Call) -> None:
    a, b = "gemma-3-270m-ngl9", "gemma-3-270m"
    Path("b.log").write_text(call("splits", "--no-causes", b).out)
    found, scenarios = document(call, a, "b.log"), document(call, a, b)
    views = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}
    moved = [pair["a"]["id"] for pair in scenarios["moved"] if pair["a"]["op"] not in views]
    assert [pair["a"]["id"] for pair in found["moved"]] == moved
    assert [s["a"]["id"] for s in found["splits"] if s["a"]] == list(range(152))
    assert found["divergences"][0]["a"]["id"] == scenarios["divergences"][0]["a"]["id"]


def test_two_graphs_of_a_log_are_compared(call: Call) -> None:
    texts = [call("splits", "--no-causes", f"--{on}op-offload", "gemma-3-270m-ngl9").out for on in ("", "no-")]
    Path("two.log").write_text("graph_reserve: reserving\n".join(texts))
    result = call("diff", "two.log:1", "two.log:2", columns=100)
    assert result.status == 1
    check_golden(GOLDEN / "diff_log_100.txt", result.out)
    assert max(map(len, result.out.splitlines())) <= 100
    assert call("diff", "--brief", "two.log:2", "gemma-3-270m-ngl9", "--graph", "2").status == 2
    assert call("diff", "two.log:1", "gemma-3-270m-ngl9").status == 0


def test_older_dialects_are_compared_with_themselves(call: Call) -> None:
    logs = [log for log in LOGS.glob("*.log") if "## SPLIT" in log.read_text("utf-8", "replace")]
    assert len(logs) >= 3
    for log in logs:
        assert call("diff", f"{log}:1", f"{log}:1").status == 0


def test_a_log_of_level_1_has_nothing_to_compare(call: Call) -> None:
    Path("level1.log").write_text(call("splits", "--debug", "1", "moe").out)
    result = call("diff", "level1.log", "moe")
    assert (result.status, result.out) == (2, "")
    assert "2 prints them" in result.err


def test_a_log_is_read_from_standard_input_once(call: Call) -> None:
    printed = call("splits", "moe").out.encode()
    assert call("diff", "-", "moe", stdin=printed).status == 0
    result = call("diff", "--", "-:1", "-:1", stdin=printed)
    assert (result.status, result.out) == (2, "")
    assert "only once" in result.err


OTHERS = ["allocator", "chunks", "inplace", "offload", "pipeline", "priority", "transformer", "two-orders", "views"]
GRAPHS = [
    f"{path.stem}:{graph}"
    for path in sorted(SAMPLES.glob("versions-*.yaml"))
    for graph in yaml.safe_load(path.read_text("utf-8"))["graphs"]
]
GOLDEN_PLANS = sorted((Path(__file__).parents[3] / "shared" / "golden").glob("20*/*.json.gz"))


def planned_by(call: Call, *args: object) -> dict[str, Any] | None:
    """The difference as JSON; None where the older ggml knows an op or a type of the sample not."""
    result = call("diff", "--json", "--ggml", *args)
    if result.status == 2:
        assert " has no " in result.err
        return None
    out: dict[str, Any] = json.loads(result.out)
    assert result.status == (not out["same"])
    return out


@pytest.mark.parametrize("sample", [*OTHERS, *GRAPHS])
def test_every_difference_has_its_rule_and_no_rule_is_named_for_nothing(call: Call, sample: str) -> None:
    for pair in itertools.combinations(RELEASES, 2):
        found = planned_by(call, ",".join(pair), sample)
        if found is None or not (found["a"]["ok"] or found["b"]["ok"]):
            continue
        assert bool(found["rules"]) == (not found["same"]), pair
        assert not found["rules"] or found["rules"][0]["rule"] is not None, pair
        known = {change.key for change in changes_between(*sorted(RELEASES[name].date for name in pair))}
        assert {rule["rule"] for rule in found["rules"]} <= {*known, None}, pair
        assert all(rule["changed"] for rule in found["rules"]), pair


@pytest.mark.parametrize("sample", GRAPHS)
def test_the_rules_are_the_same_the_other_way_round(call: Call, sample: str) -> None:
    there, back = planned_by(call, "2025-03,0.20.2", sample), planned_by(call, "0.20.2,2025-03", sample)
    assert there is not None
    assert back is not None
    assert there["rules"] == back["rules"]


@pytest.mark.parametrize("path", GOLDEN_PLANS[::3], ids=lambda path: path.name)
def test_every_difference_of_a_golden_plan_has_its_rule(call: Call, tmp_path: Path, path: Path) -> None:
    version = path.parent.name
    golden = json.loads(gzip.decompress(path.read_bytes()))
    (tmp_path / "golden.json").write_text(json.dumps(golden["scenario"] | {"ggml": version}))
    for graph in golden["scenario"]["graphs"]:
        found = planned_by(call, f"{version},0.20.2", f"{tmp_path / 'golden.json'}:{graph}")
        assert found is not None
        if found["a"]["ok"] or found["b"]["ok"]:
            named = [rule["rule"] for rule in found["rules"]]
            assert named != [None]
            assert bool(named) == (not found["same"])


def test_both_sides_of_one_version_differ_in_nothing(call: Call) -> None:
    for name in RELEASES:
        found = planned_by(call, f"{name},{name}", "pipeline")
        assert found is not None
        assert found["same"]
        assert "rules" not in found


def test_files_of_two_versions_are_compared_by_rule_too(call: Call, tmp_path: Path) -> None:
    text = (SAMPLES / "versions-splits.yaml").read_text("utf-8")
    (tmp_path / "old.yaml").write_text(text.replace("ggmltool: 1", "ggmltool: 1\nggml: 2025-03"))
    (tmp_path / "new.yaml").write_text(text)
    found = json.loads(
        call("diff", "--json", tmp_path / "old.yaml:split_inputs", tmp_path / "new.yaml:split_inputs").out
    )
    assert [rule["rule"] for rule in found["rules"]] == ["split-inputs-30"]


def test_changes_are_in_the_order_of_their_days() -> None:
    assert [c.since for c in changes()] == sorted(c.since for c in changes())
    assert len({c.key for c in changes()}) == len(changes())
    assert {c.area for c in changes()} == {"assignment", "splits", "copies", "memory"}
