"""`explain`: why a node is where it is, why a split begins, and that what is said would move it does."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.explain.node import explain_node
from ggmltool.ask.explain.split import explain_split
from ggmltool.inspect.opened import Moment, Opened
from tests.cli.conftest import SAMPLES, Call
from tests.conformance.fuzz import scenario as random_scenario

LOAD_FAILED = b"""ggml_backend_cuda: allocating 12710.31 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 13327728640
graph_reserve: failed to allocate compute buffers
"""


def explained(call: Call, *args: str, stdin: bytes = b"", status: int = 0) -> dict[str, Any]:
    result = call("explain", *args, "--json", stdin=stdin)
    assert result.status == status, result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


@pytest.mark.parametrize("sample", ["transformer", "moe", "offload", "priority", "priority-any", "pipeline"])
def test_the_verdict_on_every_tensor_is_the_plans(call: Call, sample: str) -> None:
    plan = ggmltool.load(SAMPLES / f"{sample}.yaml").plan().as_dict()
    for node in plan["nodes"]:
        document = explained(call, "node", node["id"], sample)
        assert (document["backend"], document["cause"], document["split"]) == (
            node["backend"],
            node["cause"],
            node["split"],
        )
        assert document["rules"][-1]["settled"]
    for leaf in plan["leafs"]:
        assert explained(call, leaf["id"], sample)["backend"] == leaf["backend"]


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_are_explained_as_they_are_planned(seed: int) -> None:
    scenario = ggmltool.load(random_scenario(seed))
    opened = Opened(scenario, "it")
    for graph in scenario.model.graphs:
        plan = scenario.plan(graph)
        if not plan.ok:
            continue
        moment = Moment(graph, "alloc")
        for node in plan.nodes[:: max(len(plan.nodes) // 4, 1)]:
            _, facts = explain_node(opened, moment, node.id)
            assert (facts.backend, facts.cause) == (node.backend, node.cause)
            assert all(m.backend not in (None, node.backend) for m in facts.moves)
        for split in plan.splits[:3]:
            _, told = explain_split(opened, moment, split.id)
            assert tuple(i.id for i in told.inputs) == split.inputs
            assert all(i.users for i in told.inputs)
            assert all(m.splits < len(plan.splits) for m in told.merges)
            on = {n.id: n.backend for n in plan.nodes}
            for merge in told.merges:
                assigned = re.fullmatch(r"assign its backend: `backend: (.+)` for (.+)", merge.text)
                assert assigned is None or on[assigned[2]] != assigned[1]


def test_what_is_already_so_is_no_change(call: Call) -> None:
    """N16: act runs on the CPU."""
    document = explained(call, "split", "1", "recorded")
    assert document["backend"] == "CPU"
    assert not [m for m in document["merges"] if m["text"].endswith("`backend: CPU` for act")]
    assert [m for m in document["merges"] if m["text"].endswith("`backend: CPU` for proj")]


def test_putting_a_weight_where_it_is_told_moves_the_node(call: Call) -> None:
    document = explained(call, "y_one", "offload")
    assert document["backend"] == "CPU"
    told = {move["text"]: move["backend"] for move in document["moves"]}
    assert told["put w into CUDA0"] == "CUDA0"
    assert told["a batch of 32 or more, which CUDA0 offloads"] == "CUDA0"
    text = (SAMPLES / "offload.yaml").read_text()
    moved = ggmltool.load(_yaml(text.replace("buft: CPU", "buft: CUDA0"))).plan("token")
    assert [n.backend for n in moved.nodes] == ["CUDA0"]
    larger = ggmltool.load(_yaml(text)).plan("prompt")
    assert [n.backend for n in larger.nodes] == ["CUDA0"]


def _yaml(text: str) -> dict[str, Any]:
    import yaml

    document: dict[str, Any] = yaml.safe_load(text)
    return document


def test_a_source_that_is_not_contiguous_is_named_and_a_cont_before_moves_the_node(call: Call) -> None:
    text = (
        b"ggmltool: 1\nggml: 0.20.2\nbackends: [CUDA0, CPU]\n"
        b"contexts: {w: {buft: CUDA0, usage: weights, tensors: {a: 'f32[8, 8]'}}, i: {tensors: {x: 'f32[8, 8]'}}}\n"
        b"graphs: {main: {nodes: {y: 'mul_mat(a, x)', t: 'view(y, ne=[4, 8], nb=[32])', s: silu(t)}}}\n"
    )
    document = explained(call, "s", "-", stdin=text)
    assert document["backend"] == "CPU"
    assert document["answers"][0]["why_not_op"] == "source 0 is not contiguous"
    assert {"text": "make t contiguous first (cont)", "backend": "CUDA0"}.items() <= document["moves"][0].items()


def test_a_type_that_a_device_does_not_take_is_named_and_a_cast_before_moves_the_node(call: Call) -> None:
    text = (
        b"ggmltool: 1\nbackends: [CUDA0, CPU]\n"
        b"contexts: {w: {buft: CUDA0, usage: weights, tensors: {a: 'q4_0[256, 64]', n: 'f32[256]'}},\n"
        b"  i: {tensors: {x: 'f32[256, 4]'}}}\n"
        b"graphs: {main: {nodes: {y: 'mul(x, n)', h: 'cast(y, f16)', p: {op: mul_mat, src: [a, h], backend: CPU}}}}\n"
    )
    document = explained(call, "p", "-", stdin=text)
    assert document["answers"][0]["why_not_op"] == "source 1 is f16, and source 0 is q4_0, not f16 too"
    unassigned = text.replace(b"{op: mul_mat, src: [a, h], backend: CPU}", b"'mul_mat(a, h)'")
    told = {m["text"]: m["backend"] for m in explained(call, "p", "-", stdin=unassigned, status=1)["moves"]}
    assert told["cast h from f16 to f32 first"] == "CUDA0"


def test_options_of_the_scheduler_stand_in_for_the_scenarios(call: Call) -> None:
    assert explained(call, "y_many", "offload")["cause"] == "1.off"
    assert explained(call, "y_many", "offload", "--no-op-offload")["backend"] == "CPU"
    one, four = (explained(call, "realloc", "small", "large", "outgrown", *on)["first"] for on in ((), ("--pipeline",)))
    assert four["buffers"]["GPU0"] > one["buffers"]["GPU0"]


def test_a_split_that_is_full_says_so(call: Call) -> None:
    n = 30
    inputs = ", ".join(f"x{i}: {{type: f32, ne: [4], flags: [input]}}" for i in range(n + 1))
    adds = ", ".join(f"s{i}: 'add({'x0' if i == 1 else f's{i - 1}'}, x{i})'" for i in range(1, n + 1))
    text = (
        "ggmltool: 1\nbackends: [{name: GPU0}, CPU]\n"
        f"contexts: {{i: {{tensors: {{{inputs}}}}}, w: {{buft: GPU0, usage: weights, tensors: {{w: 'f32[4]'}}}}}}\n"
        f"graphs: {{main: {{nodes: {{{adds}, y: 'mul(s{n}, w)'}}}}}}\n"
    )
    document = explained(call, "split", "1", "--ggml", "0.20.2", "-", stdin=text.encode())
    assert document["reason"] == "x30 must be copied, and the split has 30 inputs, all it has room for"
    assert document["merges"][0]["text"] == "put x30 into GPU0"
    assert (document["now"]["splits"], document["merges"][0]["splits"]) == (2, 1)


def test_one_backend_has_nothing_to_move_to(call: Call) -> None:
    document = explained(call, "result", "matmul")
    assert document["moves"] == []


def test_two_files_are_judged_like_two_graphs_of_one(call: Call) -> None:
    document = _yaml((SAMPLES / "outgrown.yaml").read_text())
    del document["steps"]
    for name in ("small", "large"):
        Path(f"{name}.json").write_text(json.dumps(document | {"graphs": {"main": document["graphs"][name]}}))
    for first, second in (("small", "large"), ("large", "small")):
        one = explained(call, "realloc", first, second, "outgrown")
        two = explained(call, "realloc", f"{first}.json", f"{second}.json")
        for side in ("first", "second"):
            one[side].pop("called")
            assert two[side].pop("called").endswith(".json")
        assert one == two
    assert explained(call, "realloc", "small.json", "large.json", "--graph", "main")["serves"] is False
    for first in ("outgrown:small", "small.json:main"):
        assert explained(call, "realloc", first, "outgrown:large")["why"]["tensor"] == "many"


def test_other_messages_in_a_text_are_listed_with_their_lines(call: Call) -> None:
    result = call("explain", "error", "-", stdin=LOAD_FAILED)
    assert result.out.startswith("allocating 12710.31 MiB on device 0: cudaMalloc failed: out of memory\n")
    assert "  line 3: failed to allocate compute buffers\n" in result.out
    others = explained(call, "error", "-", stdin=LOAD_FAILED)["others"]
    assert [other["key"] for other in others] == ["alloc_buffer_failed", "compute_buffers_failed"]


def test_a_log_is_explained_from_its_file(call: Call) -> None:
    Path("x.log").write_bytes(LOAD_FAILED)
    Path("x.log.gz").write_bytes(gzip.compress(LOAD_FAILED))
    piped = call("explain", "error", "-", stdin=LOAD_FAILED)
    assert piped.status == 0
    for name in ("x.log", "x.log.gz"):
        assert call("explain", "error", name).out == piped.out


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
def test_a_message_in_another_encoding_is_read(call: Call, codec: str) -> None:
    """U35, R8."""
    text = LOAD_FAILED.decode().replace("\n", "\r\n")
    assert (
        call("explain", "error", "-", stdin=text.encode(codec)).out
        == call("explain", "error", "-", stdin=LOAD_FAILED).out
    )


@pytest.mark.parametrize(("sample", "key"), [("preallocated", "preallocated"), ("buffer-not-set", "buffer_not_set")])
def test_what_a_command_prints_can_be_given_to_explain_error(call: Call, sample: str, key: str) -> None:
    result = call("run", sample)
    assert result.status == 1
    document = explained(call, "error", "-", stdin=(result.out + result.err).encode())
    assert document["key"] == key
    assert document["remedy"] in result.out + result.err


LONG_ROWS = b"""
ggmltool: 1
ggml: 0.20.2
backends: [ROCm0, CPU]
contexts:
  weights: {buft: ROCm0, usage: weights, tensors: {w: "f32[64, 8192]"}}
  inputs: {tensors: {x: "f32[64, 4]"}}
