"""The JSON of logs. Sizes are pairs: ggml prints whole K and M, so a tensor has at least the first number of bytes and
at most the second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ggmltool.inspect.errors import InspectError
from ggmltool.show.document import Document, Row
from ggmltool.sources.sched_log.records import (
    Abort,
    Bounds,
    Breakdown,
    BufferSize,
    GraphSummary,
    LogGraph,
    LogInput,
    LogNode,
    LogSplit,
    LogSummary,
    LogTensorRef,
    Message,
    Realloc,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LogSource(Row):
    """A source of a node, as it is printed."""

    name: str
    nbytes: Bounds
    backend: str | None
    cause: str | None

    @classmethod
    def of(cls, s: LogTensorRef) -> LogSource:
        """A source."""
        return cls(s.name, s.nbytes, s.backend, s.cause or None)


class LogNodeRow(Row):
    """A line of a node: what this ggml does not print is null."""

    index: int
    op: str
    name: str
    nbytes: Bounds
    backend: str | None
    cause: str | None
    use_count: int | None
    compute: bool | None
    src: list[LogSource]
    line: int

    @classmethod
    def of(cls, n: LogNode) -> LogNodeRow:
        """A node."""
        src = [LogSource.of(s) for s in n.src]
        return cls(
            n.index, n.op, n.name, n.nbytes, n.backend, n.cause or None, n.use_count, n.compute, src, n.line
        )  # fmt: skip


class LogSplitRow(Row):
    """A split: as many inputs as it says, those that are listed, and its nodes."""

    id: int
    backend: str
    line: int
    n_inputs: int
    inputs: list[LogInput]
    nodes: list[LogNodeRow]

    @classmethod
    def of(cls, s: LogSplit) -> LogSplitRow:
        """A split."""
        return cls(s.id, s.backend, s.line, s.n_inputs, list(s.inputs), [LogNodeRow.of(n) for n in s.nodes])


class LogGraphRow(Row, kw_only=True):
    """A graph of a log: which it is, where it stands, how it is written; with its splits, or (summed up) with counts.

    `is_whole` is false where lines are missing; `fingerprint` is equal for graphs that are alike.
    """

    number: int
    title: str
    line: int
    last_line: int
    dialect: str | None
    level: int
    has_headers: bool
    is_whole: bool
    inputs_missing: int
    lines_cut: int
    splits: list[LogSplitRow] | UnsetType = UNSET
    n_nodes: int | UnsetType = UNSET
    n_splits: int | UnsetType = UNSET
    n_inputs: int | UnsetType = UNSET
    copied: Bounds | UnsetType = UNSET
    nodes_on: dict[str, int] | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET

    @classmethod
    def whole(cls, graph: LogGraph) -> LogGraphRow:
        """A graph with its splits, their inputs and nodes."""
        return cls(**_identity(graph), splits=[LogSplitRow.of(split) for split in graph.splits])

    @classmethod
    def summary(cls, graph: GraphSummary) -> LogGraphRow:
        """A graph without its nodes."""
        return cls(
            **_identity(graph),
            n_nodes=graph.n_nodes,
            n_splits=graph.n_splits,
            n_inputs=graph.n_inputs,
            copied=graph.copied,
            nodes_on=dict(graph.nodes_on),
            fingerprint=f"{graph.fingerprint:08x}",
        )


def _identity(graph: GraphSummary | LogGraph) -> dict[str, Any]:
    """Which graph of the log it is, where it stands and how it is written."""
    return {
        "number": graph.number,
        "title": graph.title,
        "line": graph.line,
        "last_line": graph.last_line,
        "dialect": graph.dialect,
        "level": graph.level,
        "has_headers": graph.has_headers,
        "is_whole": graph.is_whole,
        "inputs_missing": graph.inputs_missing,
        "lines_cut": graph.lines_cut,
    }


class LogGraphDocument(Document, kw_only=True):
    """`import --graph N --json`: one graph of a log with its splits, their inputs and nodes; `plan --json` of a log."""

    kind: Literal["log_graph"] = "log_graph"
    log: str
    number: int
    title: str
    line: int
    last_line: int
    dialect: str | None
    level: int
    has_headers: bool
    is_whole: bool
    inputs_missing: int
    lines_cut: int
    splits: list[LogSplitRow]

    @classmethod
    def of(cls, graph: LogGraph, source: str) -> LogGraphDocument:
        """A graph of the log `source`."""
        return cls(log=source, **_identity(graph), splits=[LogSplitRow.of(split) for split in graph.splits])


class OpCount(Row):
    """How many nodes of an op run on a backend, in all graphs."""

    op: str
    backend: str
    nodes: int


class AbortRow(Row):
    """The text with which a program died."""

    text: str
    line: int
    last_line: int

    @classmethod
    def of(cls, a: Abort) -> AbortRow:
        """What ended the program."""
        return cls(a.text, a.line, a.last_line)


class ReallocRow(Row):
    """A compute buffer that was made anew: how often, the sizes in MiB, and where."""

    buft: str
    count: int
    first_mib: float
    last_mib: float
    largest_mib: float
    first_line: int
    last_line: int

    @classmethod
    def of(cls, r: Realloc) -> ReallocRow:
        """All reallocations of a buffer type."""
        return cls(r.buft, r.count, r.first, r.last, r.largest, r.first_line, r.last_line)


class MessageRow(Row):
    """A message with numbers left out, one `example`, how often it comes and where."""

    text: str
    example: str
    count: int
    first_line: int
    last_line: int
    first_graph: int | None
    last_graph: int | None

    @classmethod
    def of(cls, m: Message) -> MessageRow:
        """All lines that are alike."""
        graphs = m.first_graph or None, m.last_graph or None
        return cls(m.text, m.example, m.count, m.first_line, m.last_line, *graphs)


class LogBuffer(Row):
    """Buffers of a kind and a type: how many, the sizes in MiB, the last of them."""

    kind: str
    buft: str
    count: int
    sizes_mib: list[float]
    last_mib: float

    @classmethod
    def of(cls, b: BufferSize) -> LogBuffer:
        """Buffers that are alike."""
        return cls(b.kind, b.buft, b.count, list(b.sizes), b.last)


class BreakdownRow(Row):
    """A device's memory in MiB, as llama.cpp sums it up."""

    device: str
    total: int | None
    free: int | None
    self_: int = msgspec.field(name="self")
    model: int
    context: int
    compute: int
    unaccounted: int | None

    @classmethod
    def of(cls, b: Breakdown) -> BreakdownRow:
        """The line of a device."""
        return cls(b.device, b.total, b.free, b.self, b.model, b.context, b.compute, b.unaccounted)


