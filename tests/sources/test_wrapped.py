"""U13: logs whose lines were cut by a terminal or an editor are joined again, or it is said what is missing."""

from __future__ import annotations

import functools
import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.sources.sched_log.lines import Rejoined
from ggmltool.sources.sched_log.reader import read_all
from ggmltool.sources.sched_log.records import LogGraph, LogSummary
from ggmltool.sources.sched_log.stream import LogLines
from tests.sources.test_sched_log import records

LOGS = Path(__file__).parent / "logs"
SAMPLES = Path(__file__).parents[2] / "sample_graphs"
REAL = Path(__file__).parents[3] / "shared" / "logs" / "gemma-3-270m-ngl9-context-init.log.gz"


def read(data: bytes) -> tuple[list[LogGraph], LogSummary]:
    graphs: list[LogGraph] = []
    return graphs, read_all(LogLines(Rejoined(io.BytesIO(data)), "x.log"), graphs.append)


def told(graphs: list[LogGraph]) -> list[object]:
    """All of the graphs but where they stand."""
    return [
        [
            (
                split.id,
                split.backend,
                split.inputs,
                [(n.index, n.op, n.name, n.backend, n.cause, n.src) for n in split.nodes],
            )
            for split in graph.splits
        ]
        for graph in graphs
    ]


def folded(data: bytes, width: int, end: bytes = b"\n") -> bytes:
    """The log as `fold -w` writes it."""
    return b"".join(line[i : i + width] + end for line in data.splitlines() for i in range(0, max(len(line), 1), width))


def by_words(data: bytes, width: int) -> bytes:
    """The log as `fold -s` writes it: each piece ends with the space before the next word."""
    out = []
    for line in data.decode().splitlines():
        while len(line) > width:
            at = line.rfind(" ", 0, width) + 1
            if not line[:at].strip():
                at = width
            out.append(line[:at])
            line = line[at:]
        out.append(line)
    return "\n".join(out).encode() + b"\n"


@functools.cache
def printed(name: str, causes: bool) -> bytes:
    """What ggml prints for a sample, behind the prefix of llama.cpp's that a log has."""
    text = "".join(sched_debug(record, causes=causes) for record in records(next(SAMPLES.glob(f"{name}.*"))))
    return text.encode("utf-8", "surrogateescape")


def prefixed(data: bytes) -> bytes:
    """Each line behind a time stamp and a level."""
    return b"".join(b"0.00.%03d.%03d D " % divmod(i, 1000) + line + b"\n" for i, line in enumerate(data.splitlines()))


LAYOUTS = st.fixed_dictionaries({
    "name": st.sampled_from(["moe", "transformer", "pipeline", "missing-op", "offload"]),
    "causes": st.booleans(),
})  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(layout=LAYOUTS, width=st.integers(50, 240), stamped=st.booleans(), end=st.sampled_from([b"\n", b"\r\n"]))
def test_lines_cut_at_a_width_are_joined(layout: dict[str, Any], width: int, stamped: bool, end: bytes) -> None:
    """Whatever the width, with a prefix or without."""
    data = prefixed(printed(**layout)) if stamped else printed(**layout)
    whole, summary = read(data)
    graphs, joined = read(folded(data, width, end))
    longest = max(map(len, data.splitlines()))
    assert joined.wrapped_at == (width if longest > width else 0)
    assert told(graphs) == told(whole)
    assert not any(graph.inputs_missing or graph.lines_cut for graph in graphs)
    assert [graph.is_whole for graph in graphs] == [graph.is_whole for graph in whole]
    assert (joined.n_lines > summary.n_lines) == (longest > width)


@settings(deadline=None, max_examples=60)
@given(layout=LAYOUTS, width=st.integers(60, 240), stamped=st.booleans())
@example(layout={"name": "moe", "causes": False}, width=121, stamped=True)
def test_spaces_that_a_terminal_dropped_are_put_back_or_the_loss_is_said(
    layout: dict[str, Any], width: int, stamped: bool
) -> None:
    """Never silently short: what is read is all, or a graph says that something is missing."""
    data = prefixed(printed(**layout)) if stamped else printed(**layout)
    cut = b"".join(line.rstrip() + b"\n" for line in folded(data, width).splitlines())
    graphs, _ = read(cut)
    missing = any(graph.inputs_missing or graph.lines_cut or not graph.is_whole for graph in graphs)
    assert missing or told(graphs) == told(read(data)[0])


@pytest.mark.parametrize("name", ["moe", "transformer", "pipeline"])
@pytest.mark.parametrize("width", [80, 100, 160])
def test_lines_cut_between_words_are_joined(name: str, width: int) -> None:
    data = prefixed(printed(name, True))
    graphs, joined = read(by_words(data, width))
    assert joined.wrapped_at
    assert told(graphs) == told(read(data)[0])
    assert not any(graph.inputs_missing or graph.lines_cut for graph in graphs)


@pytest.mark.parametrize("name", ["moe", "transformer", "pipeline"])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_is_lost_is_counted(name: str, width: int) -> None:
    """Lines whose ends are gone (`cut -c1-100`) are not joined to anything; what is missing is said."""
    data = printed(name, False)
    whole = read(data)[0]
    graphs, summary = read(b"".join(line[:width] + b"\n" for line in data.splitlines()))
    assert summary.wrapped_at == 0
    sources = sum(len(node.src) for graph in whole for node in graph.nodes)
    left = sum(len(node.src) for graph in graphs for node in graph.nodes)
    assert left < sources
    assert sum(graph.lines_cut for graph in graphs) >= (sources - left) // 10
    inputs = sum(split.n_inputs - len(split.inputs) for graph in graphs for split in graph.splits)
    assert sum(graph.inputs_missing for graph in graphs) == inputs


@pytest.mark.parametrize("name", ["2024-01", "2025-03", "prefixes", "load-failed", "breakdown"])
def test_a_log_that_nobody_cut_passes_as_it_is(name: str) -> None:
    data = (LOGS / f"{name}.log").read_bytes()
    stream = Rejoined(io.BytesIO(data))
    assert stream.read() == data
    assert stream.width == 0
    if name != "prefixes":
        graphs, _ = read(data) if b"## SPLIT" in data else ([], None)
        assert not any(graph.inputs_missing or graph.lines_cut for graph in graphs)


@pytest.mark.skipif(not REAL.exists(), reason="needs the real logs")
@pytest.mark.parametrize("width", [80, 100, 137])
def test_a_real_log_cut_by_a_terminal_tells_the_same(width: int) -> None:
    """39 inputs and 8.3–12.3 MiB were read of 28.8–38.9 MiB."""
    data = gzip.decompress(REAL.read_bytes())
    whole, summary = read(data)
    graphs, joined = read(folded(data, width))
    assert told(graphs) == told(whole)
    assert [graph.copied for graph in joined.graphs] == [graph.copied for graph in summary.graphs]
    assert joined.buffers == summary.buffers


@given(parts=st.lists(st.binary(max_size=60), max_size=20), n=st.integers(1, 100))
def test_a_stream_is_read_in_pieces_of_any_size(parts: list[bytes], n: int) -> None:
    data = folded(printed("moe", True), 70) + b"\n".join(parts)
    whole, pieces = Rejoined(io.BytesIO(data)).read(), []
    stream = Rejoined(io.BytesIO(data))
    while piece := stream.read(max(n * 1000, 4096)):
        pieces.append(piece)
    assert b"".join(pieces) == whole
    assert whole.count(b"\n") == data.count(b"\n")