graphs: {main: {nodes: {s: "mul_mat(w, x)", t: "argsort(s, 1)", g: cont(t)}}}
"""

WHY = (
    "t is on CPU (3.best): ROCm0 does not support this ARGSORT (it sorts rows of up to 1024, and source 0 has 8192); "
    "CPU is the next that does."
)


@pytest.mark.parametrize("what", [("t",), ("split", "1")])
def test_the_first_sentence_is_the_reason_that_people_look_for(call: Call, what: tuple[str, ...]) -> None:
    """U17."""
    result = call("explain", *what, "-", stdin=LONG_ROWS, columns=200)
    opening = " ".join(line.strip() for line in result.out.split("\n\n")[1].splitlines())
    assert opening.startswith(WHY)


def test_the_reason_is_data_too(call: Call) -> None:
    """U17."""
    reason = explained(call, "t", "-", stdin=LONG_ROWS)["reason"]
    assert reason["text"] == WHY
    assert reason["why"] == "only_one"
    assert [(t["backend"], t["op"], t["lacks"]) for t in reason["turned_down"]] == [("ROCm0", "ARGSORT", False)]
    split = explained(call, "split", "1", "-", stdin=LONG_ROWS)
    assert split["why"] == "other_backend"
    assert split["why_first"] == [reason]


CHOICES = b"""
ggmltool: 1
backends: [{name: A, supports: {except: [sin]}}, {name: B, supports: {except: [cos]}}, CPU]
contexts:
  a: {buft: A, usage: weights, tensors: {wa: "f32[8, 8]"}}
  b: {buft: B, usage: weights, tensors: {wb: "f32[8, 8]"}}
  c: {buft: CPU, usage: weights, tensors: {wc: "f32[8, 8]"}}
  inputs: {tensors: {x: {type: f32, ne: [8, 4], flags: [input]}, free: "f32[8, 4]"}}
