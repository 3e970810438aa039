"""`ggmltool import`: what a log of GGML_SCHED_DEBUG tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import FINE, GGML_FAILED
from ggmltool.cli.options import json_option, output_option
from ggmltool.cli.output import Output, note

if TYPE_CHECKING:
    pass


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
    from ggmltool.ask.log.record import whole_rows
    from ggmltool.cli.logs import OpenedLog
    from ggmltool.sources.sched_log.reader import HOW_TO_LOG

    opened = OpenedLog(log, choice=graph)
    if graph is not None:
        from ggmltool.cli.log_views import show_plan

        return show_plan(opened, json, output)
    summary, graphs = whole_rows(opened.all) if json and nodes else (opened.summary(), None)
    if not summary.graphs and not summary.aborts:
        note(f"There is no graph in this log; {HOW_TO_LOG}")
    if json:
        from ggmltool.ask.log.record import LogDocument

        output.write_document(LogDocument.of(summary, opened.shown, graphs))
    else:
        from ggmltool.ask.log.text import log_view

        output.write(log_view(summary, opened.title, output.style))
    return GGML_FAILED if summary.aborts else FINE
