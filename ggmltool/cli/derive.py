"""The command of a question: its options are the question's fields, and it prints the answer."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from ggmltool.ask.moment import OfMoment
from ggmltool.ask.question import Argument, BadValue, Misuse, Option, Question, name_of
from ggmltool.cli import complete
from ggmltool.cli.command import Command
from ggmltool.cli.errors import wrong_use
from ggmltool.cli.numbers import MOST, NumberOrWord, SeveralNumbers
from ggmltool.cli.options import (
    DOCUMENTS,
    Pipeline,
    format_option,
    ggml_option,
    memory_option,
    no_other_step,
    output_to,
    raw_option,
    scenario_argument,
    work_option,
)
from ggmltool.cli.output import Output
from ggmltool.cli.scenario import is_scenario, open_for, open_scenario

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ggml.releases.release import Release
    from ggmltool.inspect.opened import Opened

Q = TypeVar("Q", bound=Question[Any])


@dataclass(frozen=True, slots=True)
class Asking(Generic[Q]):
    """A question on the command line: of which scenario, and how its answer is printed. `usage` names the command and
    the words that it needs, of which `word` is the last one."""

    question: Q
    scenario: str | None
    format: str | None
    output: Output
    release: Release | None
    usage: str = ""
    word: str = ""
    scenarios: tuple[str, ...] = ()
    """Those of a command that takes several."""

    @property
    def json(self) -> bool:
        """Whether a document is wanted, which the output writes in its format."""
        return self.format in DOCUMENTS

    def open(self) -> Opened:
        """The scenario. Raises ScenarioError for a mistake in it."""
        if self.word:
            return open_for(self.word, self.scenario, self.usage, self.release)
        return open_scenario(self.scenario, self.release)

    def answer(self, opened: Opened | None = None) -> int:
        """Ask, and print the answer; the exit status."""
        return self.print(self.question.ask(opened or self.open()))

    def print(self, answer: Answer[Any]) -> int:
        """Print an answer; the exit status."""
        return self.output.answer(answer, self.format or self.question.formats[0])


class _Parameters:
    """What the fields of a question are on the command line."""

    def __init__(self, question: type[Question[Any]]) -> None:
        self.name = name_of(question)
        self.words: dict[str, tuple[Argument, bool]] = {}
        self.options: dict[str, click.Option] = {}
        self.implied: list[str] = []
        self.own_after = 0
        """After how many options those of the command alone stand."""
        hints = get_type_hints(question, include_extras=True)
        shared = next(cls for cls in question.__mro__[1:] if issubclass(cls, Question)).__struct_fields__
        for field in sorted(fields(question), key=partial(_place, question)):
            type, about = get_args(hints[field.name]) if field.name not in question.only_python else (None, None)
            if isinstance(about, Argument):
                self.words[field.name] = about, field.default is NODEFAULT
            elif isinstance(about, Option):
                default = field.default if about.implied is None else about.implied
                self.options[field.name] = _option(field.name, type, default, about)
                self.implied += [field.name] if about.implied is not None else []
                if field.name == question.own_after or (not question.own_after and field.name in shared):
                    self.own_after = len(self.options)

    @property
    def usage(self) -> str:
        """The words, as usage shows them."""
        return " ".join(word.metavar if needed else f"[{word.metavar}]" for word, needed in self.words.values())

    def arguments(self) -> list[click.Parameter]:
        """A parameter for each word; one for all where the last ones can be left out."""
        if not all(needed for _, needed in self.words.values()):
            return [click.Argument(["names"], nargs=-1, metavar=self.usage, shell_complete=complete.complete_words)]
        return [
            click.Argument([name], metavar=word.metavar, shell_complete=_completer(word.complete))
            for name, (word, _) in self.words.items()
        ]

    def take_words(self, given: dict[str, Any], scenario: str | None) -> tuple[dict[str, str], str | None]:
        """The words by field, and the scenario: where a word can be left out, the last one is a scenario if there is
        one of its name."""
        if "names" not in given:
            return {field: given.pop(field) for field in self.words}, scenario
        found = [*given.pop("names"), *([scenario] if scenario is not None else [])]
        least = sum(needed for _, needed in self.words.values())
        if not least <= len(found) <= len(self.words) + 1:
            raise click.UsageError(f"Usage: `{self.name} {self.usage} [SCENARIO]`.")
        has_one = len(found) > len(self.words) or (len(found) > least and is_scenario(found[-1]))
        scenario = found.pop() if has_one else None
        return dict(zip(self.words, found, strict=False)), scenario

    def make(self, question: type[Q], given: dict[str, Any], words: dict[str, str]) -> Q:
        """The question, with what is wrong with it said of options."""
        values = {field: given.pop(option.name or "") for field, option in self.options.items()}
        values |= dict.fromkeys(field for field in self.implied if _is_default(self.options[field]))
        if issubclass(question, OfMoment) and values["after"] is not None:
            no_other_step("graph", "step")
        try:
            return question(**words, **{field: value for field, value in values.items() if value is not None})
        except Misuse as misuse:
            one, other = (self.options[field].opts[-1] for field in misuse.fields)
            why = misuse.why or "{} and {} are different views; choose one."
            raise click.UsageError(why.format(one, other)) from None
        except BadValue as bad:
            raise click.BadParameter(bad.message, click.get_current_context(), self.options[bad.field]) from None


def command(question: type[Q], run: Callable[..., int] | None = None) -> Command:
    """The command that asks a question and prints the answer.

    With `run` that does it: it is called with an Asking, and with the parameters that it has of its own. Its options
    stand between those that the question shares with others and its own; its arguments beside the scenario. What is
    called as a parameter of the frame stands in for that.
    """
    own: list[click.Parameter] = [] if run is None else run.__dict__.pop("__click_params__", [])[::-1]
    known = _Parameters(question)

    def ask(
        scenario: str | tuple[str, ...] | None,
        format: str | None,
        output: Output,
        release: Release | None = None,
        **given: Any,
    ) -> int:
        scenarios, scenario = (scenario, None) if isinstance(scenario, tuple) else ((), scenario)
        words, scenario = known.take_words(given, scenario)
        usage = " ".join([known.name, *(word.metavar for word, needed in known.words.values() if needed)])
        *_, last = ("", *words.values())
        with wrong_use():
            made = known.make(question, given, words)
            asking = Asking(made, scenario, format, output, release, usage, last, scenarios)
            return asking.answer() if run is None else run(asking, **given)

    framed: Any = format_option(*question.formats, help=question.formats_help)(output_to(*question.endings)(ask))
    framed = ggml_option(framed) if question.of_release else framed
    arguments = [*known.arguments(), *_made_by(scenario_argument)]
    frame: list[click.Parameter] = framed.__click_params__[::-1]
    for param in own:
        among = arguments if isinstance(param, click.Argument) else frame
        same = next((n for n, other in enumerate(among) if {*other.opts} & {*param.opts}), None)
        if same is not None:
            among[same] = param
        elif among is arguments:
            among.insert(0, param) if param.nargs == -1 else among.append(param)
    options: list[click.Parameter] = [*known.options.values()]
    options[known.own_after : known.own_after] = [p for p in own if p not in arguments and p not in frame]
    shared = {
        raw_option: question.in_ggmls_words,
        memory_option: "memory" in question.bounds,
        work_option: "operations" in question.bounds,
    }
    options += (param for option, wanted in shared.items() if wanted for param in _made_by(option))
    params = [*arguments, *options, *frame]
    return Command(known.name, params=params, callback=framed, help=question.__doc__)


def _made_by(decorator: Callable[[Any], Any]) -> list[click.Parameter]:
    """The parameters that an option's decorator gives a command."""
    made: list[click.Parameter] = decorator(lambda: None).__click_params__
    return made


