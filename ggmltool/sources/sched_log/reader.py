"""Reading a log: all of it in a summary, or one of its graphs whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ggmltool.scenario.errors import ScenarioError, quoted
from ggmltool.scenario.text.text import is_scenario
from ggmltool.sources.sched_log.lines import HEADER_MARK, SplitHeader, read_header, read_node
from ggmltool.sources.sched_log.plan import Backends
from ggmltool.sources.sched_log.records import GraphSummary, LogGraph, LogNode, LogSplit, LogSummary
from ggmltool.sources.sched_log.scan import OpenGraph, RawLine, Scanner
from ggmltool.sources.sched_log.stream import LogLines


def assemble(summary: GraphSummary, lines: Sequence[RawLine], backends: Backends) -> LogGraph:
    """The graph whose lines these are; `backends` are the whole names that the log had up to its end."""
    splits: list[tuple[SplitHeader, int, list[LogNode]]] = []
    known = False
    for number, raw in lines:
        if raw.startswith(HEADER_MARK):
            header = read_header(raw, 0)
            if header is not None:
                if not known:  # the log begins within splits before the first header there is
                    first = header.id - len(splits)
                    splits = [(s[0]._replace(id=max(first + i, 0)), *s[1:]) for i, s in enumerate(splits)]
                known = True
                splits.append((header, number, []))
                continue
        node = read_node(raw, number)
        if node is None:
            continue
        if not known:
            backend = backends.whole(node.backend or "") or ""
            if not splits or splits[-1][0].backend != backend:
                splits.append((SplitHeader(len(splits), backend, 0, (), False), number, []))
        splits[-1][2].append(node)
    whole = [
        LogSplit(h.id, h.backend, line, h.n_inputs, h.inputs, tuple(_node(n, h.backend, backends) for n in of))
        for h, line, of in splits
    ]
    return LogGraph(**summary.head(), splits=tuple(whole))


def _node(node: LogNode, near: str, backends: Backends) -> LogNode:
    """The node with whole names of backends. That of a source is not `near` for certain, but likelier than another."""
    src = tuple(replace(source, backend=backends.whole(source.backend or "", near)) for source in node.src)
    return replace(node, backend=backends.whole(node.backend or "", near), src=src)


HOW_TO_LOG = "ggml prints its graphs with GGML_SCHED_DEBUG=2 in the environment (llama.cpp: also with -v)"


def read_summary(lines: LogLines) -> LogSummary:
    """The whole log without the nodes of its graphs, in bounded memory.

    Raises ScenarioError for what cannot be read, and if there is nothing in it that a log of ggml has.
    """
    return _summary(Scanner(lines))


def read_all(lines: LogLines, take: Callable[[LogGraph], None]) -> LogSummary:
    """The same, and every graph whole is given to `take` when it ends. Raises ScenarioError."""

    def finished(graph: OpenGraph, summary: GraphSummary) -> bool:
        take(assemble(summary, graph.kept or (), scanner.backends))
        return True

    scanner = Scanner(lines, lambda *_: True, finished)
    return _summary(scanner)


def _summary(scanner: Scanner) -> LogSummary:
    """All that is read. Raises ScenarioError if there is nothing in it that matters here."""
    scanner.run()
    summary = scanner.summary()
    told = (summary.graphs, summary.reallocs, summary.messages, summary.buffers, summary.breakdown, summary.aborts)
    if not any(told):
        raise no_graph(scanner.lines)
    return summary


def read_graph(lines: LogLines, choice: str | None = None) -> tuple[LogGraph, bool]:
    """One graph of a log, and whether another follows it.

    `choice` is its number, counted from 1, or text that its title holds; None is the first graph. Nothing is read
    beyond the line that begins the next graph. Raises ScenarioError if there is no such graph.
    """
    choice = "1" if choice is None else choice
    n, part = int(choice) if choice.strip().isdecimal() else None, " ".join(choice.split())
    if n is not None and n < 1:
        raise ScenarioError("graphs of a log are counted from 1", lines.source)
    found: list[LogGraph] = []

    def finished(graph: OpenGraph, summary: GraphSummary) -> bool:
        if graph.kept is None:
            return True
        found.append(assemble(summary, graph.kept, scanner.backends))
        return False

    scanner = Scanner(lines, lambda number, title: number == n if n is not None else part in title, finished)
    scanner.run()
    if not found:
        raise _no_such_graph(scanner, choice, lines.source)
    return found[0], scanner.interrupted


def _no_such_graph(scanner: Scanner, choice: str, source: str) -> ScenarioError:
    n = scanner.n_graphs
    if n == 0:
        return no_graph(scanner.lines)
    titles = list(dict.fromkeys(graph.title for graph in scanner.graphs if graph.title))
    if not choice.strip().isdecimal():
        shown = ", ".join(quoted(title) for title in titles[:4]) + (", …" if len(titles) > 4 else "")
        has = f"its titles are {shown}" if titles else "none of its graphs has a title"
        return ScenarioError(f"no graph of this log has {quoted(choice)} in its title", source, None, has)
    has = f"its graphs are 1 to {n}" if n > 1 else "it has one"
    return ScenarioError(f"this log has no graph {choice}", source, None, has)


def no_graph(lines: LogLines) -> ScenarioError:
    """What to say of a log without any graph, once it is read."""
    if is_scenario(lines.head.decode("utf-8", "replace")):
        return ScenarioError(
            "this is a scenario, not a log", lines.source, None, "`ggmltool splits` prints a log of it"
        )
    return ScenarioError("there is no graph in this log", lines.source, None, HOW_TO_LOG)
