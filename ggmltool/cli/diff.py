"""`ggmltool diff`: what differs between two plans, and where they part first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.complete import complete_sides
from ggmltool.cli.errors import suggestion
from ggmltool.cli.options import ggml_pair_option, json_option, moment_options, output_option, what_if_options
from ggmltool.cli.output import Output
from ggmltool.inspect.opened import Moment, WhatIf

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release

PARTS = ("nodes", "splits", "copies", "buffers", "sizes", "contexts")
OF_LOGS = PARTS[:3]
"""What a log can tell."""


def _parts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """`splits,buffers` as names of parts; all of them by default."""
    if value is None:
        return PARTS
    parts = tuple(part.strip() for part in value.split(","))
    for part in parts:
        if part not in PARTS:
            hint = suggestion(part, PARTS) or f" The parts are {', '.join(PARTS)}."
            raise click.BadParameter(f"{part!r} is not a part to compare.{hint}", ctx, param)
    return parts


def _complete_parts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    *before, last = incomplete.split(",")
    return [",".join([*before, part]) for part in PARTS if part.startswith(last) and part not in before]


@click.command(cls=Command)
@click.argument("scenario", required=False, metavar="[A[:GRAPH]]", shell_complete=complete_sides)
@click.argument("other", required=False, metavar="[B[:GRAPH]]", shell_complete=complete_sides)
@moment_options
@what_if_options
@click.option(
    "--only",
    "parts",
    metavar="PARTS",
    envvar="GGMLTOOL_DIFF_ONLY",
    callback=_parts,
    shell_complete=_complete_parts,
    help=f"Compare only some of {', '.join(PARTS)}; they alone decide the exit status.",
)
@click.option("--brief", is_flag=True, help="Only say whether the plans differ, and in which parts.")
@ggml_pair_option
@json_option
@output_option
def diff(
    scenario: str | None,
    other: str | None,
    moment: Moment,
    what_if: WhatIf,
    parts: tuple[str, ...],
    brief: bool,
    releases: tuple[Release, ...],
    json: bool,
    output: Output,
) -> int:
    """Show what differs between two plans, and the first node where they diverge.

    Nodes are matched by id, else by name, else by what they are computed from. Only ggml's decisions are compared, not
    values and parameters. Exit status as diff's: 0 no difference, 1 a difference (or ggml fails on one of the plans), 2
    wrong use or a bad file.

    One scenario and an option of the scheduler: its plans without and with that option are compared. Graphs of a
    GGML_SCHED_DEBUG=2 log are compared with another (`LOG:1 LOG:3`) or with a scenario, as far as a log tells.

    One scenario and two versions of ggml: it is planned by each, and each rule of ggml that changed between them is
    named with what it did to this graph.

    \b
    Example:
      ggmltool diff before.yaml after.yaml
      ggmltool diff --step reserve model.yaml:prompt model.yaml:token
      ggmltool diff --pipeline model.yaml
      ggmltool diff --ggml 0.20.2,0.26 model.yaml
      ggmltool diff model.json.gz llama.log:2
    """
    from ggmltool.ask.diff import PARTS_OF_LOGS
    from ggmltool.ask.diff import diff as ask_diff
    from ggmltool.cli.log_views import refuse_options
    from ggmltool.cli.sides import open_sides

    if brief and json:
        raise click.UsageError("--brief is a line of text; --json says whether they differ in `same`.")
    titles, (a, b) = open_sides(scenario, other, moment, what_if, releases)
    if (a.is_log or b.is_log) and set(parts) - set(PARTS_OF_LOGS):
        refuse_options(parts=f"has no shapes and no memory; it has {', '.join(PARTS_OF_LOGS)}")
    return output.answer(ask_diff(a, b, titles, parts, brief), "json" if json else "text")
