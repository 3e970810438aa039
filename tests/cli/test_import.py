"""`ggmltool import`, and `splits`, `plan` and `dot` on a log: what is shown, and what a log cannot tell."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from pathlib import Path

import pytest

import ggmltool
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden"
LOGS = Path(__file__).parents[1] / "sources" / "logs"
REAL = Path(__file__).parents[3] / "shared" / "logs"
CONTEXT_INIT = REAL / "gemma-3-270m-ngl9-context-init.log.gz"
PREFIXES, OLD, REALLOCS = (LOGS / f"{name}.log" for name in ("prefixes", "2024-01", "2025-03"))

PACKED = gzip.compress(b"## SPLIT #0: CPU # 0 inputs\n" * 100, mtime=0)

real = pytest.mark.skipif(not REAL.exists(), reason="needs the real logs")


@real
@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("summary", ["import"]),
        ("graph", ["import", "--graph", "n_tokens = 512"]),
        ("plan", ["plan", "--graph", "3"]),
        ("splits", ["splits", "--format", "table", "--graph", "3"]),
        ("by_op_backend", ["splits", "--by", "op,backend", "--graph", "3"]),
        ("bytes", ["splits", "--bytes", "--graph", "3"]),
    ],
)
def test_a_real_context_initialisation_is_as_accepted(call: Call, name: str, args: list[str], columns: int) -> None:
    Path("log.gz").write_bytes(CONTEXT_INIT.read_bytes())
    result = call(*args, "log.gz", columns=columns)
    assert (result.status, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= columns
    check_golden(GOLDEN / f"log_{name}_{columns}.txt", result.out)


@real
def test_which_ops_fell_back_to_the_cpu(call: Call) -> None:
    """The count that people make by hand: ops by backends, from a log."""
    document = json.loads(call("splits", "--by", "op,backend", "--json", "--graph", "8", CONTEXT_INIT).out)
    by_hand: dict[tuple[str, str], int] = {}
    graphs = gzip.decompress(CONTEXT_INIT.read_bytes()).decode().split("graph_reserve: ")
    for line in graphs[8].splitlines():
        if line.startswith("node #"):
            key = line[line.index("(") + 1 : line.index(")")].strip(), line[line.index("[") + 1 :][:5].strip()
            by_hand[key] = by_hand.get(key, 0) + 1
    assert {(c["op"], c["backend"]): c["nodes"] for c in document["counts"]} == by_hand
    assert by_hand["SET_ROWS", "CPU"] == 20


@pytest.mark.parametrize("sample", ["moe", "transformer", "pipeline", "gemma-3-270m-ngl9"])
@pytest.mark.parametrize("causes", ["--causes", "--no-causes"])
def test_a_print_is_read_back_and_printed_again(call: Call, sample: str, causes: str) -> None:
    printed = call("splits", causes, sample).out
    assert call("splits", "-", stdin=printed.encode("utf-8", "surrogateescape")).out == printed
    assert call("splits", "--debug", "1", "-", stdin=printed.encode()).out == call("splits", "--debug", "1", sample).out


@pytest.mark.parametrize("sample", ["moe", "transformer", "offload", "gemma-3-270m-ngl9"])
def test_a_log_shows_the_copies_and_counts_of_the_plan(call: Call, sample: str) -> None:
    log = call("splits", sample).out.encode()
    plan = ggmltool.load(next(SAMPLES.glob(f"{sample}.*"))).plan()
    views = {"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}
    assert json.loads(call("splits", "--by", "op", "--json", "-", stdin=log).out)["nodes"] == sum(
        node.op not in views for node in plan.nodes
    )
    true = json.loads(call("splits", "--bytes", "--json", sample).out)
    read = json.loads(call("splits", "--bytes", "--json", "-", stdin=log).out)
    assert read["nbytes"] <= true["nbytes"] <= read["nbytes_max"]
    assert [(i["split"], i["to"]) for i in read["inputs"]] == [(i["split"], i["to"]) for i in true["inputs"]]
    backends = {split.backend for split in plan.splits}
    for i, t in zip(read["inputs"], true["inputs"], strict=True):
        assert i["from"] == (t["from"] if len(backends) > 1 else "?")


def test_the_text_of_an_older_dialect_has_no_counts(call: Call) -> None:
    printed = call("splits", OLD).out
    assert "use=" not in printed
    assert "[CUDA0   1.wgt0]:" in printed


def test_a_drawing_of_a_log(call: Call) -> None:
    drawn = call("dot", OLD)
    assert drawn.status == 0
    assert drawn.out.count("subgraph cluster_") == 3
    assert "10–11 KiB" in drawn.out
    assert call("dot", "--style", "ggmltool", OLD).out == drawn.out
    assert "n2 [" in call("dot", "--split", "1", OLD).out
    assert "n5 [" not in call("dot", "--split", "1", OLD).out
    assert "a+mask" in call("dot", "--around", "a+mask", "--radius", "1", OLD).out


def test_other_views_need_a_log_with_nodes_or_causes(call: Call) -> None:
    level_1 = call("splits", "--debug", "1", "moe").out.encode()
    assert "GGML_SCHED_DEBUG=1" in call("splits", "--by", "op", "-", stdin=level_1).err
    assert "GGML_SCHED_DEBUG=1" in call("plan", "-", stdin=level_1).out
    without = call("splits", "--no-causes", "moe").out.encode()
    assert "no causes" in call("splits", "--by", "cause", "-", stdin=without).err
    assert call("splits", "--by", "cause", OLD).status == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "there is no graph in this log"),
        (b"hello\nworld\n", "GGML_SCHED_DEBUG=2"),
        (bytes(range(256)) * 300, "there is no graph in this log"),
        (b"\xfd7zXZ\x00rest", "an xz file"),
        (b"GGUF\x03\0\0\0", "this is a GGUF file, a model; `ggmltool capture` makes it a scenario"),
        (PACKED[:-9], "cut off"),
        (PACKED[:-8] + b"12345678", "damaged"),
        ((SAMPLES / "moe.yaml").read_bytes(), "this is a scenario"),
    ],
    ids=["empty", "text", "bytes", "xz", "gguf", "gz_cut", "gz_damaged", "scenario"],
)
def test_what_is_no_log_is_answered_with_one_message(call: Call, data: bytes, says: str) -> None:
    Path("x.log").write_bytes(data)
    for result in (call("import", "x.log"), call("import", "-", stdin=data)):
        assert (result.status, result.out) == (2, "")
        assert says in result.err
        assert len(result.err.splitlines()) <= 2


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be", "utf-8-sig"])
@pytest.mark.parametrize("args", [["import"], ["splits"], ["plan"], ["dot"]], ids=lambda args: args[0])
def test_a_log_that_powershell_wrote_is_read(call: Call, args: list[str], codec: str) -> None:
    """U35, R8: UTF-16 or UTF-32, with a byte order mark or without, also packed, from a file or standard input."""
    text = REALLOCS.read_text()
    Path("x.log").write_bytes(text.encode(codec))
    Path("x.log.gz").write_bytes(gzip.compress(text.encode(codec)))
    plain = call(*args, "-", stdin=text.encode()).out
    assert plain
    assert call(*args, "-", stdin=text.encode(codec)).out == plain
    for name in ("x.log", "x.log.gz"):
        assert call(*args, name).out == plain.replace("standard input", name)


@pytest.mark.parametrize("log", [PREFIXES, OLD, REALLOCS], ids=lambda path: path.stem)
@pytest.mark.parametrize("command", ["buffers", "graph", "run"])
def test_a_command_that_takes_no_log_says_which_do(call: Call, command: str, log: Path) -> None:
    result = call(command, log)
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        f"{log}: this is a log of GGML_SCHED_DEBUG, not a scenario; `ggmltool import` shows what is in it, and "
        "`splits`, `plan` and `dot` take it too\n"
    )


LOAD_LOGS = [*sorted(LOGS.glob("load-*.log")), LOGS / "abort.log", LOGS / "breakdown.log"]


@pytest.mark.parametrize("log", LOAD_LOGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("command", ["splits", "plan", "dot", "diff", "buffers"])
def test_a_load_log_in_place_of_a_scenario_is_told_what_it_is(call: Call, command: str, log: Path) -> None:
    for args, stdin in (([log], b""), (["-"], log.read_bytes())):
        result = call(command, *args, *(["moe"] if command == "diff" else []), stdin=stdin)
        assert (result.status, result.out) == (2, "")
        assert "this is a log without graphs, not a scenario; `ggmltool import` shows what is in it" in result.err
        assert "GGML_SCHED_DEBUG=2" in result.err
        assert "-v" in result.err
        assert len(result.err.splitlines()) == 1


def test_where_a_program_died_is_data_too(call: Call) -> None:
    """With what CUDA says in its further lines; the abort behind it is no second one."""
    document = json.loads(call("import", "--json", LOGS / "load-failed.log").out)
    assert document["aborts"] == [
        {
            "text": "CUDA error: out of memory, current device: 1, in function alloc at "
            "/app/ggml/src/ggml-cuda/ggml-cuda.cu:597",
            "line": 28,
            "last_line": 29,
        }
    ]
    failed = next(m for m in document["messages"] if "cudaMalloc" in m["text"])
    assert (failed["first_line"], failed["count"]) == (19, 1)
    explained = json.loads(call("explain", "error", "-", "--json", stdin=(LOGS / "load-failed.log").read_bytes()).out)
    assert (explained["key"], explained["line"], explained["values"]["device"]) == ("cuda_error", 28, "1")
    assert {m["key"] for m in explained["others"]} >= {
        "cuda_out_of_memory", "compute_buffers_failed", "retry_without_pipeline", "fit_failed", "graph_size",
        "pipeline_enabled", "not_preferred", "fit_report", "buffer_size",
    }  # fmt: skip


def test_the_memory_breakdown_has_its_host_row_and_its_signs(call: Call) -> None:
    """U10: `unaccounted 17592186036877` was a negative number; a line between the rows does no harm."""
    new, old = (
        {row["device"]: row for row in json.loads(call("import", "--json", LOGS / name).out)["memory_breakdown_mib"]}
        for name in ("breakdown.log", "breakdown-2025.log")
    )
    assert new["Vulkan0 (RX 7900 GRE (RADV))"]["unaccounted"] == -7539
    assert (new["Host"]["self"], new["Host"]["model"], new["Host"]["compute"]) == (779, 515, 264)
    assert (old["CPU (EPYC 7742)"]["total"], old["CPU (EPYC 7742)"]["self"]) == (515628, 72)
    assert old["CUDA0 (RTX 4090)"]["unaccounted"] == 451


def test_many_nodes_are_too_many_for_one_json(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.ask.log.record.MAX_NODES", 10)
    result = call("import", "--json", REALLOCS)
    assert (result.status, result.out) == (2, "")
    assert "--no-nodes" in result.err
    document = json.loads(call("import", "--json", "--no-nodes", REALLOCS).out)
    assert [graph["n_nodes"] for graph in document["graphs"]] == [4, 4, 1, 4, 1, 1, 4]
    assert json.loads(call("import", "--json", "--graph", "2", REALLOCS).out)["number"] == 2


def test_other_graphs_are_mentioned(call: Call) -> None:
    assert "--graph N" in call("splits", REALLOCS).err
    assert call("splits", "--graph", "1", REALLOCS).err == ""
    assert call("splits", REALLOCS, "-q").err == ""


def test_what_can_be_read_only_once_is_recognised_too(call: Call) -> None:
    if sys.platform == "win32":
        pytest.skip("no named pipes")
    for content, says in ((REALLOCS.read_bytes(), "graph 1"), ((SAMPLES / "moe.yaml").read_bytes(), "alloc main")):
        os.mkfifo("pipe")
        writer = threading.Thread(target=lambda data=content: Path("pipe").write_bytes(data))
        writer.start()
        result = call("plan", "pipe")
        writer.join()
        Path("pipe").unlink()
        assert result.status == 0
        assert says in result.out
    packed = gzip.compress((SAMPLES / "moe.yaml").read_bytes())
    assert "alloc main" in call("plan", "-", stdin=packed).out
    assert "graph 1" in call("plan", "-", stdin=gzip.compress(REALLOCS.read_bytes())).out


def test_a_log_whose_ends_of_lines_are_lost_says_so(call: Call) -> None:
    """Never silently short."""
    printed = call("splits", "pipeline").out
    Path("cut.log").write_text("".join(line[:100] + "\n" for line in printed.splitlines()))
    for command in ("import", "splits", "plan", "dot"):
        result = call(command, "cut.log", columns=200)
        assert result.status == 0
        assert "the lines of the log are cut or wrapped, so sums are too low" in result.out + result.err
    graph = json.loads(call("import", "--json", "--no-nodes", "cut.log").out)["graphs"][0]
    assert graph["lines_cut"] > 0
    wrapped = "".join(line[i : i + 80] + "\n" for line in printed.splitlines() for i in range(0, max(len(line), 1), 80))
    Path("wrapped.log").write_text(wrapped)
    assert "lines were cut at 80 characters; they were joined" in call("import", "wrapped.log").out
    assert call("splits", "wrapped.log").out == printed
