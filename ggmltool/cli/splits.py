"""`ggmltool splits`: ggml's own text of the splits, or an answer of the question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ggmltool.ask.splits import Splits
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.moment import option_of
from ggmltool.cli.options import raw_option
from ggmltool.cli.output import note, status_of

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened


@question_command(Splits)
@click.option(
    "--debug",
    type=click.IntRange(1, 2),
    help="Print ggml's text for this GGML_SCHED_DEBUG: 1 the splits, 2 their nodes, too (default: 2).",
)
@click.option(
    "--causes/--no-causes",
    default=None,
    help="Print the cause of each assignment (default), or leave it out as ggml's release builds do.",
)
@raw_option
def splits(asking: Asking[Splits[Any]], debug: int | None, causes: bool | None) -> int:
    question, format = asking.question, asking.format
    view = {"after_pass": "pass"}.get(question.view, question.view)
    printed = question.after_pass is not None and format == "text"
    detailed = debug is not None or causes is not None
    if view and not printed and (detailed or format == "text"):
        raise click.UsageError(
            f"--debug, --causes and --format text are for ggml's text; leave them out with {option_of(view)}."
        )
    if format not in (None, "text") and detailed:
        raise click.UsageError(f"--debug and --causes are for ggml's text; leave them out with --format {format}.")
    opened = open_either(asking.scenario, question.graph, asking.release)
    if isinstance(opened, OpenedLog):
        from ggmltool.cli.logs import refuse_moment, refuse_options, refuse_what_if, show_splits

        refuse_moment()
        refuse_what_if()
        refuse_options(
            **{"pass": "shows only the result of all passes", "seconds": "does not have what nodes are made of"}
        )
        return show_splits(opened, question, debug or 2, causes is not False, format, asking.output)
    if printed or (format in (None, "text") and not view):
        return _debug_text(asking, opened, debug or 2, causes is not False)
    return replace(asking, format=format if format in ("json", "csv") else "text").answer(opened)


def _debug_text(asking: Asking[Splits[Any]], opened: Opened, level: int, causes: bool) -> int:
    """ggml's debug print of one step: of its end, or (--pass --format text) of one pass."""
    from ggmltool.ask.splits.sched_debug import debug_text

    question = asking.question
    watched, text = debug_text(question.of(opened), question.moment, level, causes, question.after_pass)
    asking.output.write_ggml(text)
    status = status_of(watched)
    if watched.plan.ok and not watched.plan.nodes:
        note(f"The graph {watched.graph} has no nodes.")
    return status
