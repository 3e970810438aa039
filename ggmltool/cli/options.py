"""The options that commands share, one decorator each."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ggmltool.cli.complete import complete_graphs, complete_pair, complete_releases, complete_scenarios
from ggmltool.cli.output import Output, ending_of, format_of, refusal

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release

F = TypeVar("F", bound=Callable[..., Any])

_MOST_OPERATIONS = 1e30


def scenario_argument(command: F) -> F:
    """SCENARIO: a file, `-` for standard input, a sample's name; None if none is named."""
    return click.argument("scenario", required=False, metavar="[SCENARIO]", shell_complete=complete_scenarios)(command)


def scenarios_argument(command: F) -> F:
    """SCENARIO...: any number of them, a tuple."""
    return click.argument(
        "scenario", nargs=-1, required=False, metavar="[SCENARIO]...", shell_complete=complete_scenarios
    )(command)


def graph_option(command: F) -> F:
    """--graph: which graph; None for the first."""
    return click.option(
        "-g", "--graph", metavar="NAME", shell_complete=complete_graphs, help="Name of the graph (default: the first)."
    )(command)


def work_option(command: F) -> F:
    """--max-operations: how large a product may be that is computed; the scenario's bounds have it."""
    return click.option(
        "--max-operations",
        metavar="N",
        expose_value=False,
        callback=_keep_operations,
        envvar="GGMLTOOL_MAX_OPERATIONS",
        help="Compute nodes of up to N multiply-adds, e.g. 1e13 (default: 4e11, some ten seconds).",
    )(command)


