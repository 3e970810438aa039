"""How long the nodes and copies of a plan take, and by what: the rates of the devices, or a unit for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.estimate.forecast import SOME_HOST, rates_of_devices
from ggmltool.estimate.planned import nodes_of, splits_of
from ggmltool.estimate.records import Estimate, Rates
from ggmltool.estimate.seconds import Estimator, GraphWork, node_seconds
from ggmltool.estimate.timeline import LIKELY, Step, Stretch, time_table
from ggmltool.estimate.work import NodeWork
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.copy_callback import USED_EXPERTS
from ggmltool.inspect.lanes import SECOND, TICK, Clock
from ggmltool.scenario.compiled import Compiled
from ggmltool.scenario.spec import ScenarioSpec

_UNIT = TICK / SECOND


class Batch(NamedTuple):
    """When what is done in one batch of a graph: the `table` of its splits and copies, in seconds; of each node by its
    id the work and the nanoseconds, of each copy before a split the bytes and how it is made."""

    table: Sequence[Stretch]
    steps: Sequence[Step]
    works: Mapping[str, NodeWork]
    node_ns: Mapping[str, int]
    copied: Sequence[Sequence[int]]


class LaneTimes:
    """The times of a model's graphs: estimates where the rates of its devices are known, else a unit for each node and
    each copy. `cached` tokens are in the caches before.
    """

    def __init__(self, model: ScenarioSpec, cached: int = 0) -> None:
        self.model = model
        self.cached = cached
        rates = rates_of_devices(model.backends)
        self.clock = Clock.ORDER if rates is None else Clock.ESTIMATED
        self.rates = rates or {b.name: Rates(b.name, 1.0, 1.0, 1.0, 1.0, 1.0, family=b.family) for b in model.backends}
        self._compiled = Compiled(model)
        self._estimators: dict[str, tuple[Estimator, dict[str, NodeWork]]] = {}

    @property
    def about(self) -> str:
        """Whose times these are."""
        if self.clock is Clock.ORDER:
            return "program order: each node and each copy takes 1 µs, for how fast the devices are is not known"
        named = ", ".join(f"{name} is {rates.name}" for name, rates in self.rates.items() if rates is not SOME_HOST)
        assumed = [name for name, rates in self.rates.items() if rates is SOME_HOST]
        unnamed = f"; {' and '.join(assumed)} not named, taken for {SOME_HOST.name}" if assumed else ""
        return f"estimated, the likely case: {named}{unnamed}; calls of the host take 1 µs each"

    def batch(self, plan: Plan, copies: int) -> Batch:
        """The times of computing a plan once, with so many pipeline copies."""
        estimator, works = self._estimator(plan.graph or "")
        splits = splits_of(plan)
        steps = estimator.steps(splits)
        if self.clock is Clock.ORDER:
            steps = [_in_units(step, split.i_end - split.i_start) for step, split in zip(steps, splits, strict=True)]
            node_ns = {n.id: TICK for n in plan.nodes}
        else:
            node_ns = {n.id: self._ns(works[n.id], n.backend) for n in plan.nodes if n.id in works}
        copied = [[round(estimator.copied_nbytes(c, split)) for c in split.inputs] for split in splits]
        return Batch(time_table(steps, copies), steps, works, node_ns, copied)

    def works(self, graph: str) -> Mapping[str, NodeWork]:
        """The work of each node of a graph, by its id."""
        return self._estimator(graph)[1]

    def _ns(self, work: NodeWork, backend: str | None) -> int:
        return 0 if backend is None else round(node_seconds(work, self.rates[backend])[LIKELY] * SECOND)

    def _estimator(self, graph: str) -> tuple[Estimator, dict[str, NodeWork]]:
        if graph not in self._estimators:
            model = self.model
            nodes = nodes_of(self._compiled, graph)
            work = GraphWork(nodes, self.cached)
            experts = model.release.rules.copies_used_experts or model.scheduler.copy_callback == USED_EXPERTS
            estimator = Estimator(work, self.rates, copies_experts=experts)
            works = {n.id: w for n, w in zip(nodes, work.works, strict=True)}
            self._estimators[graph] = estimator, works
        return self._estimators[graph]


def _in_units(step: Step, nodes: int) -> Step:
    unit = Estimate(_UNIT, _UNIT, _UNIT)
    return step._replace(seconds=unit.times(nodes), copies=tuple(c._replace(seconds=unit) for c in step.copies))
