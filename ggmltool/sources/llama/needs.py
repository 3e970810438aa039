"""What a placement needs on every device: weights, caches, compute buffers, outputs; and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.device import memory_owner
from ggmltool.ggml.plan import Plan, PlanError
from ggmltool.scenario.compiled import Compiled
from ggmltool.scenario.model import Model
from ggmltool.scenario.reserving_run import ReservingRun
from ggmltool.scenario.run import Run
from ggmltool.sources.llama.heads import attention_layers
from ggmltool.sources.llama.layers import LayerDevices, PlaceOptions
from ggmltool.sources.llama.place import Placement, Placer, Probe

_F32 = 4


@dataclass(slots=True)
class BufferUse:
    """Bytes in one buffer type of a device."""

    device: str
    buft: str
    weights: int = 0
    cache: int = 0
    compute: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute + self.output


class GraphCost(NamedTuple):
    """What a graph is planned to: its splits, and the bytes that they copy from elsewhere for a batch."""

    name: str
    splits: int
    copied: int


class Copied(NamedTuple):
    """A tensor that a split copies before it begins: its id, its bytes, and the backend that has it."""

    id: str
    nbytes: int
    source: str


class PlacedSplit(NamedTuple):
    """A run of nodes `[i_start, i_end)` on one backend, and what is copied there before it.

    The numbers are those of the graph's nodes in ggml's order. A device that orders nodes its own way does so within a
    split, so that the nodes of each are the same.
    """

    backend: str
    i_start: int
    i_end: int
    inputs: tuple[Copied, ...]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a placement needs, and what its graphs are planned to.

    `uses` are per buffer type, devices in priority order; `memory` is what devices have free, where that is known, and
    `margins` what has to stay free of it. `splits` are those of each graph, () of one that ggml fails on; `error` is
    what it fails with, the fields of `GgmlError.as_dict`. `decided` names the graph whose reserve made each compute
    buffer as large as it is. `warnings` are what llama.cpp would do in another way. `parallel` says whether there are
    pipeline copies, `with_copies` is what they would need on each device, where llama.cpp does without since they do
    not fit.
    """

    n_gpu_layers: int
    layers: LayerDevices
    parallel: bool
    uses: tuple[BufferUse, ...]
    memory: Mapping[str, int]
    splits: Mapping[str, tuple[PlacedSplit, ...]]
    error: PlanError | None
    decided: Mapping[str, str]
    warnings: tuple[str, ...]
    margins: Mapping[str, int]
    with_copies: Mapping[str, int] = field(default_factory=dict)

    @property
    def graphs(self) -> tuple[GraphCost, ...]:
        """What each graph is planned to, in numbers."""
        return tuple(
            GraphCost(name, len(splits), sum(copied.nbytes for split in splits for copied in split.inputs))
            for name, splits in self.splits.items()
        )

    def of(self, device: str) -> int:
        """All bytes on a device."""
        return sum(use.total for use in self.uses if use.device == device)

    def left(self, device: str) -> int | None:
        """What a device has left, below 0 if it has too little; None if its memory is unknown."""
        memory = self.memory.get(device)
        return None if memory is None else memory - self.of(device)

    @property
    def short(self) -> dict[str, int]:
        """The bytes that each device lacks to have its margin left, for those that lack some."""
        room = self.room
        return {device: -n for device, n in room.items() if n < 0}

    @property
    def room(self) -> dict[str, int]:
        """What each device whose memory is known has left beyond its margin, below 0 if it lacks some."""
        left = {device: self.left(device) for device in self.memory}
        return {device: n - self.margins.get(device, 0) for device, n in left.items() if n is not None}

    @property
    def compute_is_short(self) -> bool:
        """Whether something does not fit, and it is compute buffers: all that is allocated before them does."""
        short = self.short
        compute = {device: sum(u.compute for u in self.uses if u.device == device) for device in short}
        return bool(short) and all(compute[device] >= n for device, n in short.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNeeds(Needs):
    """The same with `plan`: that of the first graph after reserve, or that of the graph that ggml fails on."""

    plan: Plan


def margins_of(gpus: Sequence[str], cpu: str, margins: Sequence[int]) -> dict[str, int]:
    """What has to stay free on each device, as --fit-target says it: a margin for each GPU, or one for all of them.

    Without any GPU it is the CPU's, whose memory llama.cpp does not look at otherwise.
    """
    if not gpus:
        return {cpu: margins[0]}
    each = [margins[i] if i < len(margins) else margins[-1] for i in range(len(gpus))]
    return dict(zip(gpus, each, strict=True))


def place_and_measure(
    placer: Placer, options: PlaceOptions, margins: Sequence[int] = (0,), probe: bool = False
) -> tuple[Placement, PlannedNeeds]:
    """Place a model and reserve its graphs as llama.cpp does: without pipeline copies, if those do not fit.

    Raises PlaceError. With `probe`, flash attention is looked at too.
    """
    kept = margins_of([gpu.name for gpu in placer.gpus], placer.cpu.name, margins)
    placement = placer.place(options)
    asked = placer.probe(options) if probe else None
    needs = measure(placement, asked, kept)
    if not placement.model.scheduler.parallel or options.parallel is not None or not needs.compute_is_short:
        return placement, needs
    without = placer.place(replace(options, parallel=False))
    with_copies = {device: needs.of(device) for device in needs.memory}
    return without, replace(measure(without, asked, kept), with_copies=with_copies)


def measure(placement: Placement, probe: Probe | None = None, margins: Mapping[str, int] | None = None) -> PlannedNeeds:
    """Reserve every graph of a placed model as llama.cpp does when it makes a context, and add up.

    `probe` is `Placer.probe` of the same options, for warnings about flash attention; `margins` are those of devices.
    """
    model = placement.model
    compiled = Compiled(model)
    plans: dict[str, Plan] = {}
    uses: dict[str, BufferUse] = {}
    splits = {}
    for name in model.graphs:
        run = ReservingRun(compiled)
        plan = plans[name] = run.reserve(name)
        uses = uses or _allocated(run)
        splits[name] = _splits(run, plan, name)
    decided = _compute_buffers(plans, uses)
    _add_outputs(model, placement.output_buft, uses)
    memory = {b.name: b.memory for b in model.backends if b.memory is not None}
    order = {b.name: i for i, b in enumerate(model.backends)}
    shown = (use for use in uses.values() if use.total or use.buft in order)
    rows = sorted(shown, key=lambda use: (order.get(use.device, len(order)), use.buft not in order))
    plan = next((p for p in plans.values() if not p.ok), next(iter(plans.values())))
    return PlannedNeeds(
        n_gpu_layers=placement.n_gpu_layers,
        layers=placement.layers,
        parallel=model.scheduler.parallel,
        uses=tuple(rows),
        memory=memory,
        splits=splits,
        error=plan.error,
        decided=decided,
        warnings=tuple(_warnings(model, placement.layers, probe)),
        margins=margins or {},
        plan=plan,
    )


def _allocated(run: Run) -> dict[str, BufferUse]:
    """What weights and caches take, by buffer type; every backend's own type has a row."""
    uses: dict[str, BufferUse] = {}
    for backend in run.backends:
        buft = backend.device.buft
        uses.setdefault(buft.name, BufferUse(memory_owner(buft, run.backends).name, buft.name))
    for buffer in run.buffers:
        owner = memory_owner(buffer.buft, run.backends)
        use = uses.setdefault(buffer.buft.name, BufferUse(owner.name, buffer.buft.name))
        if buffer.usage == USAGE_WEIGHTS:
            use.weights += buffer.size
        else:
            use.cache += buffer.size
    return uses


def _splits(run: Run, plan: Plan, graph: str) -> tuple[PlacedSplit, ...]:
    if not plan.splits:
        return ()
    nbytes = {t.id: t.nbytes for t in run.newest[graph][1]}
    backends = {n.id: n.backend or "" for n in plan.nodes} | {leaf.id: leaf.backend or "" for leaf in plan.leafs}
    return tuple(
        PlacedSplit(
            split.backend,
            split.i_start,
            split.i_end,
            tuple(Copied(id, nbytes[id], backends[id]) for id in split.inputs),
        )
        for split in plan.splits
    )


def _compute_buffers(plans: Mapping[str, Plan], uses: Mapping[str, BufferUse]) -> dict[str, str]:
    """Enter the largest compute buffer of each backend; the graphs that made them so."""
    decided: dict[str, str] = {}
    for name, plan in plans.items():
        bufts = dict(plan.backends)
        for backend, size in plan.buffer_sizes:
            use = uses.get(bufts[backend])
            if use is not None and size > use.compute:
                use.compute = size
                decided[backend] = name
    return decided


def _add_outputs(model: Model, buft: str, uses: dict[str, BufferUse]) -> None:
    """llama_context's buffer of outputs, in host memory: at first for the logits of a token of each sequence."""
    n_seq_max = model.meta.get("n_seq_max")
    if not isinstance(n_seq_max, int):
        return
    use = uses.setdefault(buft, BufferUse(model.backends[-1].name, buft))
    for graph in model.graphs.values():
        result = next((n for n in reversed(graph.nodes) if n.name == "result_output"), None)
        if result is not None:
            use.output = max(use.output, n_seq_max * result.ne[0] * _F32)


def _warnings(model: Model, layers: LayerDevices, probe: Probe | None) -> list[str]:
    """What is known to come out differently in llama.cpp."""
    out = []
    if model.meta.get("phase") == "token":
        out.append("the graph is for one token, but llama.cpp reserves compute buffers for a whole ubatch of a prompt")
    lost = None if probe is None else lost_attention(probe, layers)
    if lost is not None:
        il, backend = lost
        out.append(
            f"layer {il} is on {layers.of(il)}, its flash attention on {backend}: with -fa auto llama.cpp then "
            "turns flash attention off, which makes another graph (capture with -fa off)"
        )
    return out


def lost_attention(probe: Probe, layers: LayerDevices) -> tuple[int, str] | None:
    """The first layer whose flash attention does not run on the layer's device, and the backend that runs it.

    llama_context::resolve_fused_ops: with -fa auto, llama.cpp then does without flash attention.
    """
    model = probe.placement.model
    backends = {n.id: n.backend for n in ReservingRun(Compiled(model)).reserve(probe.graph).nodes}
    for id, il in attention_layers(model.graphs[probe.graph]).items():
        backend = backends.get(id)
        if backend is not None and backend != layers.of(il):
            return il, backend
    return None
