"""Logs on the command line: whether an argument is one, and its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggmltool.cli.output import note
from ggmltool.cli.progress import progress
from ggmltool.cli.waiting import WRITER, waiting_for
from ggmltool.scenario.errors import quoted

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.text.text import Readable
    from ggmltool.sources.sched_log.records import LogGraph, LogSummary
    from ggmltool.sources.sched_log.stream import Lines


def open_either(argument: str | None, graph: str | None = None, release: Release | None = None) -> Opened | OpenedLog:
    """What the command line names: a scenario, or a log by its content. `graph` is --graph, for a log; `release` the
    ggml to open a scenario as, where that is not --ggml's.

    Raises ScenarioError for a scenario that cannot be loaded; logs are read later.
    """
    from ggmltool.cli.scenario import open_scenario, opened
    from ggmltool.sources.sched_log.stream import sniff

    if argument is None:
        return open_scenario(None, release)
    closing = click.get_current_context().with_resource(ExitStack())
    with waiting_for(argument, WRITER):
        is_log, stream = sniff(argument, closing)
    if is_log:
        return OpenedLog(argument, stream, graph)
    if stream is None:
        return open_scenario(argument, release)
    return opened(argument, argument, stream, release)


class OpenedLog:
    """A log that the command line names; `stream` is its content where that was read into already and can be read only
    once, `choice` the graph that --graph names.
    """

    def __init__(self, argument: str, stream: Readable | None = None, choice: str | None = None) -> None:
        self.argument = argument
        self.stream = stream
        self.choice = choice

    @property
    def title(self) -> str:
        """What headings call it."""
        return "standard input" if self.argument == "-" else Path(self.argument).name

    @property
    def shown(self) -> str:
        """What messages call it."""
        name = self.argument
        return "<stdin>" if name == "-" else name if name.isprintable() and len(name) < 1000 else quoted(name)

    @contextmanager
    def _lines(self) -> Iterator[Lines]:
        from ggmltool.sources.sched_log.stream import open_log

        with waiting_for(self.argument, WRITER), open_log(self.argument, self.shown, self.stream) as lines:
            yield lines

    def summary(self) -> LogSummary:
        """All that the log tells, without nodes. Raises ScenarioError."""
        from ggmltool.sources.sched_log.reader import read_summary

        with progress(f"reading {self.title}"), self._lines() as lines:
            return read_summary(lines)

    def all(self, take: Callable[[LogGraph], None]) -> LogSummary:
        """The same, with every graph handed to `take` as it ends. Raises ScenarioError."""
        from ggmltool.sources.sched_log.reader import read_all

        with progress(f"reading {self.title}"), self._lines() as lines:
            return read_all(lines, take)

    def graph(self) -> LogGraph:
        """The chosen graph, by default the first; says so if there are others. Raises ScenarioError."""
        from ggmltool.sources.sched_log.reader import read_graph

        with progress(f"reading {self.title}"), self._lines() as lines:
            graph, more = read_graph(lines, self.choice)
        if graph.inputs_missing or graph.lines_cut:
            from ggmltool.ask.log.text import what_is_cut

            note(f"Graph {graph.number}: {what_is_cut([graph])}")
        if self.choice is None and more:
            note(f"The first graph of the log; `ggmltool import {self.argument}` lists all; --graph N shows another")
        return graph
