"""Logs of GGML_SCHED_DEBUG: every dialect, whatever stands before or within lines, read back to what was printed."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggmltool
from ggmltool.ask.splits.sched_debug import fmt_size, sched_debug
from ggmltool.ggml.plan import DebugNode, DebugSource, DebugSplit, SchedDebug
from ggmltool.scenario.errors import ScenarioError
from ggmltool.sources.sched_log import scan
from ggmltool.sources.sched_log import stream as stream_module
from ggmltool.sources.sched_log.lines import bounds
from ggmltool.sources.sched_log.plan import Backends, listed
from ggmltool.sources.sched_log.reader import read_all, read_graph, read_summary
from ggmltool.sources.sched_log.records import ByteRange, Dialect, LogGraph, LogSummary
from ggmltool.sources.sched_log.stream import LONGEST, LogLines, RecordedStream, Replayed, is_log
from tests.conformance.fuzz import scenario

LOGS = Path(__file__).parent / "logs"
SHARED = Path(__file__).parents[3] / "shared"
OCTOBER = LOGS / "b11549.log.gz"
"""llama.cpp b11549 (ggml 0.26) with two GPUs, pipelined, while it makes a context."""
SHARED_LOGS = sorted((SHARED / "logs").glob("*.log.gz"))
REAL = [OCTOBER, *SHARED_LOGS]
NODE = b"node #  0 (       ADD):                    a (   2K) [  CPU         ] use=1,c=1:\n"
HEADER = b"\n## SPLIT #0: CPU # 0 inputs\n"


def lines(data: bytes) -> LogLines:
    return LogLines(io.BytesIO(data), "x.log")


def graphs(data: bytes) -> list[LogGraph]:
    out: list[LogGraph] = []
    read_all(lines(data), out.append)
    return out


def summary(data: bytes) -> LogSummary:
    return read_summary(lines(data))


def n_graphs(data: bytes) -> int:
    """The number of graphs, 0 also for what is no log."""
    try:
        return len(summary(data).graphs)
    except ScenarioError:
        return 0


def cut(text: str, width: int) -> str:
    return text.encode("utf-8", "surrogateescape")[:width].decode("utf-8", "surrogateescape").strip()


def between(nbytes: ByteRange, true: int) -> bool:
    return nbytes.low <= true <= nbytes.high


def check(graph: LogGraph, printed: SchedDebug, causes: bool = True) -> None:
    """The graph is the one that was printed, as far as a log has it."""
    splits = [split for split in printed if isinstance(split, DebugSplit)]
    assert [(s.id, s.backend, s.n_inputs) for s in graph.splits] == [(s.id, s.backend, len(s.inputs)) for s in splits]
    for split, true in zip(graph.splits, splits, strict=True):
        assert [t.name for t in split.inputs] == [name for name, _ in true.inputs]
        assert all(between(t.nbytes, n) for t, (_, n) in zip(split.inputs, true.inputs, strict=True))
        for node, n in zip(split.nodes, true.nodes, strict=True):
            assert (node.index, node.op, node.name) == (n.index, cut(n.op_desc, 10), cut(n.name, 20))
            assert (node.backend, node.cause) == (n.backend, (n.cause or None) if causes else None)
            assert (node.use_count, node.compute) == (n.use_count, n.compute)
            assert between(node.nbytes, n.nbytes)
            assert [(s.name, s.cause) for s in node.src] == [
                (cut(s.name, 20), (s.cause or None) if causes else None) for s in n.sources
            ]
            assert all(between(s.nbytes, t.nbytes) for s, t in zip(node.src, n.sources, strict=True))
            for source, s in zip(node.src, n.sources, strict=True):
                assert source.backend in (s.backend, cut(s.backend or "NULL", 5))


def records(source: Any) -> list[SchedDebug]:
    """What a scenario prints."""
    run = ggmltool.load(source)
    started = run.start(debug=True)
    list(started.run(run.steps()))
    return [record for record in started.debug_records if any(isinstance(split, DebugSplit) for split in record)]


@pytest.mark.parametrize("causes", [True, False])
@pytest.mark.parametrize("first", range(0, 120, 40))
def test_what_random_scenarios_print_is_read_back(first: int, causes: bool) -> None:
    for seed in range(first, first + 40):
        printed = records(scenario(seed, short_forms=False))
        text = "".join(sched_debug(record, causes=causes) for record in printed)
        read = graphs(text.encode("utf-8", "surrogateescape")) if text else []
        assert len(read) == len(printed), seed
        for graph, record in zip(read, printed, strict=True):
            check(graph, record, causes)


NAME = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"], exclude_characters="[]"), max_size=24)
BACKEND = st.sampled_from(["CPU", "CUDA0", "CUDA1", "BLAS", "Metal", "MTL0", "Vulkan0", "RPC[10.0.0.1:50052]"])
CAUSE = st.sampled_from(["", "1.dst", "1.wgt0", "2.sup", "3.best", "usr"])
NBYTES = st.one_of(st.integers(0, 4096), st.integers(0, 1 << 34))


@st.composite
def debug_graphs(draw: st.DrawFn) -> SchedDebug:
    """Splits with whatever names and sizes."""
    index = 0
    splits = []
    for id in range(draw(st.integers(1, 4))):
        nodes = []
        backend = draw(BACKEND)
        for _ in range(draw(st.integers(0, 4))):
            index += draw(st.integers(1, 400))
            nodes.append(
                DebugNode(
                    index,
                    draw(st.sampled_from(["MUL_MAT", "FLASH_ATTN_EXT", "ADD", "SWIGLU_OAI"])),
                    draw(NAME).strip(),
                    draw(NBYTES),
                    backend,
                    draw(CAUSE),
                    draw(st.integers(0, 99)),
                    draw(st.booleans()),
                    tuple(
                        DebugSource(draw(NAME).strip(), draw(NBYTES), draw(st.none() | BACKEND), draw(CAUSE))
                        for _ in range(draw(st.integers(0, 4)))
                    ),
                )
            )
        inputs = tuple((draw(NAME).strip(), draw(NBYTES)) for _ in range(draw(st.integers(0, 3))))
        splits.append(DebugSplit(id, backend, inputs, tuple(nodes)))
    return tuple(splits)


@given(debug_graphs())
def test_any_names_and_sizes_are_read_back(printed: SchedDebug) -> None:
    (graph,) = graphs(sched_debug(printed).encode("utf-8", "surrogateescape"))
    check(graph, printed)


def test_numbers_of_m_beyond_five_columns_lose_their_unit() -> None:
    assert fmt_size(20480 << 20)[:5] == "20480"
    assert between(bounds(b"20480", b""), 20480 << 20)
    assert bounds(b"99", b"M") == ByteRange(99 << 20, (100 << 20) - 1)


PREFIXES: dict[str, Callable[[bytes], bytes]] = {
    "syslog": lambda line: b"Nov 21 06:28:10 host llama-server[123]: " + line,
    "docker": lambda line: b"llama-1  | " + line,
    "time": lambda line: b"2026-11-21T06:28:10.123Z " + line,
    "level": lambda line: b"0.00.123.456 D " + line,
    "crlf": lambda line: line + b"\r",
    "colours": lambda line: b"\x1b[33mD \x1b[0m" + line + b"\x1b[0m",
    "json": lambda line: b'{"log":"' + line + b'\\n","stream":"stderr"}',
}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_a_prefix_changes_nothing(path: Path, prefix: str) -> None:
    data = gzip.decompress(path.read_bytes())
    with_prefix = b"".join(PREFIXES[prefix](line) + b"\n" for line in data.split(b"\n")[:-1])
    assert summary(with_prefix) == summary(data)
    assert graphs(with_prefix) == graphs(data)


def pieces(printed: SchedDebug, before: bytes) -> bytes:
    """The print as it looks where every call of ggml's logger gets a prefix of its own, also within lines."""
    text = sched_debug(printed).encode("utf-8", "surrogateescape")
    out = []
    for line in text.split(b"\n")[:-1]:
        cuts = [0]
        if line.startswith(b"##") and b"inputs: " in line:
            at = line.index(b"inputs: ") + 6
            cuts += [at, *(i for i in range(at, len(line)) if line[i - 1 : i + 1] == b" [")]
        elif line.startswith(b"node"):
            at = line.index(b"]") + line[line.index(b"]") :].index(b":") + 1
            cuts += range(at, len(line), 46)
        out.append(before.join(line[a:b] for a, b in pairwise([*cuts, len(line)])) + before)
    return b"\n".join(before + line for line in out) + b"\n"


