"""The command of a question: its options are the question's fields, and it prints the answer."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click
from msgspec import NODEFAULT
from msgspec.structs import fields

from ggmltool.ask.moment import OfMoment
from ggmltool.ask.question import Argument, Misuse, Option, Question
from ggmltool.cli import complete
from ggmltool.cli.command import Command
from ggmltool.cli.errors import wrong_use
from ggmltool.cli.options import Pipeline, format_option, ggml_option, no_other_step, output_option, scenario_argument
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import is_scenario, open_for, open_scenario

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release

Completer = Callable[[click.Context, click.Parameter, str], list[Any]]


def command(question: type[Question[Any]]) -> Command:
    """The command that asks a question of a scenario."""
    hints = get_type_hints(question, include_extras=True)
    options: dict[str, click.Option] = {}
    words: dict[str, tuple[Argument, bool]] = {}
    for field in fields(question):
        type, about = get_args(hints[field.name])
        if isinstance(about, Argument):
            words[field.name] = about, field.default is NODEFAULT
        elif field.name not in question.only_python:
            options[field.name] = _option(field.name, type, field.default, about)
    name = question.__name__.lower()

    def run(scenario: str | None, format: str | None, output: Output, release: Release | None, **given: Any) -> int:
        named, scenario = _words(name, words, given, scenario)
        if issubclass(question, OfMoment) and given["after"] is not None:
            no_other_step("graph", "step")
        values = {field: given[option.name] for field, option in options.items() if option.name is not None}
        with wrong_use():
            try:
                asked = question(**named, **values)
            except Misuse as misuse:
                raise click.UsageError(_spelled(misuse, options)) from None
            usage = " ".join([name, *(word.metavar for word, needed in words.values() if needed)])
            opened = (
                open_for(list(named.values())[-1], scenario, usage, release)
                if named
                else open_scenario(scenario, release)
            )
            return output.answer(asked.ask(opened), format or question.formats[0])

    framed: Any = ggml_option(format_option(*question.formats, help=question.formats_help)(output_option(run)))
    scenarios: Any = scenario_argument(lambda: None)
    params = [*_arguments(words), *scenarios.__click_params__, *options.values(), *reversed(framed.__click_params__)]
    return Command(name, params=params, callback=framed, help=question.__doc__)


def _option(name: str, type: Any, default: Any, about: Option) -> click.Option:
    kinds = get_args(type) if get_origin(type) in (types.UnionType, Literal) else (type,)
    long = f"--{name.replace('_', '-')}"
    own = [alias for alias in about.names if alias.startswith("--")]
    more: dict[str, Any] = {"default": default, "help": about.help}
    if about.complete:
        more["shell_complete"] = getattr(complete, f"complete_{about.complete}")
    if get_origin(type) is Literal:
        more |= {"type": click.Choice(kinds), "show_default": True}
    elif bool in kinds:
        long = f"{long}/--no-{long[2:]}" if types.NoneType in kinds else long
        more |= {"is_flag": True} if types.NoneType not in kinds else {}
        more |= {"cls": Pipeline} if len(own) > 1 else {}
    elif about.least is not None or about.most is not None:
        more["type"] = click.IntRange(about.least, about.most)
    elif int in kinds:
        more["type"] = int
    elif Path in kinds:
        more["type"] = click.Path(path_type=Path)
    if about.metavar is not None:
        more["metavar"] = about.metavar
    made: click.Option = more.pop("cls", click.Option)([*about.names, *([] if own else [long])], **more)
    return made


def _arguments(words: dict[str, tuple[Argument, bool]]) -> list[click.Parameter]:
    """A parameter for each word; one for all where the last ones can be left out."""
    if all(needed for _, needed in words.values()):
        return [
            click.Argument([name], metavar=word.metavar, shell_complete=getattr(complete, f"complete_{word.complete}"))
            for name, (word, _) in words.items()
        ]
    usage = " ".join(word.metavar if needed else f"[{word.metavar}]" for word, needed in words.values())
    return [click.Argument(["names"], nargs=-1, metavar=usage, shell_complete=complete.complete_words)]


def _words(
    name: str, words: dict[str, tuple[Argument, bool]], given: dict[str, Any], scenario: str | None
) -> tuple[dict[str, str], str | None]:
    """The words by field, and the scenario: where a word can be left out, the last one is a scenario if there is one of
    its name."""
    if "names" not in given:
        return {field: given[field] for field in words}, scenario
    found = [*given["names"], *([scenario] if scenario is not None else [])]
    least = sum(needed for _, needed in words.values())
    if not least <= len(found) <= len(words) + 1:
        usage = " ".join(word.metavar if needed else f"[{word.metavar}]" for word, needed in words.values())
        raise click.UsageError(f"Usage: `{name} {usage} [SCENARIO]`.")
    scenario = found.pop() if len(found) > len(words) or (len(found) > least and is_scenario(found[-1])) else None
    return dict(zip(words, found, strict=False)), scenario


def _spelled(misuse: Misuse, options: dict[str, click.Option]) -> str:
    """What is wrong, with the fields as they are written on the command line."""
    one, other = (options[field].opts[-1] for field in misuse.fields)
    return (misuse.why or "{} and {} are different views; choose one.").format(one, other)