graphs:
  main:
    nodes:
      h: mul_mat(wa, x)
      sin: sin(h)
      k: mul_mat(wb, h)
      cos: cos(k)
      low: mul_mat(wc, k)
      next: relu(low)
      view: "view(low, ne=[8, 2], nb=[32], offset=0)"
      sum: add(next, free)
      mine: {op: neg, src: [sum], backend: B}
    expand: [sin, cos, view, mine]
"""


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("wa", "wa is on A (1.dst): its memory is in A."),
        ("x", "x is on CPU (1.inp): it is flagged input, and inputs go to the last backend."),
        ("h", "h is on A (1.wgt0): its weight wa is in A."),
        ("sin", "sin is on B (2.sup): A does not support SIN; B is the next that does."),
        ("cos", "cos is on CPU (2.sup): it goes with its neighbor low, expanding up; B does not support COS."),
        ("low", "low is on CPU (1.wgt0): its weight wc is in CPU."),
        ("view", "view is on CPU (4.vsrc): it is a view of low."),
        ("mine", "mine is on B (usr): the program assigned it."),
    ],
)
def test_every_cause_has_a_headline(call: Call, name: str, headline: str) -> None:
    """U17."""
    assert explained(call, name, "-", stdin=CHOICES)["reason"]["text"] == headline


@pytest.mark.parametrize(
    "graphs", [("small", "large", "outgrown"), ("one", "two", "allocator"), ("token", "prompt", "offload")]
)
@pytest.mark.parametrize("ggml", ["2025-03", "0.20.2"])
def test_the_log_of_a_reallocation_is_that_of_the_release(call: Call, ggml: str, graphs: tuple[str, ...]) -> None:
    """REVIEW B1: the allocator's own lines, in the words of the ggml that decides."""
    result = call("explain", "realloc", "--ggml", ggml, *graphs)
    log = explained(call, "realloc", "--ggml", ggml, *graphs)["log"]
    assert all(f"\n  {line}\n" in result.out for line in log)
    grown = [line for line in log if "reallocating" in line and "buffer from size" in line]
    function = "ggml_gallocr_reserve_n" if ggml == "2025-03" else "ggml_gallocr_reserve_n_impl"
    assert grown or graphs[0] == "token"
    assert all(line.startswith(f"{function}: ") for line in grown)
    assert ("GGML_SCHED_DEBUG_REALLOC" in result.out) == (ggml == "0.20.2")


def test_the_log_of_a_reallocation_in_march_2025_is_what_a_run_logs(call: Call) -> None:
    """REVIEW B1."""
    log = explained(call, "realloc", "--ggml", "2025-03", "small", "large", "outgrown")["log"]
    said = [line.removeprefix("ggml: ") for line in call("run", "-v", "--ggml", "2025-03", "outgrown").err.splitlines()]
    assert said[-len(log) - 1 : -1] == log or said[-len(log) :] == log


def test_a_packed_message_that_is_cut_off_is_refused(call: Call) -> None:
    result = call("explain", "error", "-", stdin=gzip.compress(b"ggml_backend_sched: x\n" * 3000)[:60])
    assert (result.status, result.out) == (2, "")
    assert result.err == "<stdin>: this gzip file is cut off\n"