@pytest.mark.parametrize("before", [b"D ", b"0.00.123.456 D ", b"\x1b[34m0.00.123.456\x1b[0m \x1b[33mD \x1b[0m"])
def test_a_prefix_within_lines_changes_nothing(before: bytes) -> None:
    for seed in range(30):
        for record in records(scenario(seed, short_forms=False)):
            (graph,) = graphs(pieces(record, before))
            check(graph, record)


def collapsed(data: bytes) -> bytes:
    return b"\n".join(b" ".join(line.split()) for line in data.split(b"\n"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_a_log_whose_spaces_somebody_collapsed_is_read_all_the_same(path: Path) -> None:
    data = gzip.decompress(path.read_bytes())
    read, true = graphs(collapsed(data)), graphs(data)
    assert [g.splits for g in read] == [g.splits for g in true]


def golden_results(version: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((SHARED / "golden" / version).glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        for result in document["results"]:
            if result["ok"] and result.get("text"):
                yield path.name, result


@pytest.mark.parametrize("version", ["2024-01", "2025-03"])
@pytest.mark.skipif(not (SHARED / "golden").exists(), reason="needs the goldens of old versions")
def test_what_old_versions_printed_is_read_as_what_they_decided(version: str) -> None:
    n = 0
    for name, result in golden_results(version):
        title = b"PASS 4 ASSIGNMENTS\n" if version == "2024-01" else b""
        (graph,) = graphs(title + result["text"].encode("utf-8", "surrogateescape"))
        assert graph.dialect is (Dialect.Y2024 if title else Dialect.Y2025 if graph.nodes else None), name
        assert [(s.id, s.backend, s.n_inputs) for s in graph.splits] == [
            (s["id"], s["backend"], len(s["inputs"])) for s in result["splits"] if s["i_start"] < s["i_end"]
        ], name
        true = {node["index"]: node for node in result["nodes"]}
        for split in graph.splits:
            for node in split.nodes:
                t = true.pop(node.index)
                assert (node.name, node.op) == (cut(t["name"], 20), cut(t["op"], 10)), name
                assert (node.backend, node.cause) == (t["backend"], t["cause"] or None), name
                assert len(node.src) == sum(s is not None for s in t["src"]), name
                n += 1
        assert all(t["op"] in ("NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE") for t in true.values()), name
    assert n > 1000


@pytest.mark.skipif(not (SHARED / "golden").exists(), reason="needs the goldens of old versions")
def test_prints_after_single_passes_are_skipped() -> None:
    document = json.loads(gzip.decompress(next((SHARED / "golden/2024-01").glob("hand_09_*")).read_bytes()))
    texts = [result["texts"] for result in document["results"]]
    data = "".join(text[key] for text in texts for key in "1234").encode()
    whole = graphs(data)
    alone = graphs(texts[0]["4"].encode())[0]
    assert [[n.name for n in s.nodes] for s in whole[0].splits] == [[n.name for n in s.nodes] for s in alone.splits]
    assert summary(data).passes == 3 * len(texts)
    assert {graph.dialect for graph in whole} == {Dialect.Y2024}


def test_a_log_with_everything_between_the_graphs() -> None:
    log = summary((LOGS / "prefixes.log").read_bytes())
    assert [(g.title, g.n_nodes, g.is_whole) for g in log.graphs] == [
        ("n_tokens = 512, n_seqs = 1, n_outputs = 512", 2, True), ("", 1, True), ("", 2, False),
    ]  # fmt: skip
    assert log.backends == ("CUDA0", "Vulkan0", "Vulkan1", "CPU")
    assert log.graphs[0].nodes_on == (("Vulkan0", 1), ("Vulkan1", 1))
    (grown,) = log.reallocs
    assert (grown.buft, grown.count, grown.first, grown.last) == ("Vulkan0", 2, 0.1, 15.5)
    assert [m.text for m in log.messages] == [
        "ggml_gallocr_needs_realloc: src 0 (\x1b]0;x\x07y) of node z is not valid"
    ]
    assert [(b.kind, b.buft, b.sizes) for b in log.buffers] == [("model", "CPU_Mapped", (1024.5,))]
    assert [(b.device, b.self, b.compute, b.unaccounted) for b in log.breakdown] == [
        ("CUDA0 (RTX 3090)", 15946, 170, -15681),
        ("Host", 804, 122, None),
    ]
    assert log.breakdowns == 2


@pytest.mark.skipif(not SHARED_LOGS, reason="the logs of real programs are not here")
def test_a_context_initialisation_has_ten_graphs() -> None:
    (path,) = [p for p in REAL if "context-init" in p.name]
    log = summary(gzip.decompress(path.read_bytes()))
    assert len(log.graphs) == 10
    assert [g.title.split(",")[0].split()[-1] for g in log.graphs] == [*"12345678"] or [
        int(g.title.split(",")[0].split()[-1]) for g in log.graphs
    ] == [1, 1, 16, 1, 1, 1, 1, 512, 1, 512]
    assert [g.n_splits for g in log.graphs][-2:] == [2, 152]
    assert len({g.fingerprint for g in log.graphs}) == 3
    assert ("compute", "CUDA0", 513.25) in [(b.kind, b.buft, b.last) for b in log.buffers]


def test_a_log_that_begins_within_a_graph() -> None:
    data = NODE + NODE.replace(b"#  0", b"#  1") + b"## SPLIT #3: CPU # 0 inputs\n" + NODE.replace(b"#  0", b"#  2")
    (graph,) = graphs(data + HEADER + NODE)[:1]
    assert [(s.id, len(s.nodes)) for s in graph.splits] == [(2, 2), (3, 1)]
    assert not graph.is_whole
    assert graph.has_headers


def test_nodes_alone_are_runs_on_one_backend() -> None:
    on_gpu = NODE.replace(b"  CPU", b"CUDA0").replace(b"#  0", b"#  1")
    read = graphs(NODE + on_gpu + NODE.replace(b"#  0", b"#  2") + NODE)
    assert [[(s.backend, len(s.nodes)) for s in g.splits] for g in read] == [
        [("CPU", 1), ("CUDA0", 1), ("CPU", 1)],
        [("CPU", 1)],
    ]
    assert not any(g.has_headers for g in read)


def test_headers_alone_are_level_1() -> None:
    data = b"## SPLIT #0: CPU # 0 inputs\n## SPLIT #1: CUDA0 # 1 inputs: [embd ( 512K)] \n"
    (graph,) = graphs(data * 1)
    assert (graph.level, len(graph.splits), graph.nodes) == (1, 2, [])
    assert len(graphs(data * 3)) == 3


def test_a_lost_header_makes_the_graph_incomplete_not_two() -> None:
    data = b"## SPLIT #0: CPU # 0 inputs\n" + NODE + b"## SPLIT #2: CPU # 0 inputs\n"
    (graph,) = graphs(data)
    assert not graph.is_whole


def test_the_last_line_may_be_cut_off() -> None:
    data = HEADER + NODE + NODE.replace(b"#  0", b"#  1")
    for end in range(len(HEADER), len(data)):
        (graph,) = graphs(data[:end])
        assert len(graph.nodes) <= 2
    (graph,) = graphs(data[:-1])
    assert not graph.is_whole


def test_names_of_backends_are_whole_where_headers_have_them() -> None:
    backends = Backends()
    assert backends.whole("Vulka") == "Vulka"
    backends.add("Vulkan0")
    assert backends.whole("Vulka") == "Vulkan0"
    backends.add("Vulkan1")
    assert backends.whole("Vulka") == "Vulka"
    assert backends.whole("Vulka", "Vulkan1") == "Vulkan1"
    assert backends.whole("NULL") is None
    assert listed(["CPU", "BLAS", "CUDA10", "CUDA2", "SYCL0"]) == ["CUDA2", "CUDA10", "SYCL0", "BLAS", "CPU"]


@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=20),
    st.integers(1, 40),
    st.booleans(),
)
def test_lines_do_not_depend_on_where_chunks_end(parts: list[bytes], chunk: int, ended: bool) -> None:
    data = b"\n".join(parts) + (b"\n" if ended else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "CHUNK", chunk)
        read = [line for _, block in lines(data).blocks() for line in block]
    true = data.split(b"\n")
    assert read == (true if true[-1] else true[:-1])


@given(st.lists(st.text("xm \n", max_size=40), max_size=30), st.integers(1, 40))
def test_lines_without_a_mark_are_counted(parts: list[str], chunk: int) -> None:
    data = "".join(parts).encode()
    true = data.split(b"\n") if data and not data.endswith(b"\n") else data.split(b"\n")[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "CHUNK", chunk)
        n = 0
        for skipped, block in lines(data).blocks([b"xm"]):
            assert not any(b"xm" in line for line in true[n : n + skipped])
            n += skipped
            assert block == true[n : n + len(block)]
            n += len(block)
    assert n == len(true)


def test_a_log_of_october_is_read() -> None:
    data = gzip.decompress(OCTOBER.read_bytes())
    log = summary(data)
    assert [graph.title for graph in log.graphs][:2] == ["n_tokens = 1, n_seqs = 1, n_outputs = 1"] * 2
    assert {(graph.dialect, graph.is_whole, graph.lines_cut) for graph in log.graphs} == {(Dialect.Y2026, True, 0)}
    last, *_ = read_graph(lines(data), str(len(log.graphs)))
    assert [(split.backend, split.n_inputs, len(split.nodes)) for split in last.splits] == [
        ("CPU", 0, 2), ("CUDA0", 8, 78), ("CUDA1", 6, 43)
    ]  # fmt: skip
    assert [(node.name, node.compute) for node in last.nodes[:3]] == [
        ("embd", True),
        ("node_1", False),
        ("node_2", False),
    ]


SAYS_OF_GRAPHS = (
    "sched_reserve: graph (pp bs=64, tg bs=1): nodes = 195 / 193, splits = 3 / 2, input objects = 4, input tensors = 9",
    "sched_graph_realloc: graph reallocation: nodes = 195 (changed = 0), splits = 3, n_same = 1, n_diff = 0",
    "llama_perf_context_print:   graph reallocs =          1    /     0        (same size) / (changed size)",
)


def test_what_llama_cpp_says_of_its_graphs_since_october_is_kept() -> None:
    messages = summary("\n".join([*SAYS_OF_GRAPHS, ""]).encode() + HEADER + NODE).messages
    assert [message.text for message in messages] == [" ".join(line.split()) for line in SAYS_OF_GRAPHS]


@pytest.mark.parametrize("path", [*REAL, *sorted(LOGS.glob("*.log"))], ids=lambda path: path.name)
def test_what_is_told_does_not_depend_on_where_chunks_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    whole = summary(data)
    for chunk in (50, 333, 5000):
        monkeypatch.setattr(stream_module, "CHUNK", chunk)
        assert summary(data) == whole


@pytest.mark.parametrize("chunk", [7, 64, 100])
def test_long_lines_are_cut_and_nothing_else_is_lost(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "CHUNK", chunk)
    monkeypatch.setattr(stream_module, "LONGEST", 30)
    rng = random.Random(1)
    true = [bytes([97 + i % 26]) * rng.choice([0, 5, 29, 30, 31, 60, 200]) for i in range(300)]
    there = lines(b"\n".join(true) + b"\n")
    read = [line for _, block in there.blocks() for line in block]
    assert [line[:30] for line in true] == [line[:30] for line in read]
    assert max(map(len, read)) <= 30
    assert there.long == sum(len(line) > 30 for line in true)
    assert LONGEST > 30


def test_a_graph_is_chosen_by_number_or_title_and_reading_stops_there() -> None:
    title = b"graph_reserve: reserving a graph for ubatch with n_tokens =  %d, n_seqs =  1, n_outputs =  1\n"
    data = b"".join(title % n + HEADER + NODE for n in (1, 16, 512))
    assert read_graph(lines(data))[0].number == 1
    assert read_graph(lines(data), "3")[0].title.startswith("n_tokens = 512")
    assert read_graph(lines(data), "n_tokens =  16")[0].number == 2
    assert read_graph(lines(data), "2")[1]
    assert not read_graph(lines(data), "3")[1]

    class Endless:
        parts = iter([data, data, *[b"x" * 100] * 3])

        def read(self, n: int, /) -> bytes:
            return next(self.parts)

    graph, more = read_graph(LogLines(Endless(), "x"), "2")
    assert (graph.number, more) == (2, True)
    for choice, says in (("4", "its graphs are 1 to 3"), ("0", "from 1"), ("n_tokens = 7", "its titles are")):
        with pytest.raises(ScenarioError, match=says):
            read_graph(lines(data), choice)
    with pytest.raises(ScenarioError, match="there is no graph in this log"):
        read_graph(lines(b"hello\n"))


def _letters(i: int) -> bytes:
    return bytes(97 + i // 26**k % 26 for k in range(3))


def test_the_layers_of_a_message_are_counted_as_one() -> None:
    lines = b"".join(b"ggml_gallocr_needs_realloc: src %d (blk.%d.x) of node ffn_out-%d is not valid\n" % (i % 2, i, i)
                     for i in range(8))  # fmt: skip
    first, second = summary(HEADER + lines).messages
    assert first.text == "ggml_gallocr_needs_realloc: src 0 (blk.*.x) of node ffn_out-* is not valid"
    assert first.example == "ggml_gallocr_needs_realloc: src 0 (blk.0.x) of node ffn_out-0 is not valid"
    assert (first.count, second.count) == (4, 4)
    (unchanged,) = summary(HEADER + b"ggml_backend_sched_x: CUDA0 (backend_ids_changed = 1) 14.00\n").messages
    assert unchanged.text == unchanged.example


def test_messages_are_grouped_and_bounded() -> None:
    again = b"ggml_gallocr_needs_realloc: graph has different number of nodes\n"
    others = b"".join(b"ggml_gallocr_needs_realloc: node %s is not valid\n" % _letters(i) for i in range(1500))
    log = summary(HEADER + again * 3 + others)
    assert (log.messages[0].count, log.messages[0].first_line, log.messages[0].last_line) == (3, 3, 5)
    assert len(log.messages) == 1000
    assert log.messages_left_out == 1500 - 999


def test_graphs_beyond_a_bound_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.sources.sched_log.scan.MAX_GRAPHS", 10)
    log = summary(HEADER * 25)
    assert (len(log.graphs), log.graphs_left_out) == (10, 15)
    monkeypatch.setattr("ggmltool.sources.sched_log.scan.MAX_LINES", 5)
    with pytest.raises(ScenarioError, match="more than 5 lines"):
        read_graph(lines(HEADER + NODE * 10))


@given(st.binary(max_size=300))
def test_junk_is_no_error(data: bytes) -> None:
    assert summary(HEADER + data).graphs
    assert not n_graphs(data) or b"SPLIT" in data or b"node" in data


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", False),
        (b"hello\n", False),
        (HEADER + NODE, True),
        (NODE, True),
        (b"x" * 200_000 + HEADER, True),
        (b"# ## SPLIT #0: CPU # 0 inputs\nggmltool: 1\n", False),
        (b'{"ggmltool": 1, "name": "## SPLIT #0"}', False),
        (b'{"log":"## SPLIT #0: CPU # 0 inputs"}', True),
        (bytes(range(256)) * 10, False),
        (gzip.compress(HEADER + NODE, mtime=0), True),
        (gzip.compress(b"ggmltool: 1\n", mtime=0), False),
        (gzip.compress(HEADER * 10_000, mtime=0)[:40], False),
    ],
    ids=["empty", "text", "log", "node", "late", "comment", "name", "docker", "bytes", "gz", "gz_yaml", "gz_cut"],
)
def test_a_log_is_known_by_what_is_in_it(data: bytes, answer: bool) -> None:
    recorded = RecordedStream(io.BytesIO(data))
    assert is_log(recorded) is answer
    assert recorded.again().read(-1) == data


@given(st.binary(max_size=50), st.binary(max_size=50), st.lists(st.integers(-1, 20), max_size=8))
def test_a_replayed_stream_is_the_whole_stream(head: bytes, rest: bytes, sizes: list[int]) -> None:
    replayed, plain = Replayed(head, io.BytesIO(rest)), io.BytesIO(head + rest)
    for n in [*sizes, -1]:
        assert replayed.read(n) == plain.read(n)


def _repeated(n: int) -> bytes:
    """A log of `n` graphs, every other one the same, with a time before every line."""
    out = b""
    for i in range(n):
        node = NODE.replace(b"ADD", b"SUB") if i % 2 else NODE
        out += b"".join(b"0.00.%03d D %s\n" % (i, line) for line in (HEADER + node * 3).splitlines())
    return out


def test_a_line_that_comes_again_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte of a program's log is a few thousand lines, again and again."""
    read: list[bytes] = []
    original = scan.node_match

    def counted(raw: bytes) -> Any:
        read.append(raw)
        return original(raw)

    monkeypatch.setattr(scan, "node_match", counted)
    found = summary(_repeated(100))
    assert len(read) == 2
    assert [g.n_nodes for g in found.graphs] == [3] * 100
    assert len({g.fingerprint for g in found.graphs}) == 2
    assert found.tally == (("ADD", "CPU", 150), ("SUB", "CPU", 150))


def test_what_is_remembered_of_a_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, and in length; nothing is lost beyond the bounds."""
    monkeypatch.setattr(scan, "MAX_KNOWN", 1)
    monkeypatch.setattr(scan, "_MANY", 2)
    source = b" " + b"a".rjust(20) + b" (   2K) [  CPU         ]"
    data = _repeated(4) + HEADER + (NODE[:-1] + source * 40 + b"\n") * 5
    scanner = scan.Scanner(lines(data))
    scanner.run()
    assert (len(scanner.nodes), len(scanner.headers)) == (1, 1)
    found = scanner.summary()
    assert [g.n_nodes for g in found.graphs] == [3, 3, 3, 3, 5]
    assert found.graphs[0].fingerprint == found.graphs[2].fingerprint != found.graphs[1].fingerprint
    assert all(len(raw) <= scan._LONG for raw in scanner.nodes)
