"""What a placement needs on every device: weights, caches, compute buffers, outputs; and whether that fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from ggmltool.estimate.forecast import splits_of
from ggmltool.estimate.records import PlacedSplit
from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.device import Backend, memory_owner
from ggmltool.ggml.plan import Plan, PlanError
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.scenario.run.compiled import Compiled
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.sources.llama.place.options import LayerDevices, PlaceOptions
from ggmltool.sources.llama.place.parts import attention_layers
from ggmltool.sources.llama.place.place import Placement, Placer, Probe

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


class Bytes(NamedTuple):
    """What a device's memory is needed for."""

    weights: int
    cache: int
    compute: int
    output: int

    @property
    def total(self) -> int:
        return sum(self)


class GraphCost(NamedTuple):
    """What a graph is planned to: its splits, and the bytes that they copy from elsewhere for a batch."""

    name: str
    splits: int
    copied: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a placement came to, in numbers that can be kept and sent: `needs`, `left` and `margins` are bytes by
    device (left where its memory is known), `graphs` what each graph is planned to. `parallel` says whether there are
    pipeline copies, `with_copies` what they would need where they do not fit. `error` is ggml's message if there is no
    plan.
    """

    needs: Mapping[str, Bytes]
    left: Mapping[str, int]
    margins: Mapping[str, int]
    graphs: tuple[GraphCost, ...]
    parallel: bool
    with_copies: Mapping[str, int]
    error: str

    @property
    def room(self) -> int:
        """What the fullest device has left beyond its margin, below 0 if it lacks some; 0 if no memory is known."""
        return min((n - self.margins.get(device, 0) for device, n in self.left.items()), default=0)

    @property
    def fits(self) -> bool:
        return not self.error and self.room >= 0

    @property
    def splits(self) -> int:
        return sum(graph.splits for graph in self.graphs)


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

    def measurement(self) -> dict[str, Any]:
        """The fields of a Measurement."""
        devices = dict.fromkeys(use.device for use in self.uses)
        return {
            "needs": {device: self._bytes(device) for device in devices},
            "left": {device: left for device in devices if (left := self.left(device)) is not None},
            "margins": {device: margin for device, margin in self.margins.items() if device in self.memory},
            "graphs": self.graphs,
            "parallel": self.parallel,
            "with_copies": dict(self.with_copies),
            "error": dict(self.error or ()).get("message") or "",
        }

    def _bytes(self, device: str) -> Bytes:
        mine = [use for use in self.uses if use.device == device]
        return Bytes(*(sum(getattr(use, kind) for use in mine) for kind in Bytes._fields))

    @property
    def compute_is_short(self) -> bool:
        """Whether something does not fit, and it is compute buffers: all that is allocated before them does.

        One that is larger than the largest buffer of its device is one of them.
        """
        if self.error is not None and dict(self.error)["function"] == RESERVES:
            return True
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
    reserved: dict[str, Reserved] = {}
    uses: dict[str, BufferUse] = {}
    for name in model.graphs:
        run = ReservingRun(compiled)
        plan = plans[name] = run.reserve(name)
        uses = uses or uses_of(run.backends, [(b.buft, b.usage == USAGE_WEIGHTS, b.size) for b in run.buffers])
        bufts = dict(plan.backends)
        sizes = [(backend, bufts[backend], size) for backend, size in plan.buffer_sizes]
        nbytes = {t.id: t.nbytes for t in run.newest[name][1]}
        reserved[name] = Reserved(splits_of(plan, nbytes), sizes, plan.error or chunk_error(run.start()))
        most = [(b.buft, b.size) for b in run.buffers]
    warnings, layers = [*warnings_of(model)], placement.layers
    if probe is not None and (lost := lost_attention(probe, layers)) is not None:
        il, backend = lost
        warnings.append(
            f"layer {il} is on {layers.of(il)}, its flash attention on {backend}: with -fa auto llama.cpp then turns "
            "flash attention off, which makes another graph (capture with -fa off)"
        )
    needs = added_up(
        Arrangement(placement.layers, placement.n_gpu_layers, model.scheduler.parallel, model.backends),
        uses,
        reserved,
        (placement.output_buft, output_bytes(model)),
        tuple(warnings),
        margins or {},
    )
    plan = next((p for p in plans.values() if not p.ok), next(iter(plans.values())))
    needs = replace(needs, error=buffer_error(most) or needs.error or _cache_of_nothing(placement))
    return PlannedNeeds(**{f.name: getattr(needs, f.name) for f in fields(needs)}, plan=plan)


RESERVES = "ggml_gallocr_reserve_n_impl"
"""What fails where a compute buffer cannot be allocated."""


def chunk_error(sched: Scheduler) -> PlanError | None:
    """ggml's error where a chunk of a compute buffer is larger than the largest buffer of its device."""
    planned = zip(sched.gallocr.bufts, sched.gallocr.buf_tallocs, strict=True)
    return _too_large(((buft, chunk.max_size) for buft, of in planned for chunk in of.chunks), RESERVES)


def buffer_error(sizes: Iterable[tuple[BufferType, int]]) -> PlanError | None:
    """The same for the buffers of contexts: what is larger is that of a single tensor, a weight or a cache."""
    return _too_large(sizes, "alloc_tensor_range")


