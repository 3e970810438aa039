"""The two plans that `diff` compares: what the command line names, and what is known of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, NamedTuple

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.log_plan import log_plan
from ggmltool.cli.log_views import refuse_moment, refuse_what_if
from ggmltool.cli.logs import OpenedLog, open_either
from ggmltool.cli.options import Moment, WhatIf
from ggmltool.cli.scenario import Opened, tensor_infos
from ggmltool.cli.watched import Watch
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.events import Assigned, Freed, Refused, SplitStarted
from ggmltool.scenario.samples import find_sample
from ggmltool.views.diff_side import Held, HeldBuffer, Side, Titles
from ggmltool.views.memory import memory_plan

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event
    from ggmltool.ggml.sched.scheduler import Scheduler
    from ggmltool.scenario.model import Model


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
    a: str | None, b: str | None, moment: Moment, what_if: WhatIf, releases: Sequence[str] = ()
) -> tuple[Titles, tuple[Side, Side]]:
    """What A and B are called, and their plans. Without `b`, A has the options of `what_if` the other way round.

    `releases` are the two of ggml that plan A and B, empty where both are planned by one. Raises UsageError,
    ScenarioError and CliError.
    """
    if a is None or (b is None and not str(what_if) and not releases):
        raise click.UsageError(
            "Name two scenarios, or one and what to compare it with: --ggml 2024-01,0.20.2 or an option such as "
            "--no-parallel."
        )
    mine = what_if.opposite if b is None and not releases else what_if
    asked = [
        Asked(name, options, ggml)
        for name, options, ggml in zip((a, b or a), (mine, what_if), releases or (None, None), strict=True)
    ]
    opened: dict[tuple[str, str | None], Opened | OpenedLog] = {}
    sides = []
    for side in asked:
        file, graph = with_graph(side.argument)
        if graph is not None and moment.after is not None:
            raise click.UsageError(f"--after names a step, which has its graph; leave :{graph} out.")
        if (file, side.ggml) not in opened:
            if file == "-" and opened:
                raise CliError("standard input can be read only once; write it to a file to compare two releases")
            opened[file, side.ggml] = open_either(file, ggml=side.ggml)
        elif isinstance(log := opened[file, side.ggml], OpenedLog) and log.stream is not None:
            raise CliError("a log can be read from standard input only once; write it to a file to compare its graphs")
        at = moment if graph is None else moment._replace(graph=graph)
        sides.append(_side(opened[file, side.ggml], at, side.what_if))
    return _titles(asked), (sides[0], sides[1])


def _side(opened: Opened | OpenedLog, moment: Moment, what_if: WhatIf) -> Side:
    if not isinstance(opened, OpenedLog):
        return scenario_side(opened.what_if(what_if), moment)
    refuse_moment()
    refuse_what_if()
    opened.choice = moment.graph
    graph = opened.graph()
    if graph.level == 1:
        raise CliError("this graph was printed with GGML_SCHED_DEBUG=1, which leaves the nodes out; 2 prints them")
    plan, tensors = log_plan(graph)
    return Side(plan, tensors, is_log=True)


class Asked(NamedTuple):
    """One side as the command line has it."""

    argument: str
    what_if: WhatIf
    ggml: str | None = None

    def title(self, whole: bool) -> str:
        """What it is called: with the `whole` path or without, and with its options."""
        name = self.argument if whole else Path(self.argument).name
        name = "standard input" + name[1:] if name.startswith("-") else name
        ggml = "" if self.ggml is None else f"--ggml {self.ggml}"
        return " ".join(filter(None, (name, ggml, str(self.what_if))))


def _titles(asked: Sequence[Asked]) -> Titles:
    """As short as they can be told apart."""
    short = [side.title(whole=False) for side in asked]
    same = short[0] == short[1] and asked[0] != asked[1]
    return Titles(*(side.title(whole=True) for side in asked)) if same else Titles(*short)


def scenario_side(opened: Opened, moment: Moment) -> Side:
    """A scenario at a moment, with the reasons and the memory of its plan. Raises ScenarioError and CliError."""
    events: list[Event] = []
    order: list[str] = []

    def started(sched: Scheduler) -> None:
        sched.on_pass = passed

    def passed(number: int, sched: Scheduler) -> None:
        if number == len(sched.passes) - 1:
            order[:] = [n.id for n in sched.seen_graphs[-1].nodes]

    watched = Watch(opened, moment, events.append, started).watched()
    buffers = [HeldBuffer(b.buft.name, USAGE_NAMES[b.usage], b.size) for b in watched.run.buffers]
    return Side(
        watched.plan,
        tensor_infos(opened.model, watched.graph),
        memory_plan(events),
        {event.tensor: event.reason for event in events if isinstance(event, Assigned)},
        _starts(events),
        _held(opened.model),
        buffers,
        order,
        _again(opened, moment),
        origins={event.tensor: event.by for event in events if isinstance(event, Assigned)},
        refused=frozenset((event.tensor, event.backend) for event in events if isinstance(event, Refused)),
        tails=frozenset(event.tensor for event in events if isinstance(event, Freed) and event.extra),
    )


def _again(opened: Opened, moment: Moment) -> str:
    """How to name it behind a command that knows of graphs and steps, but not of other options of the scheduler."""
    if opened.options or opened.argument == "-":
        return ""
    words = [] if moment.graph is None else ["--graph", moment.graph]
    words += [] if moment.after is None else ["--after", str(moment.after)]
    words += ["--step", moment.step] if moment.after is None and moment.step != "alloc" else []
    return join([*words, opened.argument])


def _starts(events: Iterable[Event]) -> list[str]:
    """Why each split of the last graph that was split begins."""
    starts: list[str] = []
    for event in events:
        if isinstance(event, SplitStarted):
            starts[event.split :] = [event.reason]
    return starts


def _held(model: Model) -> list[Held]:
    """The tensors of the contexts that are allocated at once, without views."""
    from ggmltool.ggml.tensor import nbytes_of

    return [
        Held(t.id, context.buft, context.usage, nbytes_of(t.type, t.ne, t.nb))
        for context in model.contexts
        if context.buft is not None
        for t in context.tensors
        if t.view_src is None
    ]
