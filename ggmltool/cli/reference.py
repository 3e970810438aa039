"""What there is to read: pages of the manual, schemas, samples, ops and types."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from ggmltool.ask.answer import Answer
from ggmltool.ask.ops import ops as ask_ops
from ggmltool.ask.reference.man import CommandPage, Entry, Manual, man_page
from ggmltool.ask.reference.record import sample_infos
from ggmltool.ask.types import table as ask_table
from ggmltool.ask.types import types as ask_types
from ggmltool.cli.command import Command, common_options
from ggmltool.cli.errors import PROG_NAME, CliError, suggestion, variable_of
from ggmltool.cli.main import COMMANDS
from ggmltool.cli.options import DOCUMENTS, format_option, json_option, output_option, output_to
from ggmltool.cli.output import Output, ending_of, format_of
from ggmltool.scenario.samples import sample_name, samples
from ggmltool.version import __version__

PAGES = Path(__file__).resolve().parent.parent / "docs"


def _complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in (*_pages(), *COMMANDS) if name.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("topic", required=False, metavar="[TOPIC]", shell_complete=_complete_topics)
@json_option
@output_option
@click.pass_context
def help(ctx: click.Context, topic: str | None, json: bool, output: Output) -> int:
    """Show a page of the manual, or list the pages. TOPIC can also be a command, whose --help is shown.

    A terminal gets the page laid out; a pipe or a file gets Markdown.

    \b
    Example:
      ggmltool help scenario
      ggmltool help
    """
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.reference.record import Page, TopicInfo, Topics

    pages = _pages()
    if topic is None:
        infos = tuple(TopicInfo(name, text.partition("\n")[0].removeprefix("# ")) for name, text in pages.items())
        return output.answer(Answer(Topics(topics=infos)), "json" if json else "text")
    if topic in pages:
        if not json and not output.to_terminal:
            output.write(pages[topic])
            return 0
        return output.answer(Answer(Page(topic=topic, text=pages[topic])), "json" if json else "text")
    root = ctx.find_root()
    group = root.command
    command = group.get_command(root, topic) if isinstance(group, click.Group) else None
    if command is None:
        hint = suggestion(topic, (*pages, *COMMANDS)) or " `ggmltool help` lists the topics."
        raise CliError(f"there is no help on {topic!r}.{hint}")
    if json:
        raise click.UsageError("--json has pages of the manual, not the help of a command.")
    with click.Context(command, info_name=topic, parent=root) as inner:
        output.write(command.get_help(inner) + "\n")
    return 0


def _pages() -> dict[str, str]:
    """The pages by topic."""
    return {path.stem: path.read_text("utf-8") for path in sorted(PAGES.glob("*.md"))}


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


def _complete_schemas(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names() if name.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_schemas)
@json_option
@output_option
def schema(name: str | None, json: bool, output: Output) -> int:
    """Print a JSON Schema, or list them. NAME is `scenario`, the file that an editor completes and checks with its
    schema, or the `kind` of what a command prints with --json.

    \b
    Example:
      ggmltool schema
      ggmltool schema plan -o plan.schema.json
      ggmltool schema scenario -o scenario.schema.json
    """
    if name is None:
        from ggmltool.ask.answer import Answer
        from ggmltool.ask.reference.schemas import schemas

        return output.answer(Answer(schemas()), "json" if json else "text")
    import json as library

    output.write(library.dumps(_schema(name), indent=2, ensure_ascii=False) + "\n")
    return 0


def _names() -> list[str]:
    """The names of the schemas."""
    from ggmltool.ask.reference.schemas import schemas

    return [schema.name for schema in schemas().schemas]


def _schema(name: str) -> dict[str, Any]:
    from ggmltool.ask.reference.schemas import kinds, schema_of
    from ggmltool.scenario.errors import did_you_mean

    if name == "scenario":
        from ggmltool.scenario.schema import scenario_schema

        return scenario_schema()
    there = kinds()
    if name not in there:
        hint = did_you_mean(name, _names()) or "`ggmltool schema` lists them"
        raise CliError(f"no document is called {name!r}; {hint}")
    return schema_of(name, there[name])


def _complete_samples(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in map(sample_name, samples()) if name.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete_samples)
@json_option
@output_to(".yaml", ".yml", ".json")
def sample(name: str | None, json: bool, output: Output) -> int:
    """List the samples, or print one of them: a commented scenario that teaches one thing.

    Graphs captured from a real model are compressed; they are printed uncompressed unless -o names a .gz file.

    \b
    Example:
      ggmltool sample
      ggmltool sample priority -o graph.yaml
    """
    if name is None:
        return output.answer(Answer(sample_infos()), "json" if json or ending_of(output.path) == ".json" else "text")
    if json:
        raise click.UsageError("--json lists the samples; it does not go with a name.")
    paths = {sample_name(path): path for path in samples()}
    path = paths.get(name) or next((p for p in paths.values() if p.name == name), None)
    if path is None:
        hint = suggestion(name, paths) or " `ggmltool sample` lists them."
        raise CliError(f"no sample is called {name!r}.{hint}")
    data = path.read_bytes()
    if path.suffix == ".gz":
        import gzip

        data = gzip.decompress(data)
    elif ending_of(output.path) == ".json":
        raise CliError(f"{name} is a YAML file; name it {name}.yaml")
    output.write(data)
    return 0


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


_BYTE_TABLES = frozenset(("e8m0", "ue4m3"))
_LARGEST = 65504.0
"""The largest finite f16."""


def chosen(table: str, bounds: Sequence[str] | None, every: str | None, at: Iterable[str]) -> list[int]:
    """The indices of the entries, in the order asked for. Raises UsageError for what is no index and no number.

    An index is written in hexadecimal; of the tables of f16 other numbers are values of x.
    """
    bits = 8 if table in _BYTE_TABLES else 16
    listed = [_index(text, bits) for text in at]
    if bounds is None and every is None and listed:
        return listed
    if bounds is None:
        bounds = ("-4", "4") if bits == 16 else ("0x00", "0xff")
    if _is_index(bounds[0], bits) != _is_index(bounds[1], bits):
        raise click.UsageError("--range takes two values of x or two indices, not one of each.")
    if _is_index(bounds[0], bits):
        low, high = (_index(text, bits) for text in bounds)
        step = _whole(every) if every is not None else 1 if bits == 16 else 8
        return [*range(low, high + 1, step), *listed]
    return [*_by_value(_value(bounds[0]), _value(bounds[1]), 0.5 if every is None else _value(every)), *listed]


def _by_value(low: float, high: float, step: float) -> list[int]:
    """The f16 nearest to low, low + step … up to high, each once."""
    if not all(map(math.isfinite, (low, high, step))) or step <= 0:
        raise click.UsageError("--range takes finite numbers, and --every one above 0.")
    if max(abs(low), abs(high)) > _LARGEST:
        raise click.UsageError(f"the largest f16 is {_LARGEST:g}; --at inf shows the entry of infinity.")
    steps = (high - low) / step
    if steps >= 1 << 16:
        raise click.UsageError(
            "that is more than the 65536 entries of the table; --range 0x0000 0xffff shows all of them."
        )
    values = (low + i * step for i in range(math.floor(steps + 1e-9) + 1)) if steps >= 0 else ()
    return list(dict.fromkeys(_half(min(x, high)) for x in values))


def _is_index(text: str, bits: int) -> bool:
    return bits == 8 or text.lower().startswith("0x")


def _index(text: str, bits: int) -> int:
    """The index in `text`, or the index of its value of x."""
    if not _is_index(text, bits):
        return _half(_value(text))
    try:
        index = int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not an index; write it as 0x{'0' * (bits // 4)}.") from None
    if not 0 <= index < 1 << bits:
        raise click.UsageError(f"{text} is not an index; indices go from 0x0 to 0x{(1 << bits) - 1:x}.")
    return index


def _whole(text: str) -> int:
    """A step of indices."""
    try:
        step = int(text, 0)
    except ValueError:
        step = 0
    if step < 1:
        raise click.UsageError(f"--every of indices takes a whole number above 0, not {text!r}.")
    return step


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not a number; write a value of x, or an index as 0x3c00.") from None


def _half(x: float) -> int:
    """The bits of the f16 nearest to `x`; infinity for what is too large."""
    try:
        return int(struct.unpack("<H", struct.pack("<e", x))[0])
    except OverflowError:
        return 0x7C00 if x > 0 else 0xFC00