def _keep_operations(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    from ggmltool.ggml.bounds import MAX_OPERATIONS

    try:
        number = float(MAX_OPERATIONS if value is None else value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number, e.g. 1e13.", ctx, param) from None
    if not 1 <= number <= _MOST_OPERATIONS:
        raise click.BadParameter(f"{value} is not between 1 and {_MOST_OPERATIONS:.0e}.", ctx, param)
    ctx.meta["ggmltool.operations"] = int(number)


class ReleaseOption(click.Option):
    """An option whose help names the `{releases}`; the table of them is read when somebody wants the help."""

    @property
    def help(self) -> str | None:
        """The help with the names filled in."""
        from ggmltool.ggml.releases.table import listed

        return None if self._help is None else self._help.format(releases=listed())

    @help.setter
    def help(self, text: str | None) -> None:
        self._help = text


def ggml_option(command: F) -> F:
    """--ggml: which release of ggml decides, the parameter `release`; None: the scenario's own."""
    return click.option(
        "--ggml",
        "release",
        metavar="VERSION",
        callback=one_release,
        envvar="GGMLTOOL_GGML",
        shell_complete=complete_releases,
        cls=ReleaseOption,
        help="Decide as this ggml does: {releases}. Overrides the scenario.",
    )(command)


def ggml_pair_option(command: F) -> F:
    """--ggml A,B: the releases of ggml that decide the two sides of a comparison, the parameter `releases`: two, one
    that decides both, or none."""
    return click.option(
        "--ggml",
        "releases",
        metavar="VERSION[,VERSION]",
        callback=_two_releases,
        envvar="GGMLTOOL_GGML",
        shell_complete=complete_pair,
        help="Decide as this ggml does, overriding the scenarios; two: A by the first, B by the second.",
    )(command)


def one_release(ctx: click.Context, param: click.Parameter, value: str | None) -> Release | None:
    """The release that an option names, None if it names none. Raises BadParameter for a name that none has."""
    return None if value is None else _release(ctx, param, value)


def _two_releases(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[Release, ...]:
    releases = () if value is None else tuple(_release(ctx, param, name.strip()) for name in value.split(","))
    if len(releases) > 2:
        raise click.BadParameter("one version, or two separated by a comma.", ctx, param)
    return releases


def _release(ctx: click.Context, param: click.Parameter, name: str) -> Release:
    from ggmltool.cli.errors import suggestion
    from ggmltool.ggml.releases.table import BY_NAME, RELEASES, nearly

    if name not in BY_NAME:
        near = nearly(name)
        hint = f" ggml {name}: {near}." if near else suggestion(name, BY_NAME)
        raise click.BadParameter(f"{name!r} is not one of {', '.join(RELEASES)}.{hint}", ctx, param)
    return BY_NAME[name]


def no_other_step(*names: str) -> None:
    """Refuse options that say which step is looked at, beside one that says it already. Raises UsageError."""
    ctx = click.get_current_context()
    for name in names:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--after names a step, which has its own graph; leave out --{name}.")


def option_of(name: str) -> str:
    """How a parameter of the command that runs is written on the command line."""
    params = click.get_current_context().command.params
    return next(param.opts[-1] for param in params if param.name == name)


class Pipeline(click.Option):
    """An option of which help shows the last name only."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its names and its help."""
        record = super().get_help_record(ctx)
        return None if record is None else (f"{self.opts[-1]} / {self.secondary_opts[-1]}", record[1])


def depth_option(command: F) -> F:
    """-d, for estimates: the tokens that the caches hold already."""
    return click.option(
        "-d",
        "--n-depth",
        type=click.IntRange(0, 1 << 30),
        metavar="N",
        default=0,
        show_default=True,
        help="Of estimated seconds: the tokens that the caches hold before, as llama-bench has it.",
    )(command)


def zeros_option(command: F) -> F:
    """--zeros: compute with weights that have no values."""
    return click.option("--zeros", is_flag=True, help="Compute even if weights have no values: they are zero.")(command)


def memory_option(command: F) -> F:
    """--memory-check: refuse what does not fit into the machine's memory."""
    return click.option(
        "--memory-check/--no-memory-check",
        default=True,
        expose_value=False,
        callback=_keep,
        help="Stop before computing if it needs more memory than is free on this machine (default), or try.",
    )(command)


def json_option(command: F) -> F:
    """-f/--format text|json|csv with its short cuts, together the parameter `json`: whether a document is wanted, which
    the Output writes in its format."""

    @wraps(command)
    def with_json(*args: object, format: str | None, **kwargs: object) -> object:
        return command(*args, json=format in DOCUMENTS, **kwargs)

    help = "Text (default), or JSON or CSV with exact bytes."
    return format_option("text", *DOCUMENTS, help=help)(cast(F, with_json))


DOCUMENTS = ("json", "csv")
"""The formats of documents, which an Output writes."""


_SHORT = (*DOCUMENTS, "perfetto")
"""The formats that have an option of their own, too."""


def format_option(*formats: str, help: str) -> Callable[[F], F]:
    """-f/--format, one of `formats` or None, the parameter `format`; --json and --csv are short for it where documents
    are among them, and --rows names the table that is written as CSV."""

    def decorate(command: F) -> F:
        if "csv" in formats:
            command = click.option(
                "--rows", metavar="TABLE", expose_value=False, is_eager=True, callback=_keep,
                help="The table that --csv writes (`help json`).",
            )(command)  # fmt: skip
        for format in (format for format in reversed(_SHORT) if format in formats):
            command = click.option(
                f"--{format}", is_flag=True, expose_value=False, is_eager=True, callback=_keep,
                help=f"Short for --format {format}.",
            )(command)  # fmt: skip
        return click.option("-f", "--format", "format", type=click.Choice(formats), callback=_format, help=help)(
            command
        )

    return decorate


def _table(ctx: click.Context) -> str | None:
    """The table that is wanted as CSV, "" for the main one, None for no CSV. Raises click.UsageError."""
    rows = ctx.meta.get("ggmltool.rows")
    if ctx.params.get("format") == "csv":
        return rows or ""
    if rows and ctx.get_parameter_source("rows") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--rows names a table that --csv writes; add --csv, or leave it out.", ctx)
    return None


def output_option(command: F) -> F:
    """-o/--output and --force, together the parameter `output`, an Output. The ending of the file's name is the format
    where no other option names one."""
    return output_to()(command)


class _OutputFile(click.Option):
    """-o, the endings of files whose format the command knows by itself, and whether it has text for any other."""

    def __init__(self, *args: Any, own: tuple[str, ...] = (), text: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.own = own
        self.text = text


def output_to(*endings: str, text: bool = True) -> Callable[[F], F]:
    """As output_option, for a command that knows by itself what a file with one of these endings holds; without `text`
    it refuses all others but those of its formats."""

    def decorate(command: F) -> F:
        @wraps(command)
        def with_output(*args: object, output: Path | None, **kwargs: object) -> object:
            ctx = click.get_current_context()
            _check_ending(ctx, output)
            force, raw = (bool(ctx.meta.get(f"ggmltool.{flag}")) for flag in ("force", "raw"))
            where = Output(output, force, raw, _table(ctx))
            where.check()
            return command(*args, output=where, **kwargs)

        force = click.option(
            "--force", is_flag=True, expose_value=False, is_eager=True, callback=_keep, help="Overwrite the file."
        )
        return click.option(
            "-o",
            "--output",
            "output",
            cls=_OutputFile,
            own=endings,
            text=text,
            metavar="FILE",
            type=click.Path(path_type=Path, allow_dash=True),
            is_eager=True,
            callback=_output,
            help="Write to a file instead of standard output (`-`); its extension selects the format.",
        )(force(cast(F, with_output)))

    return decorate


def _check_ending(ctx: click.Context, path: Path | None) -> None:
    """Refuse a file whose name asks for another format than it would get. Raises click.UsageError."""
    if path is None:
        return
    choices = (p.type.choices for p in ctx.command.params if p.name == "format" and isinstance(p.type, click.Choice))
    formats = [str(choice) for choice in next(choices, ())]
    file = _output_file(ctx)
    refused = refusal(path, formats, ctx.params.get("format"), file.own, file.text)
    if refused is not None:
        raise click.UsageError(refused, ctx)


def _output_file(ctx: click.Context) -> _OutputFile:
    """The command's -o."""
    return next(param for param in ctx.command.params if isinstance(param, _OutputFile))


def raw_option(command: F) -> F:
    """--raw, for commands that print ggml's own text: the terminal gets its bytes."""
    return click.option(
        "--raw",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_keep,
        help="Print ggml's text byte for byte on a terminal, too; by default control characters in names are escaped "
        "there.",
    )(command)


def _keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep a value for the callback of the option that it belongs to."""
    ctx.meta[f"ggmltool.{param.name}"] = value


def _format(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    short = [format for format in _SHORT if ctx.meta.get(f"ggmltool.{format}")]
    if short:
        others = [f"--{format}" for format in short[1:]] + (
            [f"--format {value}"] if value not in (None, *short) else []
        )
        if others:
            raise click.UsageError(f"--{short[0]} and {others[0]} contradict each other.", ctx)
        return short[0]
    path = ctx.meta.get("ggmltool.output")
    named = None if path is None or ending_of(path) in _output_file(ctx).own else format_of(path)
    asked = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
    can = isinstance(param.type, click.Choice) and named in param.type.choices
    return named if can and not asked else value


def _output(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    """The file, which the format's own callback has to know; None for standard output."""
    path = None if value is None or str(value) == "-" else value
    ctx.meta["ggmltool.output"] = path
    return path
