"""`ggmltool diff`, and two plans or graphs as the command line names them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ggmltool.ask.diff import PARTS_OF_LOGS, Diff
from ggmltool.ask.diff.side import DiffSide, Titles, log_side, scenario_side
from ggmltool.ask.explain.realloc import Side as ReallocSide
from ggmltool.ask.moment import OfMoment
from ggmltool.cli.complete import complete_sides
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import CliError
from ggmltool.cli.logs import OpenedLog, open_either, refuse_moment, refuse_options, refuse_what_if
from ggmltool.cli.options import ggml_pair_option
from ggmltool.cli.scenario import is_scenario, open_scenario
from ggmltool.inspect.opened import Moment, Opened, WhatIf
from ggmltool.scenario.samples import find_sample

if TYPE_CHECKING:
    from ggmltool.ggml.releases.release import Release


@question_command(Diff)
@click.argument("scenario", required=False, metavar="[A[:GRAPH]]", shell_complete=complete_sides)
@click.argument("other", required=False, metavar="[B[:GRAPH]]", shell_complete=complete_sides)
@ggml_pair_option
def diff(asking: Asking[Diff], other: str | None, releases: tuple[Release, ...]) -> int:
    question = asking.question
    if question.brief and asking.json:
        raise click.UsageError("--brief is a line of text; --json says whether they differ in `same`.")
    titles, (a, b) = open_sides(asking.scenario, other, question, releases)
    if (a.is_log or b.is_log) and set(question.parts) - set(PARTS_OF_LOGS):
        refuse_options(only=f"has no shapes and no memory; it has {', '.join(PARTS_OF_LOGS)}")
    return asking.print(question.between(a, b, titles))


def with_graph(argument: str) -> tuple[str, str | None]:
    """`FILE:GRAPH` as file and graph; the graph is None where a file or a sample has the whole name.

    >>> with_graph("-"), with_graph("-:decode")
    (('-', None), ('-', 'decode'))
    """
    file, colon, graph = argument.rpartition(":")
    if not colon or _is_there(argument) or not _is_there(file):
        return argument, None
    return file, graph


def _is_there(name: str) -> bool:
    return name == "-" or os.path.lexists(name) or find_sample(name) is not None


def open_sides(
    a: str | None, b: str | None, question: Diff, releases: Sequence[Release]
) -> tuple[Titles, tuple[DiffSide, DiffSide]]:
    """What A and B are called, and their plans. Without `b`, A has the options of the scheduler the other way round.

    `releases` are the two of ggml that plan A and B, or the one that plans both; none: their own. Raises UsageError,
    ScenarioError and CliError.
    """
    moment, what_if = question.moment, question.what_if
    both = releases[0] if len(releases) == 1 else None
    releases = releases if len(releases) == 2 else ()
    if a is None or (b is None and not str(what_if) and not releases):
        raise click.UsageError("Name two scenarios, or one with --ggml 0.20.2,0.26 or an option such as --no-pipeline.")
    mine = what_if.opposite if b is None and not releases else what_if
    asked = [
        GivenSide(name, options, release)
        for name, options, release in zip((a, b or a), (mine, what_if), releases or (None, None), strict=True)
    ]
    opened: dict[tuple[str, Release | None], Opened | OpenedLog] = {}
    sides = []
    for side in asked:
        file, graph = with_graph(side.argument)
        if graph is not None and moment.after is not None:
            raise click.UsageError(f"--after names a step, which has its own graph; leave out :{graph}.")
        if (file, side.release) not in opened:
            if file == "-" and opened:
                raise CliError("standard input can be read only once; write it to a file to compare two releases")
            opened[file, side.release] = open_either(file, release=side.release or both)
        elif isinstance(log := opened[file, side.release], OpenedLog) and log.stream is not None:
            raise CliError("a log can be read from standard input only once; write it to a file to compare its graphs")
        at = moment if graph is None else moment._replace(graph=graph)
        sides.append(_side(opened[file, side.release], at, side.what_if))
    return _titles(asked), (sides[0], sides[1])


def _side(opened: Opened | OpenedLog, moment: Moment, what_if: WhatIf) -> DiffSide:
    if not isinstance(opened, OpenedLog):
        return scenario_side(opened.what_if(what_if), moment)
    refuse_moment()
    refuse_what_if()
    opened.choice = moment.graph
    return log_side(opened.graph())


class GivenSide(NamedTuple):
    """One side as the command line has it."""

    argument: str
    what_if: WhatIf
    release: Release | None = None

    def title(self, whole: bool) -> str:
        """What it is called: with the `whole` path or without, and with its options."""
        name = self.argument if whole else Path(self.argument).name
        name = "standard input" + name[1:] if name.startswith("-") else name
        ggml = "" if self.release is None else f"--ggml {self.release.name}"
        return " ".join(filter(None, (name, ggml, str(self.what_if))))


def _titles(asked: Sequence[GivenSide]) -> Titles:
    """As short as they can be told apart."""
    short = [side.title(whole=False) for side in asked]
    same = short[0] == short[1] and asked[0] != asked[1]
    return Titles(*(side.title(whole=True) for side in asked)) if same else Titles(*short)


def named_sides(
    given: list[str], question: OfMoment[Any], release: Release | None
) -> tuple[str, ReallocSide, ReallocSide]:
    """The two graphs that the command line names, and a title: two graphs of one scenario (the third word, else the
    one that is taken by default), or two scenarios with their graphs. Raises UsageError, CliError and ScenarioError.
    """
    named = [with_graph(word) for word in given[:2]]
    if len(given) == 2 and all(is_scenario(file) for file, _ in named):
        opened = {file: question.of(open_scenario(file, release)) for file, _ in dict(named).items()}
        sides = [
            ReallocSide(opened[file], opened[file].scenario.graph_name(at or question.graph), word)
            for (file, at), word in zip(named, given, strict=True)
        ]
        return "two scenarios" if len(opened) > 1 else sides[0].opened.title, sides[0], sides[1]
    if question.graph is not None:
        raise click.UsageError("The graphs are already named; leave out --graph.")
    only = question.of(open_scenario(given[2] if len(given) > 2 else None, release))
    one, other = (ReallocSide(only, only.scenario.graph_name(name), name) for name in given[:2])
    return only.title, one, other
