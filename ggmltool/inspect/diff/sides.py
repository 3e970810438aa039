"""One side of a difference: a scenario at a moment, with the reasons and the memory of its plan."""

from __future__ import annotations

from functools import partial
from itertools import chain
from shlex import join
from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.events import Refused
from ggmltool.inspect.diff.side import Held, HeldBuffer, Side
from ggmltool.inspect.diff.switches import turned_plans
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.record import Keep, Record
from ggmltool.inspect.watched import watch

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec


def scenario_side(opened: Opened, moment: Moment) -> Side:
    """A scenario at a moment, with the reasons and the memory of its plan. Raises ScenarioError and InspectError."""
    watched = watch(opened, moment, Record(Keep.DECISIONS | Keep.MEMORY))
    decisions, memory = watched.record.decisions, watched.record.memory
    buffers = [HeldBuffer(b.buft.name, USAGE_NAMES[b.usage], b.size) for b in watched.run.buffers]
    return Side(
        watched.plan,
        opened.tensors(watched.graph),
        memory,
        decisions.settled,
        decisions.started,
        _held(opened.model),
        buffers,
        decisions.order,
        _again(opened, moment),
        refused=frozenset((e.tensor, e.backend) for e in chain(*decisions.said.values()) if isinstance(e, Refused)),
        tails=frozenset(memory.tails),
        turned=partial(turned_plans, opened, moment),
    )


def _again(opened: Opened, moment: Moment) -> str:
    """How to name it behind a command that knows of graphs and steps, but not of other options of the scheduler."""
    if opened.options or opened.argument == "-":
        return ""
    words = [] if moment.graph is None else ["--graph", moment.graph]
    words += [] if moment.after is None else ["--after", str(moment.after)]
    words += ["--step", moment.step] if moment.after is None and moment.step != "alloc" else []
    return join([*words, opened.argument])


def _held(model: ScenarioSpec) -> list[Held]:
    """The tensors of the contexts that are allocated at once, without views."""
    from ggmltool.ggml.tensor import nbytes_of

    return [
        Held(t.id, context.buft, context.usage, nbytes_of(t.type, t.ne, t.nb))
        for context in model.contexts
        if context.buft is not None
        for t in context.tensors
        if t.view_src is None
    ]
