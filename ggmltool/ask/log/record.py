"""The JSON of logs. Sizes are pairs: ggml prints whole K and M, so a tensor has at least the first number of bytes and
at most the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from ggmltool.ask.answer import Answer
from ggmltool.ggml.plan import NodePlan
from ggmltool.show.document import Document, Row
from ggmltool.sources.sched_log.plan import log_plan
from ggmltool.sources.sched_log.reader import read_all
from ggmltool.sources.sched_log.records import (
    Breakdown,
    BufferSize,
    ByteRange,
    GraphHead,
    GraphSummary,
    LogAbort,
    LogGraph,
    LogMessage,
    LogSplit,
    LogSummary,
    Realloc,
)
from ggmltool.sources.sched_log.stream import open_log
from ggmltool.state.errors import InspectError


class LogGraphRow(GraphHead, frozen=True, kw_only=True):
    """A graph of a log: which it is, where it stands, how it is written; with its splits, or (summed up) with counts.

    `is_whole` is false where lines are missing; `fingerprint` is equal for graphs that are alike.
    """

    splits: tuple[LogSplit, ...] | UnsetType = UNSET
    n_nodes: int | UnsetType = UNSET
    n_splits: int | UnsetType = UNSET
    n_inputs: int | UnsetType = UNSET
    copied: ByteRange | UnsetType = UNSET
    nodes_on: dict[str, int] | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET

    @classmethod
    def summary(cls, graph: GraphSummary) -> LogGraphRow:
        """A graph without its nodes."""
        return cls(
            **graph.head(),
            n_nodes=graph.n_nodes,
            n_splits=graph.n_splits,
            n_inputs=graph.n_inputs,
            copied=graph.copied,
            nodes_on=dict(graph.nodes_on),
            fingerprint=f"{graph.fingerprint:08x}",
        )


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
    splits: tuple[LogSplit, ...]


class OpCount(Row):
    """How many nodes of an op run on a backend, in all graphs."""

    op: str
    backend: str
    nodes: int


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
    aborts: tuple[LogAbort, ...]
    reallocations: tuple[Realloc, ...]
    messages: tuple[LogMessage, ...]
    messages_left_out: int
    buffers: tuple[BufferSize, ...]
    memory_breakdowns: int
    memory_breakdown_mib: tuple[Breakdown, ...]

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
            aborts=log.aborts,
            reallocations=log.reallocs,
            messages=log.messages,
            messages_left_out=log.messages_left_out,
            buffers=log.buffers,
            memory_breakdowns=log.breakdowns,
            memory_breakdown_mib=log.breakdown,
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
        graphs.append(LogGraphRow(**graph.head(), splits=graph.splits))

    return read(take), graphs


class ImportedLog(LogSummary, frozen=True, kw_only=True):
    """What the file `log` tells."""

    kind: ClassVar[str] = "log"
    view: ClassVar[str] = "log_view"
    log: str

    def rows(self) -> tuple[GraphSummary, ...]:
        """Its graphs."""
        return self.graphs

    def document(self) -> LogDocument:
        """With all nodes, which are read when they are asked for."""
        with open_log(self.log, self.log) as lines:
            found, graphs = whole_rows(partial(read_all, lines))
        return LogDocument.of(found, self.log, graphs)


class ImportedGraph(LogGraph, frozen=True, kw_only=True):
    """A graph of the file `log`; `more` says how to see all of its splits."""

    kind: ClassVar[str] = "log_graph"
    view: ClassVar[str] = "log_graph_view"
    log: str
    more: str

    def rows(self) -> tuple[NodePlan, ...]:
        """Its nodes."""
        return log_plan(self)[0].nodes

    def document(self) -> LogGraphDocument:
        """The graph without what is only shown."""
        return LogGraphDocument(log=self.log, **self.head(), splits=self.splits)


def log_answer(summary: LogSummary, log: str, title: str) -> Answer[ImportedLog]:
    """The answer of a whole log; it is not fine where the program died."""
    return Answer(ImportedLog(**asdict(summary), log=log), title, fine=not summary.aborts)


def graph_answer(graph: LogGraph, log: str, title: str, more: str) -> Answer[ImportedGraph]:
    """The answer of one graph of a log."""
    facts = ImportedGraph(**asdict(graph), log=log, more=more)
    return Answer(facts, title, f"graph {graph.number}", log_plan(graph)[0])
