"""One pass over a log: where graphs begin and end, and what each has in it, without keeping their nodes.

Of the graphs that somebody wants whole, the lines are kept (`assemble` reads them).
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from ggmltool.scenario.errors import ScenarioError
from ggmltool.sources.sched_log.lines import (
    HEADER_MARK,
    NODE_MARK,
    SplitHeader,
    is_node,
    is_orphan,
    is_pass_title,
    loose_node_match,
    node_is_cut,
    node_match,
    read_header,
    text,
)
from ggmltool.sources.sched_log.other import OTHER_MARKS, OtherLines, title_of
from ggmltool.sources.sched_log.plan import Backends, listed
from ggmltool.sources.sched_log.records import ByteRange, Dialect, GraphSummary, LogSummary
from ggmltool.sources.sched_log.stream import LogLines

MARKS = (NODE_MARK, HEADER_MARK, b" ASSIGNMENTS", *OTHER_MARKS)
"""What lines that mean something here have in them."""

MAX_GRAPHS = 50_000
"""Graphs of a log that are listed."""

MAX_LINES = 200_000
"""Lines of a graph that can be kept."""

MAX_OPS = 2000
"""Different pairs of op and backend that are counted."""


MAX_KNOWN = 20_000
"""Different lines that are remembered, so that they are read only once."""

_LONG = 1000
"""Bytes of a line that is remembered, at most."""
_FEW = 3
"""Nodes of a graph none of which has a source before that is taken for a cut."""

_MANY = 10_000
"""Nodes that are counted together, at most."""


class RawLine(NamedTuple):
    """A header or a node, for whoever wants the graph whole: its number, its bytes from the mark on."""

    number: int
    raw: bytes


class _Node(NamedTuple):
    """What is counted of a node; `pair` is its op and the cut name of its backend.

    Its line may lack its end (`is_cut`) or end before the sources (`is_bare`).
    """

    index: int  # type: ignore[assignment]
    pair: tuple[bytes, bytes]
    crc: int
    dialect: Dialect
    is_cut: bool
    is_bare: bool


@dataclass(slots=True)
class OpenGraph:
    """A graph whose lines are being read. `kept` are its lines, None if nobody wants it whole.

    `backend` is that of the split that came last, `tally` counts nodes by op, cut name of the backend, and `backend`;
    `pairs` are the ops and cut names of its nodes so far, `crcs` those of the headers and nodes, `n_bare` counts
    nodes whose lines have no source.
    """

    number: int
    line: int
    last_line: int
    title: str
    whole: bool
    has_headers: bool = True
    dialect: Dialect | None = None
    n_splits: int = 0
    n_inputs: int = 0
    copied_low: int = 0
    copied_high: int = 0
    last_index: int = -1
    last_cut: bytes = b""
    last_split: int = -1
    backend: str = ""
    tally: Counter[tuple[bytes, bytes, str]] = field(default_factory=Counter)
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)
    inputs_missing: int = 0
    n_cut: int = 0
    n_bare: int = 0
    kept: list[RawLine] | None = None

    def continued(self, node: _Node) -> bool:
        """Whether a node belongs to this graph, which has no headers: its index rises. Its splits are counted so."""
        if node.index <= self.last_index:
            return False
        self.last_index = node.index
        cut = node.pair[1]
        if cut != self.last_cut:
            self.last_cut = cut
            self.n_splits += 1
        return True

    def add(self, node: _Node, line: int) -> None:
        """Count a node."""
        self.pairs.append(node.pair)
        self.crcs.append(node.crc)
        self.last_line = line
        self.n_cut += node.is_cut
        self.n_bare += node.is_bare
        if self.dialect is None:
            self.dialect = node.dialect
        if len(self.pairs) == _MANY:
            self.end_split()

    def end_split(self) -> None:
        """Count the nodes so far: what comes next may belong to another split."""
        for (op, cut), n in Counter(self.pairs).items():
            self.tally[op, cut, self.backend] += n
        self.pairs.clear()
        if len(self.crcs) > _MANY:
            self.crcs[:] = [self.crc]

    @property
    def crc(self) -> int:
        """What graphs with the same headers and nodes have in common."""
        return crc32(array("I", self.crcs).tobytes())

    @property
    def n_nodes(self) -> int:
        return self.tally.total()

    @property
    def lines_cut(self) -> int:
        """Lines of nodes without their end: where no node has a source, all of them."""
        return self.n_cut or (self.n_bare if self.n_bare == self.n_nodes >= _FEW else 0)

    def keep(self, number: int, raw: bytes, source: str) -> None:
        """Remember a line. Raises ScenarioError if there are too many."""
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

    def __init__(self, lines: LogLines, wanted: Wanted | None = None, finished: Finished | None = None) -> None:
        self.lines = lines
        self.wanted = wanted
        self.finished = finished
        self.other = OtherLines()
        self.nodes: dict[bytes, _Node] = {}
        self.headers: dict[bytes, SplitHeader] = {}
        self.backends = Backends()
        self.graphs: list[GraphSummary] = []
        self.n_graphs = 0
        self.tally: Counter[tuple[str, str]] = Counter()
        self.graph: OpenGraph | None = None
        self.title = ""
        self.in_pass = False
        self.passes = 0
        self.n_lines = 0
        self.stopped = self.interrupted = False

    def run(self) -> None:
        """Read all lines, or as many as `finished` wants. Raises ScenarioError."""
        lines = self.lines
        for skipped, block in lines.blocks(MARKS):
            self.n_lines += skipped
            first = self.n_lines + 1
            self.n_lines += len(block)
            self._block(block, first)
            if self.stopped:
                return
            lines.every = self.other.in_table
        if self.graph is not None and not lines.ended and self.graph.last_line == self.n_lines:
            self.graph.whole = False
        self._end()

    def _block(self, block: list[bytes], number: int) -> None:
        """One block of lines. Node lines are nearly all there is, and most are the same in every graph of a log."""
        nodes = self.nodes
        for at, line in enumerate(block, number):
            mark = line.find(NODE_MARK)
            if mark < 0:
                self._line(line, at)
            else:
                raw = line[mark:]
                node = nodes.get(raw) or self._new_node(raw)
                if node is None:
                    self._line(line, at)
                elif not self.in_pass:
                    graph = self.graph
                    if graph is None or not (graph.has_headers or graph.continued(node)):
                        graph = self._begin(at, False)
                        if graph is not None:
                            graph.has_headers = False
                            graph.continued(node)
                    if graph is not None:
                        graph.add(node, at)
                        if graph.kept is not None:
                            graph.keep(at, raw, self.lines.source)
            if self.stopped:
                return

    def _new_node(self, raw: bytes) -> _Node | None:
        """The node whose line from the mark on this is, which is remembered; None if it is none."""
        match = node_match(raw) or loose_node_match(raw)
        if match is None:
            return None
        dialect = Dialect.Y2025 if match[8] is None else Dialect.Y2026
        cut, bare = node_is_cut(raw, match.end()), raw[-1:] == b":"
        node = _Node(int(match[1]), (match[2], match[6]), crc32(match[0]), dialect, cut, bare)
        if len(self.nodes) < MAX_KNOWN and len(raw) <= _LONG:
            self.nodes[raw] = node
        return node

    def _line(self, line: bytes, at: int) -> None:
        """Any line but a node that follows its header."""
        mark = line.find(HEADER_MARK)
        if mark >= 0:
            raw = line[mark:]
            header = self.headers.get(raw) or read_header(raw, 0)
            if header is not None:
                if len(self.headers) < MAX_KNOWN and len(raw) <= _LONG:
                    self.headers[raw] = header
                self._header(header, raw, at)
                return
        if line and self.graph is not None and not self.in_pass:
            # A node's line without its end, or the end of one.
            self.graph.n_cut += is_node(line) if NODE_MARK in line else b") [" in line and is_orphan(line)
        if b"graph_reserve: " in line:
            title = title_of(line)
            if title is not None:
                self.title = title
                return
        if b" ASSIGNMENTS" in line and is_pass_title(line):
            self.in_pass = True
            self.passes += 1
        elif line:
            self.other.add(line, at, self.n_graphs)

    def _header(self, header: SplitHeader, raw: bytes, at: int) -> None:
        after_pass, self.in_pass = self.in_pass, False
        self.backends.add(header.backend)
        graph = self.graph
        if graph is None or header.id == 0 or header.id <= graph.last_split:
            graph = self._begin(at, header.id == 0)
            if graph is None:
                return
        elif header.id != graph.last_split + 1:
            graph.whole = False
        graph.end_split()
        graph.has_headers = True
        graph.last_split = header.id
        graph.backend = header.backend
        graph.n_splits += 1
        graph.n_inputs += header.n_inputs
        graph.inputs_missing += max(header.n_inputs - len(header.inputs), 0)
        for tensor in header.inputs:
            graph.copied_low += tensor.nbytes.low
            graph.copied_high += tensor.nbytes.high
        self.passes -= after_pass
        if header.is_2024 or after_pass:
            graph.dialect = Dialect.Y2024
        graph.crcs.append(crc32(repr(header).encode("utf-8", "surrogateescape")))
        graph.last_line = at
        if graph.kept is not None:
            graph.keep(at, raw, self.lines.source)

    def _begin(self, at: int, whole: bool) -> OpenGraph | None:
        """A graph begins, and with it the last one ends; None if nobody wants more."""
        self._end()
        if self.stopped:
            self.interrupted = True
            return None
        self.n_graphs += 1
        self.graph = graph = OpenGraph(self.n_graphs, at, at, self.title, whole)
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
        graph.end_split()
        nodes_on: Counter[str] = Counter()
        for (op, cut, near), n in graph.tally.items():
            backend = self.backends.whole(text(cut), near) or ""
            nodes_on[backend] += n
            pair = text(op), backend
            if pair in self.tally or len(self.tally) < MAX_OPS:
                self.tally[pair] += n
        return GraphSummary(
            number=graph.number,
            title=sys.intern(graph.title),
            line=graph.line,
            last_line=graph.last_line,
            dialect=graph.dialect,
            level=2 if graph.n_nodes else 1,
            has_headers=graph.has_headers,
            is_whole=graph.whole,
            inputs_missing=graph.inputs_missing,
            lines_cut=graph.lines_cut,
            n_nodes=graph.n_nodes,
            n_splits=graph.n_splits,
            n_inputs=graph.n_inputs,
            copied=ByteRange(graph.copied_low, graph.copied_high),
            nodes_on=tuple((name, nodes_on[name]) for name in listed(nodes_on)),
            fingerprint=graph.crc,
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
            tuple(other.reallocs.values()),
            tuple(other.messages.values()),
            other.left_out,
            tuple(other.buffers.values()),
            tuple(other.table.values()),
            other.tables,
            self.passes,
            self.n_lines,
            self.lines.long,
            tuple(other.aborts),
            self.lines.width,
        )
