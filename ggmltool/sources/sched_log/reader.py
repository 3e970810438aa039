"""Reading a log: all of it in a summary, or one of its graphs whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ggmltool.scenario.errors import ScenarioError, quoted
from ggmltool.sources.sched_log.lines import HEADER_MARK, NodeLine, read_header, read_node
from ggmltool.sources.sched_log.plan import Backends
from ggmltool.sources.sched_log.records import (
    GraphSummary,
    LogGraph,
    LogInput,
    LogNode,
    LogSplit,
    LogSummary,
    LogTensorRef,
)
from ggmltool.sources.sched_log.scan import OpenGraph, RawLine, Scanner
from ggmltool.sources.sched_log.stream import Lines, is_scenario


@dataclass(slots=True)
class _Split:
    id: int
    backend: str
    n_inputs: int
    inputs: tuple[LogInput, ...]
    line: int
    nodes: list[tuple[NodeLine, int]] = field(default_factory=list)


def assemble(summary: GraphSummary, lines: Sequence[RawLine], backends: Backends) -> LogGraph:
    """The graph whose lines these are; `backends` are the whole names that the log had up to its end."""
    splits: list[_Split] = []
    known = False
    for number, raw in lines:
        if raw.startswith(HEADER_MARK):
            header = read_header(raw, 0)
            if header is not None:
                if not known:
                    _number(splits, header.id)
                known = True
                splits.append(_Split(header.id, header.backend, header.n_inputs, header.inputs, number))
                continue
        node = read_node(raw, 0)
        if node is None:
            continue
        if not known:
            backend = backends.whole(node.backend) or ""
            if not splits or splits[-1].backend != backend:
                splits.append(_Split(len(splits), backend, 0, (), number))
        splits[-1].nodes.append((node, number))
    return LogGraph(
        summary.number,
        summary.title,
        summary.dialect,
        summary.level,
        tuple(_split(split, backends) for split in splits),
        summary.line,
        summary.last_line,
        summary.has_headers,
        summary.is_whole,
        summary.inputs_missing,
        summary.lines_cut,
    )


def _number(splits: list[_Split], next_id: int) -> None:
    """The splits that the log begins in, before the first header there is."""
    for i, split in enumerate(reversed(splits), 1):
        split.id = max(next_id - i, 0)


def _split(split: _Split, backends: Backends) -> LogSplit:
    nodes = tuple(_node(node, line, split.backend, backends) for node, line in split.nodes)
    return LogSplit(split.id, split.backend, split.line, split.n_inputs, split.inputs, nodes)


def _node(node: NodeLine, line: int, near: str, backends: Backends) -> LogNode:
    use_count, compute = node.counts or (None, None)
    return LogNode(
        node.index,
        node.op,
        node.name,
        node.nbytes,
        backends.whole(node.backend, near),
        node.cause,
        use_count,
        compute,
        tuple(_source(source, near, backends) for source in node.sources),
        line,
    )


def _source(source: LogTensorRef, near: str, backends: Backends) -> LogTensorRef:
    """The source with the whole name of its backend; `near` is not it for certain, but likelier than another."""
    name = backends.whole(source.backend or "", near)
    return LogTensorRef(source.name, source.nbytes, name, source.cause)


HOW_TO_LOG = "ggml prints its graphs with GGML_SCHED_DEBUG=2 in the environment (llama.cpp: also with -v)"


def read_summary(lines: Lines) -> LogSummary:
    """The whole log without the nodes of its graphs, in bounded memory.

    Raises ScenarioError for what cannot be read, and if there is nothing in it that a log of ggml has.
    """
    scanner = Scanner(lines)
    scanner.run()
    return _summary(scanner)


def _summary(scanner: Scanner) -> LogSummary:
    """What was read. Raises ScenarioError if there is nothing in it that matters here."""
    summary = scanner.summary()
    told = (summary.graphs, summary.reallocs, summary.messages, summary.buffers, summary.breakdown, summary.aborts)
    if not any(told):
        raise no_graph(scanner.lines)
    return summary


def read_all(lines: Lines, take: Callable[[LogGraph], None]) -> LogSummary:
    """The same, and every graph whole is given to `take` when it ends. Raises ScenarioError."""

    def finished(graph: OpenGraph, summary: GraphSummary) -> bool:
        take(assemble(summary, graph.kept or (), scanner.backends))
        return True

    scanner = Scanner(lines, lambda *_: True, finished)
    scanner.run()
    return _summary(scanner)


def read_graph(lines: Lines, choice: str | None = None) -> tuple[LogGraph, bool]:
    """One graph of a log, and whether another follows it.

    `choice` is its number, counted from 1, or text that its title holds; None is the first graph. Nothing is read
    beyond the line that begins the next graph. Raises ScenarioError if there is no such graph.
    """
    wanted = _chosen(choice, lines.source)
    found: list[LogGraph] = []

    def finished(graph: OpenGraph, summary: GraphSummary) -> bool:
        if graph.kept is None:
            return True
        found.append(assemble(summary, graph.kept, scanner.backends))
        return False

    scanner = Scanner(lines, wanted, finished)
    scanner.run()
    if not found:
        raise _no_graph(scanner, choice, lines.source)
    return found[0], scanner.interrupted


def _chosen(choice: str | None, source: str) -> Callable[[int, str], bool]:
    if choice is None:
        return lambda number, _: number == 1
    if choice.strip().isdecimal():
        n = int(choice)
        if n < 1:
            raise ScenarioError("graphs of a log are counted from 1", source)
        return lambda number, _: number == n
    part = " ".join(choice.split())
    return lambda _, title: part in title


def _no_graph(scanner: Scanner, choice: str | None, source: str) -> ScenarioError:
    n = scanner.n_graphs
    if n == 0:
        return no_graph(scanner.lines)
    titles = list(dict.fromkeys(graph.title for graph in scanner.graphs if graph.title))
    if choice is not None and not choice.strip().isdecimal():
        shown = ", ".join(quoted(title) for title in titles[:4]) + (", …" if len(titles) > 4 else "")
        has = f"its titles are {shown}" if titles else "none of its graphs has a title"
        return ScenarioError(f"no graph of this log has {quoted(choice)} in its title", source, None, has)
    has = f"its graphs are 1 to {n}" if n > 1 else "it has one"
    return ScenarioError(f"this log has no graph {choice}", source, None, has)


def no_graph(lines: Lines) -> ScenarioError:
    """What to say of a log without any graph, once it is read."""
    if is_scenario(lines.head):
        return ScenarioError(
            "this is a scenario, not a log", lines.source, None, "`ggmltool splits` prints a log of it"
        )
    return ScenarioError("there is no graph in this log", lines.source, None, HOW_TO_LOG)
