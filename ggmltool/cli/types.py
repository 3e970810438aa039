"""`ggmltool types`: the types of ggml, one of them in full, and ggml's tables of values."""

from __future__ import annotations

import click

from ggmltool.ask.types import table as ask_table
from ggmltool.ask.types import types as ask_types
from ggmltool.cli.command import Command
from ggmltool.cli.options import DOCUMENTS, format_option, output_option
from ggmltool.cli.output import Output
from ggmltool.cli.table_entries import chosen

TABLE_NAMES = ("fp16", "gelu", "gelu_quick", "silu", "exp", "e8m0", "ue4m3")


def _complete_types(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ggmltool.ggml.dtypes import TYPES

    return [name for name in TYPES if name.lower().startswith(incomplete.lower())]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_types)
@click.option("--table", type=click.Choice(TABLE_NAMES), help="Show a lookup table of ggml's CPU backend.")
@click.option(
    "--range",
    nargs=2,
    metavar="FROM TO",
    help="Which entries: values of x (-4 4), or indices, which are the bits of x (0x0000 0x0004).",
)
@click.option("--every", metavar="STEP", help="The step from one entry to the next, of x or of the index.")
@click.option("--at", multiple=True, metavar="X", help="The entry of this x or index; may be given more than once.")
@format_option("table", *DOCUMENTS, help="A table (default), JSON or CSV.")
@output_option
def types(
    name: str | None,
    table: str | None,
    range: tuple[str, str] | None,
    every: str | None,
    at: tuple[str, ...],
    format: str | None,
    output: Output,
) -> int:
    """List the types of ggml, or show one in full: block and type size, conversions, the type it is multiplied with.

    --table shows the values that ggml looks up instead of computing them: fp16 (f16 as f32), gelu, gelu_quick, and the
    scales of mxfp4 (e8m0) and nvfp4 (ue4m3); silu and exp as older releases had them.

    \b
    Example:
      ggmltool types
      ggmltool types q4_K
      ggmltool types --table gelu --range -2 2 --every 0.25
      ggmltool types --table fp16 --range 0x0000 0x0004
    """
    if table is not None:
        if name is not None:
            raise click.UsageError("--table takes no NAME; the entries are chosen by --range, --every and --at.")
        return output.answer(ask_table(table, chosen(table, range, every, at)), format or "text")
    if range or every or at:
        raise click.UsageError("--range, --every and --at choose the entries of a --table.")
    return output.answer(ask_types(name), format or "text")
