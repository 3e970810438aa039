"""One pass over a log: where graphs begin and end, and what each has in it, without keeping their nodes.

Of the graphs that somebody wants whole, the lines are kept (`assemble` reads them).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from ggmltool.scenario.errors import ScenarioError
from ggmltool.sources.sched_log.backends import Backends, listed
from ggmltool.sources.sched_log.lines import (
    HEADER_MARK,
    NODE_MARK,
    Header,
    is_pass_title,
    node_match,
    read_header,
    read_node,
    text,
)
from ggmltool.sources.sched_log.other import OtherLines, title_of
from ggmltool.sources.sched_log.records import Bounds, Dialect, GraphSummary, LogSummary
from ggmltool.sources.sched_log.stream import Lines

MAX_GRAPHS = 50_000
"""Graphs of a log that are listed."""

MAX_LINES = 500_000
"""Lines of a graph that can be kept."""

MAX_OPS = 2000
"""Different pairs of op and backend that are counted."""


class RawLine(NamedTuple):
    """A header or a node, for whoever wants the graph whole: its number, its bytes from the mark on."""

    number: int
    raw: bytes


class OpenGraph:
    """A graph whose lines are being read."""

    __slots__ = (
        "backend", "copied_high", "copied_low", "crc", "dialect", "has_headers", "kept", "last_index", "last_line",
        "last_split", "line", "n_inputs", "n_nodes", "n_splits", "number", "tally", "title", "whole",
    )  # fmt: skip

    def __init__(self, number: int, line: int, title: str, whole: bool) -> None:
        self.number = number
        self.line = self.last_line = line
        self.title = title
        self.whole = whole
        self.has_headers = True
        self.dialect: Dialect | None = None
        self.n_nodes = self.n_splits = self.n_inputs = 0
        self.copied_low = self.copied_high = 0
        self.last_index = self.last_split = -1
        self.backend = ""
        self.tally: dict[tuple[bytes, bytes, str], int] = {}
        self.crc = 0
        self.kept: list[RawLine] | None = None

    def keep(self, number: int, raw: bytes, source: str) -> None:
        """Remember a line. Raises ScenarioError where there are too many."""
        if self.kept is not None:
            self.kept.append(RawLine(number, raw))
            if len(self.kept) > MAX_LINES:
                raise ScenarioError(f"graph {self.number} has more than {MAX_LINES} lines", source)


Wanted = Callable[[int, str], bool]
"""Whether a graph of this number and title is to be kept."""

Finished = Callable[[OpenGraph, GraphSummary], bool]
"""Told of every graph that ends; whether to go on reading."""


class Scanner:
    """Reads a log. `wanted` says of which graphs the lines are kept; `finished` is told of every graph that ends.

    `stopped` is set where `finished` wanted no more, `interrupted` where another graph had begun then.
    """

    def __init__(self, lines: Lines, wanted: Wanted | None = None, finished: Finished | None = None) -> None:
        self.lines = lines
        self.wanted = wanted
        self.finished = finished
        self.other = OtherLines()
        self.backends = Backends()
        self.graphs: list[GraphSummary] = []
        self.n_graphs = 0
        self.tally: Counter[tuple[str, str]] = Counter()
        self.graph: OpenGraph | None = None
        self.title = ""
        self.in_pass = False
        self.passes = 0
        self.n_lines = 0
        self.other_lines = 0
        self.stopped = self.interrupted = False

    def run(self) -> None:
        """Read all lines, or as many as `finished` wants. Raises ScenarioError."""
        for block in self.lines.blocks():
            first = self.n_lines + 1
            self.n_lines += len(block)
            self._block(block, first)
            if self.stopped:
                return
        if self.graph is not None and not self.lines.ended and self.graph.last_line == self.n_lines:
            self.graph.whole = False
        self._end()

    def _block(self, block: list[bytes], number: int) -> None:
        """One block of lines. Node lines are nearly all there is, so theirs is the short way."""
        for at, line in enumerate(block, number):
            mark = line.find(NODE_MARK)
            if mark >= 0:
                graph = self.graph
                match = node_match(line, mark)
                if match is not None and graph is not None and not self.in_pass and graph.has_headers:
                    op, cut = match.group(2, 6)
                    key = op, cut, graph.backend
                    tally = graph.tally
                    tally[key] = tally.get(key, 0) + 1
                    graph.crc = crc32(match[0], graph.crc)
                    graph.last_line = at
                    if graph.kept is not None:
                        graph.keep(at, line[mark:], self.lines.source)
                    if graph.n_nodes == 0:
                        graph.dialect = graph.dialect or (Dialect.Y2025 if match[8] is None else Dialect.Y2026)
                    graph.n_nodes += 1
                    continue
                if self._node(line, mark, at):
                    continue
            self._line(line, at)
            if self.stopped:
                return

    def _line(self, line: bytes, at: int) -> None:
        """Any line but a node that follows its header."""
        mark = line.find(HEADER_MARK)
        if mark >= 0:
            header = read_header(line, mark)
            if header is not None:
                self._header(header, line, mark, at)
                return
        if b"graph_reserve: " in line:
            title = title_of(line)
            if title is not None:
                self.title = title
                return
        if b" ASSIGNMENTS" in line and is_pass_title(line):
            self.in_pass = True
            self.passes += 1
        elif line and not self.other.add(line, at, self.n_graphs):
            self.other_lines += 1

    def _header(self, header: Header, line: bytes, mark: int, at: int) -> None:
        after_pass, self.in_pass = self.in_pass, False
        self.backends.add(header.backend)
        graph = self.graph
        if graph is None or header.id == 0 or header.id <= graph.last_split:
            graph = self._begin(at, header.id == 0)
            if graph is None:
                self.interrupted = True
                return
        elif header.id != graph.last_split + 1:
            graph.whole = False
        graph.has_headers = True
        graph.last_split = header.id
        graph.backend = header.backend
        graph.n_splits += 1
        graph.n_inputs += header.n_inputs
        for tensor in header.inputs:
            graph.copied_low += tensor.nbytes.low
            graph.copied_high += tensor.nbytes.high
        self.passes -= after_pass
        if header.is_2024 or after_pass:
            graph.dialect = Dialect.Y2024
        graph.crc = crc32(repr(header).encode("utf-8", "surrogateescape"), graph.crc)
        graph.last_line = at
        if graph.kept is not None:
            graph.keep(at, line[mark:], self.lines.source)

    def _node(self, line: bytes, mark: int, at: int) -> bool:
        """A node line that is not as ggml writes it, or stands where no header was."""
        node = read_node(line, mark)
        if node is None:
            return False
        if self.in_pass:
            return True
        graph = self.graph
        if graph is None or (not graph.has_headers and node.index <= graph.last_index):
            graph = self._begin(at, False)
            if graph is None:
                self.interrupted = True
                return True
            graph.has_headers = False
        if not graph.has_headers:
            backend = self.backends.whole(node.backend) or ""
            if graph.n_splits == 0 or backend != graph.backend:
                graph.n_splits += 1
                graph.backend = backend
        graph.last_index = node.index
        key = node.op.encode("utf-8", "surrogateescape"), node.backend.encode("utf-8", "surrogateescape"), graph.backend
        graph.tally[key] = graph.tally.get(key, 0) + 1
        graph.crc = crc32(repr(node[:-1]).encode("utf-8", "surrogateescape"), graph.crc)
        graph.last_line = at
        graph.dialect = graph.dialect or (Dialect.Y2025 if node.counts is None else Dialect.Y2026)
        graph.n_nodes += 1
        if graph.kept is not None:
            graph.keep(at, line[mark:], self.lines.source)
        return True

    def _begin(self, at: int, whole: bool) -> OpenGraph | None:
        """A graph begins, and with it the last one ends; None where nobody wants more."""
        self._end()
        if self.stopped:
            return None
        self.n_graphs += 1
        self.graph = graph = OpenGraph(self.n_graphs, at, self.title, whole)
        self.title = ""
        if self.wanted is not None and self.wanted(graph.number, graph.title):
            graph.kept = []
        return graph

    def _end(self) -> None:
        """The graph that was being read is complete."""
        graph, self.graph = self.graph, None
        if graph is None:
            return
        summary = self._summary(graph)
        if len(self.graphs) < MAX_GRAPHS:
            self.graphs.append(summary)
        if self.finished is not None and not self.finished(graph, summary):
            self.stopped = True

    def _summary(self, graph: OpenGraph) -> GraphSummary:
        nodes_on: Counter[str] = Counter()
        for (op, cut, near), n in graph.tally.items():
            backend = self.backends.whole(text(cut), near) or ""
            nodes_on[backend] += n
            pair = text(op), backend
            if pair in self.tally or len(self.tally) < MAX_OPS:
                self.tally[pair] += n
        return GraphSummary(
            graph.number,
            sys.intern(graph.title),
            graph.dialect,
            2 if graph.n_nodes else 1,
            graph.n_nodes,
            graph.n_splits,
            graph.n_inputs,
            Bounds(graph.copied_low, graph.copied_high),
            tuple((name, nodes_on[name]) for name in listed(nodes_on)),
            graph.line,
            graph.last_line,
            graph.crc,
            graph.has_headers,
            graph.whole,
        )

    def summary(self) -> LogSummary:
        """What was read, as a value."""
        other = self.other
        backends = listed([*self.backends.names, *(name for _, name in self.tally if name)])
        return LogSummary(
            tuple(self.graphs),
            self.n_graphs - len(self.graphs),
            tuple(backends),
            tuple((op, backend, n) for (op, backend), n in self.tally.items()),
            other.reallocs,
            other.messages,
            other.left_out,
            other.buffers,
            tuple(other.table.values()),
            other.tables,
            self.passes,
            self.n_lines,
            self.other_lines,
            self.lines.long,
        )