def _is_default(option: click.Option) -> bool:
    source = click.get_current_context().get_parameter_source(option.name or "")
    return source is click.core.ParameterSource.DEFAULT


def question_command(question: type[Question[Any]]) -> Callable[[Callable[..., int]], Command]:
    """The decorator for a function that asks a question in its own way."""
    return partial(command, question)


def _place(question: type[Question[Any]], field: FieldInfo) -> int:
    """Where its option stands: what is shared with others before what is its own, but for `first`."""
    if field.name in question.first:
        return question.first.index(field.name) - len(question.first)
    return next(n for n, cls in enumerate(question.__mro__[::-1]) if field.name in vars(cls).get("__annotations__", ()))


def _option(name: str, type: Any, default: Any, about: Option) -> click.Option:
    kinds = get_args(type) if get_origin(type) in (types.UnionType, Union) else (type,)
    long = f"--{name.replace('_', '-')}"
    own = [alias for alias in about.names if "--" in alias]
    more: dict[str, Any] = {"default": default or None, "help": about.help}
    if about.complete:
        more["shell_complete"] = _completer(about.complete)
    choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    if choices:
        more |= {"type": click.Choice(choices), "show_default": default is not None}
    elif Sequence[int] in kinds and about.words:
        more |= {"type": SeveralNumbers(about.least or 0, about.most or MOST, False, **about.words)}
    elif get_origin(type) is Sequence or about.repeats:
        more["multiple"] = True
    elif str in kinds:
        more["show_default"] = bool(about.shows)
    elif bool in kinds:
        both = types.NoneType in kinds or default is True
        long = f"{long}/--no-{long[2:]}" if both else long
        more |= {} if types.NoneType in kinds else {"is_flag": True, "default": default}
        more |= {"cls": Pipeline} if len(own) > 1 else {}
    elif int in kinds or float in kinds:
        bounded = about.least is not None or about.most is not None
        number, range = (int, click.IntRange) if int in kinds else (float, click.FloatRange)
        more["type"] = range(about.least, about.most) if bounded else number
        if about.words:
            more["type"] = NumberOrWord(about.least, about.most, **about.words)
        more |= {"default": default, "show_default": default is not None and about.shows is not False}
    elif Path in kinds:
        more["type"] = click.Path(path_type=Path)
    if about.metavar is not None:
        more["metavar"] = about.metavar
    made: click.Option = more.pop("cls", click.Option)([*about.names, *([] if own else [long])], **more)
    return made


def _completer(name: str) -> Callable[[click.Context, click.Parameter, str], Iterable[Any]]:
    completer: Callable[[click.Context, click.Parameter, str], Iterable[Any]] = getattr(complete, f"complete_{name}")
    return completer
