"""Scenarios whose devices are turned into recorded ones: asked every question of the graphs, and written down.

Compared are the plans of both, step by step, also when the scenario has been dumped and loaded again, and those of the
real library with mocks that answer as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import ggmltool
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.devices.questions import question, size_question
from ggmltool.ggml.devices.recorded import RECORDED, Order, RecordedAnswer, RecordedAnswers
from ggmltool.ggml.errors import Error
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.oracle import run_many
from ggmltool.scenario.dump import dump
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import BackendSpec, BufferTypeSpec, ScenarioSpec
from tests.conformance.compare import compare_runs
from tests.conformance.fuzz import scenario
from tests.conformance.run import Outcome, engine_run, planning_only

if TYPE_CHECKING:
    from ggmltool.ggml.sched.state import SchedulerState


def recorded(model: ScenarioSpec) -> ScenarioSpec:
    """The same scenario with devices that have answers. Raises GgmlError where ggml would make no devices of it."""
    run = LoadedScenario(model).start()
    run.start()
    tensors = _tensors(run, model)
    known = {b.name for b in model.buffer_types} | {b.device.buft.name for b in run.backends}
    further = [_spec_of(t) for name, t in run.bufts.items() if name not in known and name != "CPU"]
    sizes = {name: _sizes(buft, tensors) for name, buft in run.bufts.items()}
    orders = _orders(model)
    backends = [_recorded(run, i, tensors, sizes, model, orders) for i in range(len(run.backends))]
    return replace(model, backends=backends, buffer_types=[*model.buffer_types, *further])


def _tensors(run: Run, model: ScenarioSpec) -> list[Tensor]:
    """All that devices may be asked about, as the scheduler sees them."""
    out: list[Tensor] = [t for t in run.persistent if t is not None]
    for name in model.graphs:
        graph = run.build(name)
        out += [*graph.nodes, *graph.leafs]
        out += [s for n in graph.nodes for s in n.src if s is not None]
    return out


def _orders(model: ScenarioSpec) -> dict[str, dict[frozenset[str], Order]]:
    """In which order each device leaves its splits; none where it orders the same nodes in two ways."""
    out: dict[str, dict[frozenset[str], Order]] = {b.name: {} for b in model.backends}
    run = LoadedScenario(model).start()
    for step in model.steps:
        run.step(step)
        sched = cast("SchedulerState", run.sched)
        if run.plans and not run.plans[-1].ok:
            break
        for split in sched.splits[: sched.n_splits]:
            kept = ((n.id, tuple(t.label for t in sched.kept.get(n.index, ()))) for n in split.nodes)
            order = Order(tuple(n.id for n in split.nodes), tuple((n, tensors) for n, tensors in kept if tensors))
            if out[sched.names[split.backend_id]].setdefault(frozenset(order.nodes), order) != order:
                return {}
    return out


def _sizes(buft: BufferType, tensors: Sequence[Tensor]) -> dict[Any, int]:
    out = {}
    for t in tensors:
        copy = Tensor(t.type, t.ne, t.nb)
        for asked in (t, copy):
            try:
                out[size_question(asked)] = buft.get_alloc_size(asked)
            except Error:
                # It would refuse this one in the plan, too.
                out[size_question(asked)] = buft.alloc_size(asked) if buft.alloc_size is not None else asked.nbytes
    return out


def _spec_of(buft: BufferType) -> BufferTypeSpec:
    max_size = None if buft.max_size == SIZE_MAX else buft.max_size
    return BufferTypeSpec(buft.name, buft.device, buft.alignment, max_size, buft.row_padding, buft.host)


def _recorded(run: Run, i: int, tensors: Sequence[Tensor], sizes: Any, model: ScenarioSpec, known: Any) -> BackendSpec:
    spec, backend = model.backends[i], run.backends[i]
    device, buft = backend.device, backend.device.buft
    ops = {}
    for t in tensors:
        try:
            ops[question(t)] = RecordedAnswer(device.supports_op(t), device.offload_op(t))
        except Error:
            continue
    own = [name for name, t in run.bufts.items() if t.device == spec.name]
    orders = device.graph_optimize is not None
    left = tuple(known[spec.name].values()) if orders and known else ()
    return BackendSpec(
        spec.name,
        RECORDED,
        type=device.type,
        buft=buft.name if buft.name != spec.name else None,
        alignment=buft.alignment,
        max_size=None if buft.max_size == SIZE_MAX else buft.max_size,
        row_padding=buft.row_padding,
        host=buft.host,
        supports_bufts=tuple(name for name, t in run.bufts.items() if device.supports_buft(t)),
        offload_min_batch=spec.offload_min_batch,
        never_offloads=spec.never_offloads,
        events=device.events,
        memory=device.memory,
        graph_optimize=None if orders else False,
        like=spec.profile if (orders and not left) or profiles_of(model.release)[spec.profile].slack else None,
        answers=RecordedAnswers(ops, {name: sizes[name] for name in own if sizes[name]}, left),
    )


def differences(seeds: Sequence[int], release: str, with_library: bool = False) -> Iterator[tuple[int, list[str]]]:
    """What is otherwise with recorded devices, by seed."""
    make = partial(scenario, inputs_anywhere=not RELEASES[release].ops.inputs_are_leafs)
    models: list[ScenarioSpec] = []
    planned: list[tuple[int, list[dict[str, Any]]]] = []
    for seed in seeds:
        try:
            model = planning_only(ggmltool.load(make(seed), ggml=release))
            told = recorded(model)
        except Error:
            continue
        ours, _ = engine_run(LoadedScenario(model), model, False)
        again = ggmltool.load(dump(told), ggml=release).model
        if dump(again) != dump(told):
            yield seed, ["not the same when loaded again"]
        for other in (told, again):
            theirs, _ = engine_run(LoadedScenario(other), other, False)
            if ours != theirs:
                yield seed, compare_runs(theirs, ours) or ["causes"]
        models.append(told)
        planned.append((seed, ours))
    if with_library:
        for (seed, ours), real in zip(planned, run_many(models, 0, values=False), strict=True):
            found = compare_runs(ours, real.plans)
            if found:
                yield seed, [f"library: {d}" for d in found]


def outcomes(seeds: Sequence[int], release: str) -> Iterator[Outcome]:
    """The outcome of every seed, beside the library where the release has one."""
    found = dict(differences(seeds, release, RELEASES[release].library is not None))
    return (Outcome(seed, found.get(seed, [])) for seed in seeds)
