"""Logs of GGML_SCHED_DEBUG."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ggmltool.api.result import Result
from ggmltool.ask.checked import checked
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.log.record import LogDocument
    from ggmltool.sources.sched_log.records import LogGraph, LogSummary


@overload
def import_log(path: str | Path, graph: None = None) -> Result[LogSummary]: ...


@overload
def import_log(path: str | Path, graph: int | str) -> Result[LogGraph]: ...


@checked
def import_log(path: str | Path, graph: int | str | None = None) -> Result[LogSummary] | Result[LogGraph]:
    """What a log of GGML_SCHED_DEBUG=2 tells: its graphs, how often buffers were reallocated and why, memory.

    `path` is a file, also `.gz`. With `graph`, a number or a part of its title, that graph, of which `plan` is as much
    as the log tells; `scenario.diff` compares a plan with it. Raises ScenarioError for what is no such log, or has no
    such graph.
    """
    file = str(path)
    return _summary(file) if graph is None else _graph(file, str(graph))


def _summary(path: str) -> Result[LogSummary]:
    from ggmltool.ask.log.text import log_view
    from ggmltool.sources.sched_log.reader import read_summary
    from ggmltool.sources.sched_log.stream import open_log

    with open_log(path, path) as lines:
        summary = read_summary(lines)
    title = Path(path).name

    return Result(
        f"log {title}", summary, partial(_document, path), partial(log_view, summary, title), tuple(summary.graphs)
    )


def _document(path: str) -> LogDocument:
    """With all nodes, which are read when they are asked for."""
    from ggmltool.ask.log.record import LogDocument, whole_rows
    from ggmltool.sources.sched_log.reader import read_all
    from ggmltool.sources.sched_log.stream import open_log

    with open_log(path, path) as lines:
        found, graphs = whole_rows(partial(read_all, lines))
    return LogDocument.of(found, path, graphs)


def _graph(path: str, choice: str) -> Result[LogGraph]:
    from ggmltool.ask.log.record import LogGraphDocument
    from ggmltool.ask.log.text import log_graph_view
    from ggmltool.sources.sched_log.plan import log_plan
    from ggmltool.sources.sched_log.reader import read_graph
    from ggmltool.sources.sched_log.stream import open_log

    with open_log(path, path) as lines:
        graph, _ = read_graph(lines, choice)
    plan, tensors = log_plan(graph)
    title = Path(path).name
    return Result(
        f"graph {graph.number} of {title}",
        graph,
        partial(LogGraphDocument.of, graph, path),
        partial(log_graph_view, graph, plan, tensors, title, more="scenario.diff(…)"),
        plan.nodes,
        plan,
    )


def graph_of(log: Result[Any]) -> LogGraph:
    """A graph of a log, to be compared. Raises InspectError for a whole log."""
    from ggmltool.sources.sched_log.records import LogGraph

    if not isinstance(log.facts, LogGraph):
        raise InspectError("name a graph of the log: import_log(path, graph=1)")
    return log.facts
