"""Commands that look at a moment of a scenario: the options that they share, and how they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    DOCUMENTS,
    format_option,
    ggml_option,
    moment_options,
    output_option,
    scenario_argument,
    what_if_options,
)
from ggmltool.cli.output import Output, status_of
from ggmltool.cli.scenario import open_for, open_scenario
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.inspect.watched import Watched

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ggml.releases.release import Release
    from ggmltool.inspect.record import Record
    from ggmltool.show.document import StepDocument
    from ggmltool.show.table import Style

Ask = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Look:
    """What is looked at, and how: the `moment` of a scenario, the format of the answer (None: the command's own text)
    and where it goes."""

    scenario: str | None
    moment: Moment
    what_if: WhatIf
    format: str | None
    output: Output
    release: Release | None

    @property
    def json(self) -> bool:
        """Whether a document is wanted, which the output writes in its format."""
        return self.format in DOCUMENTS

    @property
    def style(self) -> Style:
        """The room and the colors that a view may use."""
        return self.output.style

    def naming(self, scenario: str | None) -> Look:
        """The same with another scenario, for commands whose last word may be one."""
        return replace(self, scenario=scenario)

    def open(self) -> Opened:
        """The scenario, with the options that stand in for its own. Raises ScenarioError for a mistake in it."""
        return open_scenario(self.scenario, self.release).what_if(self.what_if)

    def open_for(self, name: str, usage: str) -> Opened:
        """The scenario in which something called `name` is looked for, as cli.scenario's."""
        return open_for(name, self.scenario, usage, self.release).what_if(self.what_if)

    def watch(self, record: Record | None = None) -> Watched:
        """The state at the moment."""
        from ggmltool.inspect.watched import watch

        return watch(self.open(), self.moment, record)

    def print(self, answer: Answer[Any]) -> int:
        """Print an answer in the format that is wanted; the exit status."""
        return self.output.answer(answer, self.format or "text")

    def answer(self, at: Watched, result: StepDocument | str, say: bool = True) -> int:
        """Write a view's text, or a document with the step's number where one was named; the exit status.

        ggml's words go to standard error where it refused, unless the result has them (`say` false).
        """
        if isinstance(result, str):
            self.output.write(result)
        else:
            self.output.write_document(result if at.number is None else result.after_step(at.number))
        return status_of(at, say)


def moment_command(
    *formats: str, help: str = "Text (default), or JSON or CSV with exact bytes.", what_if: bool = False
) -> Callable[[Ask], click.Command]:
    """A command whose function is called with a Look, and with the parameters that it has of its own.

    `formats` are text and those of documents if none is named; with `what_if` it has the options of the scheduler, too.
    """

    def decorate(ask: Ask) -> click.Command:
        own: list[click.Parameter] = ask.__dict__.pop("__click_params__", [])

        @wraps(ask)
        def command(
            scenario: str | None,
            moment: Moment,
            format: str | None,
            output: Output,
            release: Release | None,
            what_if: WhatIf | None = None,
            **others: Any,
        ) -> int:
            return ask(Look(scenario, moment, what_if or WhatIf(), format, output, release), **others)

        decorated: Any = ggml_option(
            format_option(*(formats or ("text", *DOCUMENTS)), help=help)(output_option(command))
        )
        decorated.__click_params__ += [param for param in own if isinstance(param, click.Option)]
        if what_if:
            decorated = what_if_options(decorated)
        decorated = scenario_argument(moment_options(decorated))
        decorated.__click_params__ += [param for param in own if isinstance(param, click.Argument)]
        return click.command(cls=Command)(decorated)

    return decorate


def choose(**asked: object) -> str:
    """Which of these parameters stands for a view of its own, "" for none. Raises UsageError if two of them do."""
    names = [name for name, value in asked.items() if value not in (None, False, ())]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(map(option_of, names))} are different views; choose one.")
    return names[0] if names else ""


def option_of(name: str) -> str:
    """How a parameter of the command that runs is written on the command line."""
    params = click.get_current_context().command.params
    return next(param.opts[-1] for param in params if param.name == name)
