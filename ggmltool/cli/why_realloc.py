"""Whether the plan that was reserved for one graph serves another, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import click

from ggmltool.cli.errors import GGML_FAILED, CliError
from ggmltool.cli.options import WhatIf
from ggmltool.cli.output import log_lines
from ggmltool.cli.scenario import Opened, is_scenario, open_scenario
from ggmltool.cli.sides import with_graph
from ggmltool.ggml.events import Event, Grown, IdsChanged, Logged, ReallocNeeded
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.scenario.run import Run
from ggmltool.views.errors import ggml_error
from ggmltool.views.explain_realloc import GraphFacts, Parting, ReallocFacts


class Side(NamedTuple):
    """A graph of a scenario, and what it is called."""

    opened: Opened
    graph: str
    called: str


@dataclass(slots=True)
class Heard:
    """A listener: why the plan does not serve, with all that has outgrown it then, and which buffers are made anew."""

    sched: Scheduler | None = None
    why: ReallocNeeded | IdsChanged | None = None
    outgrown: list[ReallocNeeded] = field(default_factory=list)
    grown: list[Grown] = field(default_factory=list)
    parting: Parting | None = None
    log: list[str] = field(default_factory=list)

    def listen(self, sched: Scheduler) -> None:
        """Hear from now on, as if of a debug build of ggml."""
        self.sched = sched
        if sched.gallocr.debug_log is None:
            sched.gallocr.debug_log = self.log.append

    def __call__(self, event: Event) -> None:
        if self.sched is None:
            return
        if isinstance(event, Logged) and event.level == "debug":
            self.log.append(event.text)
        elif isinstance(event, Grown):
            self.grown.append(event)
        elif isinstance(event, (ReallocNeeded, IdsChanged)) and self.why is None:
            self.why = event
            self._look(self.sched)

    def _look(self, sched: Scheduler) -> None:
        """The old plan still stands, and the new graph is there."""
        gallocr = sched.gallocr
        if len(gallocr.planned_nodes) == len(sched.nodes):
            self.outgrown = list(gallocr.outgrown(sched.nodes))
        self.parting = _parting(gallocr.planned_nodes, sched.nodes)


def named_sides(given: list[str], graph: str | None, what_if: WhatIf) -> tuple[str, Side, Side]:
    """The two graphs that the command line names, and a title: two graphs of one scenario (the third word, else the
    one that is taken by default), or two scenarios with their graphs. Raises UsageError, CliError and ScenarioError.
    """
    named = [with_graph(word) for word in given[:2]]
    if len(given) == 2 and all(is_scenario(file) for file, _ in named):
        opened = {file: open_scenario(file).what_if(what_if) for file, _ in dict(named).items()}
        sides = [
            Side(opened[file], opened[file].scenario.graph_name(at or graph), word)
            for (file, at), word in zip(named, given, strict=True)
        ]
        return "two scenarios" if len(opened) > 1 else sides[0].opened.title, sides[0], sides[1]
    if graph is not None:
        raise click.UsageError("The graphs are named already; leave --graph out.")
    only = open_scenario(given[2] if len(given) > 2 else None).what_if(what_if)
    one, other = (Side(only, only.scenario.graph_name(name), name) for name in given[:2])
    return only.title, one, other


def _parting(old: list[Tensor], new: list[Tensor]) -> Parting | None:
    """The first place where two graphs have different ops."""
    for i in range(max(len(old), len(new))):
        a, b = (f"{nodes[i].label} ({op_desc(nodes[i])})" if i < len(nodes) else "" for nodes in (old, new))
        if not a or not b or op_desc(old[i]) != op_desc(new[i]):
            return Parting(i, a, b)
    return None


def explain_realloc(first: Side, second: Side) -> ReallocFacts:
    """Reserve one graph, allocate the other, as a program would do on one scheduler.

    Raises CliError where the two have different devices, or ggml refuses one of them.
    """
    for side in (first, second):
        release = side.opened.model.release
        if "reserve" not in release.steps:
            raise CliError(
                f"ggml {release.name} keeps no plan that could serve another graph; there is one since 2024-02-11. "
                "What was measured is all the memory there is: `check` shows how full it is"
            )
    heard = Heard()
    before, after, sched = _both(first, second, heard)
    alone, reverse, _ = _both(second, first, other := Heard())
    return ReallocFacts(
        first=before,
        second=after,
        alone=alone.buffers,
        why=heard.why,
        outgrown=tuple(heard.outgrown),
        parting=heard.parting,
        grown=tuple(heard.grown),
        log=tuple(heard.log),
        debug_realloc=first.opened.model.release.debug_realloc,
        backends=tuple(sched.names),
        n_buffers=len(sched.gallocr.buffers),
        serves_back=other.why is None and reverse.size > 0,
    )


def _both(first: Side, second: Side, heard: Heard) -> tuple[GraphFacts, GraphFacts, Scheduler]:
    run = first.opened.scenario.start(heard)
    plan = run.reserve(first.graph)
    sched = _went_on(run, plan, first)
    before = _facts(sched, first, run)
    behind = run
    if second.opened is not first.opened:
        _check_same_devices(first, second)
        behind = second.opened.scenario.start()
        behind.start_behind(run)
    heard.listen(sched)
    plan = behind.alloc(second.graph)
    _went_on(behind, plan, second)
    return before, _facts(sched, second, behind), sched


def _went_on(run: Run, plan: Plan, side: Side) -> Scheduler:
    log_lines(plan.log)
    if run.sched is None or plan.error is not None:
        raise CliError(f"{side.called}: {ggml_error(dict(plan.error or ()))}", GGML_FAILED)
    return run.sched


def _check_same_devices(first: Side, second: Side) -> None:
    one, other = first.opened.model, second.opened.model
    if (one.backends, one.buffer_types) != (other.backends, other.buffer_types):
        raise CliError(f"{first.called} and {second.called} have different backends; one scheduler serves both")


def _facts(sched: Scheduler, side: Side, run: Run) -> GraphFacts:
    """The scheduler's graph, with copies and dependencies."""
    graph, _ = run.newest[side.graph]
    splits = sched.splits[: sched.n_splits]
    inputs = len(sched.graph_inputs) + sum(len(s.inputs) for s in splits)
    size = sched.own_graph_size(graph)
    sizes = tuple(sched.get_buffer_size(b) for b in range(len(sched.backends)))
    return GraphFacts(side.called, len(sched.nodes), len(sched.leafs), len(splits), inputs, size, sizes)