def _too_large(sizes: Iterable[tuple[BufferType, int]], function: str) -> PlanError | None:
    over = [(size, buft.name, buft.largest) for buft, size in sizes if size > buft.largest]
    if not over:
        return None
    size, buft, largest = max(over)
    what = "compute buffer" if function == RESERVES else "buffer of a single tensor"
    explanation = (
        f"the {what} needs {size} bytes at once, and the largest buffer of {buft} has {largest} (max_size): a smaller "
        "-ub or -c, flash attention, or fewer layers there"
    )
    return _failed(function, f"failed to allocate {buft} buffer of size {size}", explanation)


def _failed(function: str, message: str, explanation: str) -> PlanError:
    head = {"kind": "failed", "function": function, "condition": None}
    return tuple({**head, "message": message, "explanation": explanation}.items())


def _cache_of_nothing(placement: Placement) -> PlanError | None:
    """llama_kv_cache's error where the caches of all layers on a device have no bytes, as those without attention."""
    caches: dict[str, int] = {}
    for t in placement.tensors:
        if t.kind == "cache" and t.name.startswith(("cache_k", "cache_v")):
            caches[t.buft] = caches.get(t.buft, 0) + t.nbytes
    empty = [buft for buft, nbytes in caches.items() if not nbytes]
    if not empty:
        return None
    explanation = (
        f"no layer on {empty[0]} has attention, so its KV cache has no bytes, and there is no buffer of none: put a "
        "layer with attention there, or none at all (-ts)"
    )
    return _failed("llama_kv_cache", "failed to allocate buffer for kv cache", explanation)


class Arrangement(NamedTuple):
    """What a placement is: the device of every layer, and the backends in priority order."""

    layers: LayerDevices
    n_gpu_layers: int
    parallel: bool
    backends: Sequence[BackendSpec]


class Reserved(NamedTuple):
    """What became of one graph: its splits, each backend with its buffer type and compute buffer, and the error."""

    splits: tuple[PlacedSplit, ...]
    buffer_sizes: Sequence[tuple[str, str, int]]
    error: PlanError | None


def added_up(
    placed: Arrangement,
    uses: dict[str, BufferUse],
    reserved: Mapping[str, Reserved],
    output: tuple[str, int | None],
    warnings: tuple[str, ...],
    margins: Mapping[str, int],
) -> Needs:
    """What a placement needs, of what its contexts take (`uses`, by buffer type) and its graphs are reserved to.

    `output` is the buffer type of the context's outputs, with their bytes (None: there is no such buffer).
    """
    backends = placed.backends
    decided: dict[str, str] = {}
    for name, graph in reserved.items():
        for backend, buft, size in graph.buffer_sizes:
            used = uses.get(buft)
            if used is not None and size > used.compute:
                used.compute = size
                decided[backend] = name
    buft, nbytes = output
    if nbytes is not None:
        use = uses.setdefault(buft, BufferUse(backends[-1].name, buft))
        use.output = max(use.output, nbytes)
    order = {b.name: i for i, b in enumerate(backends)}
    shown = (use for use in uses.values() if use.total or use.buft in order)
    rows = sorted(shown, key=lambda use: (order.get(use.device, len(order)), use.buft not in order))
    return Needs(
        n_gpu_layers=placed.n_gpu_layers,
        layers=placed.layers,
        parallel=placed.parallel,
        uses=tuple(rows),
        memory={b.name: b.memory for b in backends if b.memory is not None},
        splits={name: r.splits for name, r in reserved.items()},
        error=next((r.error for r in reserved.values() if r.error is not None), None),
        decided=decided,
        warnings=warnings,
        margins=margins,
    )


def uses_of(backends: Sequence[Backend], buffers: Iterable[tuple[BufferType, bool, int]]) -> dict[str, BufferUse]:
    """What weights (True) and caches take in each buffer type; every backend's own type has a row."""
    uses: dict[str, BufferUse] = {}
    for backend in backends:
        buft = backend.device.buft
        uses.setdefault(buft.name, BufferUse(memory_owner(buft, backends).name, buft.name))
    for buft, is_weights, size in buffers:
        use = uses.get(buft.name)
        if use is None:
            use = uses[buft.name] = BufferUse(memory_owner(buft, backends).name, buft.name)
        if is_weights:
            use.weights += size
        else:
            use.cache += size
    return uses


def output_bytes(model: ScenarioSpec) -> int | None:
    """llama_context's buffer of outputs: at first for the logits of a token of each sequence. None: there is none."""
    n_seq_max = model.meta.get("n_seq_max")
    if not isinstance(n_seq_max, int):
        return None
    results = (next((n for n in reversed(g.nodes) if n.name == "result_output"), None) for g in model.graphs.values())
    return max((n_seq_max * n.ne[0] * _F32 for n in results if n is not None), default=0)


def warnings_of(model: ScenarioSpec) -> tuple[str, ...]:
    """What is known to come out differently in llama.cpp, wherever the model is placed."""
    if model.meta.get("phase") != "token":
        return ()
    return ("the graph is for one token, but llama.cpp reserves compute buffers for a whole ubatch of a prompt",)


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
