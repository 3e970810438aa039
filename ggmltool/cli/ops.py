"""`ggmltool ops`: the ops of ggml, and one of them in full."""

from __future__ import annotations

from typing import Any

import click

from ggmltool.ask.answer import Answer
from ggmltool.ask.ops import ops as ask_ops
from ggmltool.cli.command import Command
from ggmltool.cli.endings import format_of
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import json_option, output_to
from ggmltool.cli.output import Output


def _complete_ops(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ggmltool.ggml.op import KEY_NAMES

    return [name for name in KEY_NAMES if name.startswith(incomplete.lower())]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_ops)
@click.option("--example", is_flag=True, help="Print only an example scenario of the op NAME.")
@json_option
@output_to(".yaml", ".yml")
def ops(name: str | None, example: bool, json: bool, output: Output) -> int:
    """List the ops of ggml, or show one in full: how it is written, its parameters, where it runs, an example.

    NAME is an op (rope, ROPE, GGML_OP_ROPE), a function of UNARY or GLU (silu, geglu), or a constructor of ggml's
    (rope_ext).

    \b
    Example:
      ggmltool ops
      ggmltool ops soft_max
      ggmltool ops --example rope | ggmltool plan -
    """
    if name is None and example:
        raise click.UsageError("--example needs the NAME of an op.")
    if json and example:
        raise click.UsageError("--example prints a scenario; it does not go with --json.")
    if not example and format_of(output.path) == "yaml":
        raise click.UsageError("only --example writes YAML; name a .txt or .json file.")
    answer: Answer[Any] = ask_ops(name)
    if not example:
        return output.answer(answer, "json" if json else "text")
    if not answer.facts.example:
        raise CliError(f"there is no example of {answer.title}: ggml itself cannot build it.")
    output.write(answer.facts.example)
    return 0
