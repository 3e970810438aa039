"""Logs of GGML_SCHED_DEBUG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

from ggmltool.ask.checked import checked

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.log.record import ImportedGraph, ImportedLog


@overload
def import_log(path: str | Path, graph: None = None) -> Answer[ImportedLog]: ...


@overload
def import_log(path: str | Path, graph: int | str) -> Answer[ImportedGraph]: ...


@checked
def import_log(path: str | Path, graph: int | str | None = None) -> Answer[ImportedLog] | Answer[ImportedGraph]:
    """What a log of GGML_SCHED_DEBUG=2 tells: its graphs, how often buffers were reallocated and why, memory.

    `path` is a file, also `.gz`. With `graph`, a number or a part of its title, that graph, of which `plan` is as much
    as the log tells; `scenario.diff` compares a plan with it. Raises ScenarioError for what is no such log, or has no
    such graph.
    """
    from ggmltool.ask.log.record import graph_answer, log_answer
    from ggmltool.sources.sched_log.reader import read_graph, read_summary
    from ggmltool.sources.sched_log.stream import open_log

    file, title = str(path), Path(path).name
    with open_log(file, file) as lines:
        if graph is None:
            return log_answer(read_summary(lines), file, title)
        found, _ = read_graph(lines, str(graph))
    return graph_answer(found, file, title, "scenario.diff(…)")
