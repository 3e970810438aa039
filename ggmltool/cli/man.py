"""`ggmltool man`: the manual page, made from the same words as the help."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import click

from ggmltool.ask.reference.man import CommandPage, Entry, Manual, man_page
from ggmltool.cli.command import Command, common_options
from ggmltool.cli.errors import PROG_NAME, variable_of
from ggmltool.cli.options import output_option
from ggmltool.cli.output import Output
from ggmltool.version import __version__


@click.command(cls=Command)
@output_option
@click.pass_context
def man(ctx: click.Context, output: Output) -> int:
    """Print the manual page, made from the help of all commands.

    \b
    Example:
      ggmltool man -o ggmltool.1
      man ./ggmltool.1
    """
    output.write(man_page(_manual(ctx.find_root())))
    return 0


def manual_page() -> str:
    """What the command prints, for whoever builds a package."""
    from ggmltool.cli.main import cli

    with cli.make_context(PROG_NAME, [], resilient_parsing=True) as root:
        return man_page(_manual(root))


def _manual(root: click.Context) -> Manual:
    group = root.command
    if not isinstance(group, click.Group):
        raise TypeError("the root is not a group")
    common = {option.name for option in common_options()}
    pages = []
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        if command is None:
            continue
        ctx = click.Context(command, info_name=name, parent=root)
        own = (param for param in command.params if param.name not in common)
        pages.append(CommandPage(name, _usage(ctx), inspect.cleandoc(command.help or ""), _entries(own, ctx)))
    return Manual(
        PROG_NAME,
        __version__,
        (group.help or "").rstrip("."),
        _usage(root),
        inspect.cleandoc(group.epilog or ""),
        pages,
        _entries(group.get_params(root), root),
    )


def _usage(ctx: click.Context) -> str:
    return ctx.get_usage().removeprefix("Usage: ").replace("\n", " ")


def _entries(params: Iterable[click.Parameter], ctx: click.Context) -> list[Entry]:
    """The options among `params` as the help shows them."""
    entries = []
    for param in params:
        if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None:
            own = "--help" in param.opts or "--version" in param.opts
            entries.append(Entry(*record, variable="" if own else variable_of(param, ctx)))
    return entries
