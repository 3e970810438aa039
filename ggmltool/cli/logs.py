"""Logs of GGML_SCHED_DEBUG on the command line: in place of a scenario, and what `ggmltool import` tells of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError
from ggmltool.cli.options import DOCUMENTS, json_option, option_of, output_option
from ggmltool.cli.output import Output, note
from ggmltool.cli.progress import WRITER, progress, waiting_for
from ggmltool.scenario.errors import quoted
from ggmltool.show.text import plan_step

if TYPE_CHECKING:
    from ggmltool.ask.splits import Splits
    from ggmltool.ggml.releases.release import Release
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.text.text import Readable
    from ggmltool.sources.sched_log.records import LogGraph, LogSummary
    from ggmltool.sources.sched_log.stream import LogLines


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
    def _lines(self) -> Iterator[LogLines]:
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


def refuse(what: str, why: str) -> CliError:
    """The one message for what a log cannot tell."""
    return CliError(f"{what} needs a scenario: a log {why}")


def refuse_options(**reasons: str) -> None:
    """Refuse those of these options that stand on the command line. Raises CliError."""
    ctx = click.get_current_context()
    for name, why in reasons.items():
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise refuse(option_of(name), why)


def refuse_moment() -> None:
    """Refuse --step and --after. Raises CliError."""
    refuse_options(step="shows what was printed, reserve or alloc", after="has no steps")


def refuse_what_if() -> None:
    """Refuse --pipeline and --op-offload. Raises CliError."""
    made = "shows a plan that was made with its own options"
    refuse_options(pipeline=made, op_offload=made)


def show_plan(log: OpenedLog, json: bool, output: Output) -> int:
    """`plan LOG` and `import --graph N LOG`."""
    from ggmltool.ask.log.record import graph_answer

    graph = log.graph()
    more = f"ggmltool splits --format table --graph {graph.number} {log.argument}"
    return output.answer(graph_answer(graph, log.shown, log.title, more), "json" if json else "text")


def show_splits(
    log: OpenedLog, question: Splits[Any], debug: int, causes: bool, format: str | None, output: Output
) -> int:
    """`splits LOG`: ggml's text without what stood before or within its lines, a table, counts or copies."""
    by = question.keys
    if "type" in by:
        raise refuse("--by type", "has no types")
    graph = log.graph()
    if by and graph.level == 1:
        raise CliError("this graph was printed with GGML_SCHED_DEBUG=1, which leaves out the nodes; 2 prints them")
    if "cause" in by and not any(node.cause for node in graph.nodes):
        raise CliError("this log has no causes; only a debug build of ggml prints them")
    if format in (None, "text") and not question.view:
        from ggmltool.ask.splits.sched_debug import sched_debug
        from ggmltool.sources.sched_log.records import as_debug

        counts = all(node.use_count is not None for node in graph.nodes)
        output.write_ggml(sched_debug(as_debug(graph), debug, causes, counts))
        return 0
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.log.text import log_graph_notes
    from ggmltool.sources.sched_log.plan import log_plan

    plan, tensors = log_plan(graph)
    for text in log_graph_notes(graph):
        note(text)
    answer = Answer(question.of_plan(plan, tensors), log.title, plan_step(plan), plan)
    return output.answer(answer, format if format in DOCUMENTS else "text")


def _complete_files(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


@click.command("import", cls=Command)
@click.argument("log", metavar="LOG", shell_complete=_complete_files)
@click.option(
    "-g",
    "--graph",
    metavar="N|TITLE",
    help="Show one graph, by its number or a part of its title (the first match).",
)
@click.option(
    "--nodes/--no-nodes",
    default=True,
    show_default=True,
    help="With --json: all graphs with splits and nodes, or only the summary.",
)
@json_option
@output_option
def import_(log: str, graph: str | None, nodes: bool, json: bool, output: Output) -> int:
    """Summarize a GGML_SCHED_DEBUG=2 log: its graphs, how often buffers were reallocated and why, memory.

    LOG is a file, also .gz, or `-`. It may come from any ggml since 2024, with time stamps and levels before or within
    its lines. A log has no shapes, no types and no view nodes; names and ops are cut; sizes are whole K or M, and shown
    as the two numbers of bytes they lie between. So a log cannot become a scenario, but `splits`, `plan` and `dot
    --style ggmltool` take one in place of a scenario, with --graph N or TITLE.

    From a log without graphs (a program that only loads a model, or that died) it shows what was allocated, what failed
    and where ggml aborted; then the exit status is 1, and `explain error LOG` says what it means.

    \b
    Make one:
      GGML_SCHED_DEBUG=2 llama-cli -m model.gguf -v -p hello 2> llama.log

    \b
    Example:
      ggmltool import llama.log
      ggmltool import --graph "n_tokens = 512" llama.log
      ggmltool splits --by op,backend --graph 3 llama.log
    """
    from ggmltool.ask.log.record import LogDocument, log_answer, whole_rows
    from ggmltool.sources.sched_log.reader import HOW_TO_LOG

    opened = OpenedLog(log, choice=graph)
    if graph is not None:
        return show_plan(opened, json, output)
    summary, graphs = whole_rows(opened.all) if json and nodes else (opened.summary(), None)
    if not summary.graphs and not summary.aborts:
        note(f"There is no graph in this log; {HOW_TO_LOG}")
    answer = log_answer(summary, opened.shown, opened.title)
    if not json:
        return output.answer(answer, "text")
    output.write_document(LogDocument.of(summary, opened.shown, graphs))
    return FINE if answer.fine else GGML_FAILED
