"""The command line of `attach`: what of it goes together, and where the program's own options stand."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence

import click
from click.core import ParameterSource

from ggmltool.cli.command import Command

_PLACES = ("remote", "sysroot", "gdb_program")
_ALONE = {
    "gdb": ("It only prints a line for your own gdb, which has the program already.", ()),
    "core": (
        "A core dump stands still at its end.",
        ("output", "force", "redact", "format", "core", "show", "sysroot", "gdb_program"),
    ),
    "until_abort": (
        "It waits for the end of the program alone.",
        ("output", "force", "redact", "format", "timeout", *_PLACES),
    ),
}
"""Options that leave no room for others: why, and those that go with them."""

_FOR = {"tolerance": ("compare",), "worst": ("compare",), "max_bytes": ("values", "compare", "dump")}
"""Options that say more of others, and those."""

_COMMON = {"color", "verbose", "quiet", "traceback", "json", "words"}


class AttachCommand(Command):
    """`attach`, which says where options of the program go if they stand where ours do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it. Raises UsageError."""
        line = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            at = next((i for i, word in enumerate(line) if shutil.which(word)), None)
            if at is None or "--" in line or "--core" in line:
                raise
            better = shlex.join(["ggmltool", "attach", *line[:at], "--", *line[at:]])
            raise click.UsageError(
                f"No such option {error.option_name!r}. Options of the program stand behind `--`: {better}", ctx
            ) from None


def check_together(words: Sequence[str]) -> None:
    """Raises UsageError for options that say nothing where another one stands."""
    ctx = click.get_current_context()
    given = [
        p for p in ctx.command.params
        if p.name and p.name not in _COMMON and ctx.get_parameter_source(p.name) == ParameterSource.COMMANDLINE
    ]  # fmt: skip
    for name, (why, fit) in _ALONE.items():
        if all(p.name != name for p in given):
            continue
        idle = [p.opts[-1] for p in given if p.name not in (name, *fit)]
        if name == "gdb" and words:
            idle.append(shlex.join(words))
        if idle:
            raise click.UsageError(f"--{name.replace('_', '-')}: {why} Leave out {', '.join(idle)}.")
    names = {p.name for p in given}
    for name, others in _FOR.items():
        if name in names and not names.intersection(others):
            listed = " and ".join(f"--{other}" for other in others)
            raise click.UsageError(f"--{name.replace('_', '-')} is for {listed}.")
    if not words and not names & {"core", "gdb", "remote"}:
        raise click.UsageError("name a process by its number, or a program behind `--`")
    if "sysroot" in names and not names & {"core", "remote"}:
        raise click.UsageError("--sysroot is for programs of another machine: --remote HOST:PORT, or --core FILE")
    if "remote" in names and len(words) > 1:
        raise click.UsageError("--remote: the program runs already; name its file alone, without arguments")