class LogDocument(Document, kw_only=True):
    """`import --json`: all that a log tells: graphs, aborts, reallocations, messages, buffers, memory."""

    kind: Literal["log"] = "log"
    log: str
    lines: int
    wrapped_at: int | None
    backends: list[str]
    graphs: list[LogGraphRow]
    graphs_left_out: int
    nodes_by_op_and_backend: list[OpCount]
    passes: int
    aborts: list[AbortRow]
    reallocations: list[ReallocRow]
    messages: list[MessageRow]
    messages_left_out: int
    buffers: list[LogBuffer]
    memory_breakdowns: int
    memory_breakdown_mib: list[BreakdownRow]

    @classmethod
    def of(cls, log: LogSummary, source: str, graphs: Sequence[LogGraphRow] | None = None) -> LogDocument:
        """The whole log `source`; `graphs` are its graphs with their nodes, else they come without."""
        return cls(
            log=source,
            lines=log.n_lines,
            wrapped_at=log.wrapped_at or None,
            backends=list(log.backends),
            graphs=[LogGraphRow.summary(g) for g in log.graphs] if graphs is None else list(graphs),
            graphs_left_out=log.graphs_left_out,
            nodes_by_op_and_backend=[OpCount(*count) for count in log.tally],
            passes=log.passes,
            aborts=[AbortRow.of(a) for a in log.aborts],
            reallocations=[ReallocRow.of(r) for r in log.reallocs],
            messages=[MessageRow.of(m) for m in log.messages],
            messages_left_out=log.messages_left_out,
            buffers=[LogBuffer.of(b) for b in log.buffers],
            memory_breakdowns=log.breakdowns,
            memory_breakdown_mib=[BreakdownRow.of(b) for b in log.breakdown],
        )


MAX_NODES = 50_000
"""Nodes that one JSON document of a log may have."""


def whole_rows(read: Callable[[Callable[[LogGraph], None]], LogSummary]) -> tuple[LogSummary, list[LogGraphRow]]:
    """What a log tells and all its graphs, by what hands on every graph as it ends.

    Raises InspectError where they are too many for one document.
    """
    graphs: list[LogGraphRow] = []
    left = MAX_NODES

    def take(graph: LogGraph) -> None:
        nonlocal left
        left -= len(graph.nodes) + len(graph.splits)
        if left < 0:
            raise InspectError(
                f"this log has more than {MAX_NODES} nodes, too many for one JSON: --no-nodes has the graphs without "
                "them, --graph N one graph"
            )
        graphs.append(LogGraphRow.whole(graph))

    return read(take), graphs
