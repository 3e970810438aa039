"""Reading a log: all of it in a summary, or one of its graphs whole."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.scenario.errors import ScenarioError, quoted
from ggmltool.sources.sched_log.assemble import assemble
from ggmltool.sources.sched_log.records import GraphSummary, LogGraph, LogSummary
from ggmltool.sources.sched_log.scan import OpenGraph, Scanner
from ggmltool.sources.sched_log.stream import Lines, is_scenario

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
