"""What-if placement of a captured graph: where llama.cpp would put its weights and caches, without llama.cpp."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.cpu_extra import REPACK
from ggmltool.ggml.devices.extra import PINNED
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.profiles import extra_names
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.tensor import Tensor, nbytes_of
from ggmltool.scenario.engine import make_backends, make_bufts
from ggmltool.scenario.model import BackendSpec, ContextSpec, GraphSpec, Model, SchedulerSpec, TensorSpec, Usage
from ggmltool.scenario.versions import lacks
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.layers import LayerDevices, PlaceOptions, chosen_gpus, layer_devices
from ggmltool.sources.llama.overrides import Override, overridden
from ggmltool.sources.llama.parts import Parts, Role
from ggmltool.sources.llama.weight_support import Hparams, weight_buft_supported
from ggmltool.sources.llama.weights import LAZY, LAZY_BYTES, LAZY_SINCE

_DIGITS = 9

SMALL_BATCH = 32
"""From so many tokens on, llama.cpp lets the scheduler place the norms of a model that is not wholly on GPUs."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a weight or a cache went, and the rule that put it there.

    `name` is llama.cpp's, `id` the scenario's; `layer` is a number, `input` or `output`; `used` says whether the graph
    looks at it.
    """

    id: str
    name: str
    kind: str
    layer: str
    type: str
    nbytes: int
    buft: str
    rule: str
    used: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """A placed model with what was decided: the device of every layer, each tensor's place, why there are no pipeline
    copies ("": there are), and the buffer type of the context's outputs.
    """

    model: Model
    layers: LayerDevices
    tensors: tuple[TensorPlace, ...]
    pipeline: str
    n_gpu_layers: int
    output_buft: str


class Probe(NamedTuple):
    """What to plan to know where flash attention runs."""

    placement: Placement
    graph: str


class Placer:
    """A captured model, prepared to be placed many times on the same devices.

    `devices` are the GPUs and accelerators, and the CPU where something is to be said of it; without any GPU there,
    llama.cpp has the CPU alone. Raises PlaceError for a model without a graph.
    """

    def __init__(self, model: Model, devices: Sequence[BackendSpec]) -> None:
        self.parts = Parts(model)
        self.profiles = profiles_of(model.release)
        self.gpus = [d for d in devices if self._type(d) in ("gpu", "igpu")]
        self.accels = [d for d in devices if self._type(d) == "accel"]
        # A model that was placed before may have its compute buffers in a GPU's host memory.
        self.cpu = replace(next((d for d in devices if self._type(d) == "cpu"), BackendSpec("CPU", "CPU")), buft=None)
        backends = [*self.gpus, *self.accels, self.cpu]
        further = [b for b in model.buffer_types if b.device in {d.name for d in backends}]
        self.model = replace(model, backends=backends, buffer_types=further)
        self.bufts = make_bufts(self.model, all_known=True)
        self.devices = {b.name: b.device for b in make_backends(self.model, self.bufts)}
        self._tested: dict[tuple[object, ...], bool] = {}

    def profile(self, spec: BackendSpec) -> Profile:
        """What the device is in the model's release of ggml."""
        return self.profiles[spec.profile]

    def _type(self, spec: BackendSpec) -> str:
        return spec.type or self.profile(spec).type

    def pinned_buft(self, spec: BackendSpec) -> str | None:
        """ggml_backend_dev_host_buffer_type: the name of a device's host memory; None if it has none."""
        extra = extra_names(self.profile(spec), spec.name)
        return next((name for name, buft in extra.items() if buft.family == PINNED), None)

    @cached_property
    def hparams(self) -> Hparams:
        return self.parts.hparams()

    def place(self, options: PlaceOptions) -> Placement:
        """Place everything as llama.cpp does with these options. Raises PlaceError."""
        return _Placing(self, options).placement()

    def probe(self, options: PlaceOptions) -> Probe:
        """The placement and the graph that llama.cpp's check of flash attention is about: that of one token.

        Where there is none, the smallest graph with what llama.cpp does for one token; no op is worth an offload then.
        """
        graph = min(self.parts.graphs.values(), key=self.parts.n_tokens)
        many = self.parts.n_tokens(graph) >= SMALL_BATCH
        placed = replace(options, op_offload=options.op_offload and not many)
        return Probe(_Placing(self, placed, one_token=many).placement(), graph.name)

    def runs(self, device: Device, buft: BufferType, op: Op, t: TensorSpec) -> bool:
        """weight_buft_supported, asked once for all weights alike."""
        key = (device.name, buft.name, op, t.type.name, t.ne)
        if key not in self._tested:
            self._tested[key] = weight_buft_supported(device, buft, op, t.type, t.ne, self.hparams)
        return self._tested[key]


class _Placing:
    """One placement."""

    def __init__(self, placer: Placer, options: PlaceOptions, one_token: bool = False) -> None:
        self.one_token = one_token
        self.placer = placer
        self.parts = placer.parts
        self.options = options
        self.cpu = placer.cpu.name
        self.gpus = chosen_gpus(placer.gpus, options)
        self.n_gpu = options.n_gpu(self.parts.n_layer)
        self.layers = layer_devices(self.parts.n_layer, self.gpus, self.cpu, options)
        self.cpu_list = self._cpu_list()
        self.overrides = self._overrides()
        self.tensors: list[TensorPlace] = []
        self._orders: dict[str, list[str]] = {}

    def placement(self) -> Placement:
        weights, moved = self._weights()
        caches = self._caches()
        pipeline = self._why_no_pipeline()
        parallel = not pipeline if self.options.parallel is None else self.options.parallel
        placer = self.placer
        host = self.placer.pinned_buft(self.gpus[0]) if self.gpus else None
        cpu = placer.cpu if host is None else replace(placer.cpu, buft=host)
        backends = [*self.gpus, *placer.accels, cpu]
        size = self.parts.graph_size(placer.model.scheduler.graph_size, sum(map(len, weights.values())))
        copies = placer.model.scheduler.copy_callback
        scheduler = SchedulerSpec(size, parallel, self.options.op_offload, copies)
        names = {b.name for b in backends}
        model = replace(
            placer.model,
            backends=backends,
            buffer_types=[b for b in placer.model.buffer_types if b.device in names],
            contexts=_in_order(
                [*_contexts("kv", "any", caches), *_contexts("w", "weights", weights), *self._inputs(moved)]
            ),
            graphs={name: self._graph(g, moved) for name, g in self.parts.graphs.items()},
            scheduler=scheduler,
        )
        output = next((placer.pinned_buft(g) for g in self.gpus if g.name == self.layers.output), None)
        cpu_buft = placer.devices[self.cpu].buft.name
        return Placement(model, self.layers, tuple(self.tensors), pipeline, self.n_gpu, output or cpu_buft)

    def _cpu_list(self) -> list[tuple[Device, BufferType, BufferType]]:
        """The buffer types for weights on the CPU: device and type to ask, and the type that is taken then.

        A GPU's host memory comes first, but with mmap (the default) what would go there stays where it is mapped.
        """
        placer = self.placer
        cpu = placer.devices[self.cpu]
        out: list[tuple[Device, BufferType, BufferType]] = []
        for gpu in self.gpus:
            host = placer.pinned_buft(gpu)
            if host is not None:
                out.append((placer.devices[gpu.name], placer.bufts[host], cpu.buft))
                break
        if self.options.extra_bufts:
            names = dict.fromkeys([*(b.name for b in placer.model.buffer_types), REPACK])
            extra = [placer.bufts[name] for name in names if name in placer.bufts]
            out += [(cpu, buft, buft) for buft in extra if buft.device == self.cpu and not buft.host]
        return [*out, (cpu, cpu.buft, cpu.buft)]

    def _overrides(self) -> dict[str, Override]:
        """The override of each weight's name that one is found in. Raises PlaceError for an unknown buffer type."""
        known = [self.placer.devices[d.name].buft.name for d in (*self.gpus, self.placer.cpu)]
        for override in self.options.overrides:
            if override.buft not in known:
                raise PlaceError(f"{override.option}: there is no {override.buft}; there are {', '.join(known)}")
        return overridden(self.parts.names, self.options.overrides)

    def _weights(self) -> tuple[dict[str, list[TensorSpec]], dict[str, dict[str, str]]]:
        """The weights of each buffer type, and for the nodes that use a duplicate: which source is which."""
        placed: dict[str, list[TensorSpec]] = {}
        moved: dict[str, dict[str, str]] = {}
        where: dict[str, str] = {}
        after: dict[str, str] = {}
        for spec in self.parts.weights:
            if spec.view_src in where:
                placed[where[spec.view_src]].append(spec)
                continue
            made: dict[str, str] = {}
            for role in self.parts.roles[spec.id]:
                buft, rule = self._choose(spec, role)
                if buft not in made:
                    id = spec.id if not made else self.parts.unique(f"{spec.id}~{buft}")
                    made[buft] = id
                    copy = spec if id == spec.id else replace(spec, id=id, name=spec.name)
                    placed.setdefault(buft, []).append(copy)
                    self._note(copy, "weight", role.layer, buft, rule, bool(role.nodes))
                where.setdefault(spec.id, buft)
                if made[buft] != spec.id:
                    before = self.parts.made_before(spec, role)
                    if before is not None:
                        after.setdefault(made[buft], before)
                    for node in role.nodes:
                        moved.setdefault(node, {})[spec.id] = made[buft]
        if moved or after:
            order = {id: i for g in self.parts.graphs for i, id in enumerate(self._leafs(g, moved))}
            _sort_duplicates(placed, order, {w.id: i for i, w in enumerate(self.parts.weights)}, after)
        return placed, moved

    def _choose(self, spec: TensorSpec, role: Role) -> tuple[str, str]:
        """The buffer type of a weight in one of its roles, and why. Raises PlaceError."""
        cpu_buft = self.placer.devices[self.cpu].buft.name
        if self._is_lazy(spec):
            return cpu_buft, f"-lzm {self.options.lazy_mode}: read as it is needed"
        override = self.overrides.get(spec.name)
        device = self._device_of(role)
        if override is not None:
            if override.buft != cpu_buft:
                return override.buft, override.option
            found = self._first(spec, role, self.cpu_list)
            return (found or override.buft), override.option
        layer = f"{role.kind} layer" if role.il < 0 else f"layer {role.il}"
        rule = f"{layer} on {device}" + (", always" if role.kind == "input" else "")
        list_ = self.cpu_list
        if device != self.cpu:
            gpu = self.placer.devices[device]
            list_ = [(gpu, gpu.buft, gpu.buft), *list_]
        found = self._first(spec, role, list_)
        if found is None:
            raise PlaceError(f"no device supports {role.op.name} with {spec.name} ({spec.type.name})")
        own = self.placer.devices[device].buft.name
        if found != own and device != self.cpu:
            rule += f", which does not support {role.op.name} of {spec.type.name} there"
        elif found != own:
            rule += f", {found} first"
        return found, rule

    def _is_lazy(self, spec: TensorSpec) -> bool:
        """llama_model_loader::lazy_read::add: whether the weight stays in the file's pages, whatever is overridden."""
        mode = self.options.lazy_mode
        if mode == "off" or spec.name not in LAZY or lacks(self.placer.model.release, LAZY_SINCE):
            return False
        return mode == "on" or nbytes_of(spec.type, spec.ne, spec.nb) > LAZY_BYTES

    def _first(
        self, spec: TensorSpec, role: Role, list_: Iterable[tuple[Device, BufferType, BufferType]]
    ) -> str | None:
        """select_weight_buft: the first buffer type whose device runs the op with the weight there."""
        for device, buft, taken in list_:
            if self.placer.runs(device, buft, role.op, spec):
                return taken.name
        return None

    def _device_of(self, role: Role) -> str:
        if role.kind == "input":
            return self.cpu
        return self.layers.output if role.kind == "output" else self.layers.of(role.il)

    def _caches(self) -> dict[str, list[TensorSpec]]:
        """The KV cache and the recurrent state: with their layers, unless they stay on the CPU."""
        placed: dict[str, list[TensorSpec]] = {}
        for spec, il in self.parts.caches:
            device, rule = self.cpu, "-nkvo"
            if il is None:
                rule = "belongs to no layer"
            elif self.options.offload_kqv:
                device = self.layers.of(il)
                rule = f"layer {il} on {device}"
            buft = self.placer.devices[device].buft.name
            placed.setdefault(buft, []).append(spec)
            if spec.view_src is None:
                self._note(spec, "cache", "" if il is None else str(il), buft, rule, spec.id in self.parts.used)
        return placed

    def _note(self, spec: TensorSpec, kind: str, layer: str, buft: str, rule: str, used: bool) -> None:
        nbytes = nbytes_of(spec.type, spec.ne, spec.nb)
        self.tensors.append(TensorPlace(spec.id, spec.name, kind, layer, spec.type.name, nbytes, buft, rule, used))

    def _inputs(self, moved: dict[str, dict[str, str]]) -> list[ContextSpec]:
        """The inputs. ggml calls a leaf without a name by its number, which a duplicate before it changes."""
        if not moved:
            return self.parts.inputs
        renamed: dict[str, str] = {}
        for graph in self.parts.graphs:
            now = {id: i for i, id in enumerate(self._leafs(graph, moved))}
            renamed |= {id: f"leaf_{now[id]}" for id in self.parts.numbered(graph)}
        return [
            replace(c, tensors=[replace(t, name=renamed[t.id]) if t.id in renamed else t for t in c.tensors])
            for c in self.parts.inputs
        ]

    def _leafs(self, graph: str, moved: dict[str, dict[str, str]]) -> list[str]:
        """The leafs of a graph in ggml's order, with duplicates in the place of what they duplicate."""
        if graph not in self._orders:
            self._orders[graph] = self._ordered(graph, moved)
        return self._orders[graph]

    def _ordered(self, graph: str, moved: dict[str, dict[str, str]]) -> list[str]:
        order = self.parts.leaf_order(graph)
        nodes = {n.id: n for n in self.parts.graphs[graph].nodes}
        changed = {id: [by.get(s or "", s) for s in nodes[id].src] for id, by in moved.items() if id in nodes}
        return order.of(changed) if changed else self.parts.leafs(graph)

    def _graph(self, graph: GraphSpec, moved: dict[str, dict[str, str]]) -> GraphSpec:
        """The graph with duplicates as sources and with llama.cpp's own assignments."""
        assigned = self._assigned(graph)
        nodes = []
        for node in graph.nodes:
            backend, by = assigned.get(node.id), moved.get(node.id)
            if by is not None:
                view = node.view_src if node.view_src is None else by.get(node.view_src, node.view_src)
                node = replace(node, src=tuple(by.get(s or "", s) for s in node.src), view_src=view)
            nodes.append(node if backend is None else replace(node, backend=backend))
        expand = graph.expand
        if moved:
            ids = {n.id for n in graph.nodes}
            expand = [*self._leafs(graph.name, moved), *(e for e in expand if e in ids)]
        return replace(graph, nodes=nodes, expand=list(expand))

    def _assigned(self, graph: GraphSpec) -> dict[str, str]:
        """llama_context::graph_get_cb and, with -nkvo, build_attn_mha: nodes that llama.cpp assigns itself.

        The result of an attention is one of them only without flash attention; it is made contiguous then.
        """
        assigned: dict[str, str] = {}
        small = self.one_token or self.parts.n_tokens(graph) < SMALL_BATCH or self.n_gpu > self.parts.n_layer
        nodes = {n.id: n for n in graph.nodes}
        for node in graph.nodes:
            base, _, number = node.name.rpartition("-")
            if not number.isdecimal() or len(number) > _DIGITS:
                continue
            il = int(number)
            if small and self.gpus and base in ("norm", "l_last"):
                device = self.placer.devices[self.layers.of(il)]
                if device.supports_op(_lone_tensor(node, nodes)):
                    assigned[node.id] = device.name
            elif base == "kqv_out" and node.op == Op.CONT and not self.options.offload_kqv:
                assigned[node.id] = self.cpu
        return assigned

    def _why_no_pipeline(self) -> str:
        """Why llama.cpp makes no pipeline copies; "" if it does."""
        if len(self.gpus) < 2:
            return "there is one GPU" if self.gpus else "there is no GPU"
        if self.n_gpu <= self.parts.n_layer:
            return "not all layers are on GPUs"
        if not self.options.offload_kqv:
            return "the KV cache is on the CPU"
        if self.options.overrides:
            return "there are overrides of tensors"
        for spec in (*self.gpus, *self.placer.accels):
            profile, device = self.placer.profile(spec), self.placer.devices[spec.name]
            if not device.events or not ("async" in profile.caps or spec.profile == "custom"):
                return f"{spec.name} has no events, or does not compute asynchronously"
        return ""


def _lone_tensor(node: TensorSpec, nodes: dict[str, TensorSpec]) -> Tensor:
    """A node with its sources, without memory, for questions about the op alone."""
    t = Tensor(node.type, node.ne, node.nb, node.op, node.op_params, node.flags)
    specs = [nodes.get(s) if s is not None else None for s in node.src]
    t.src = [Tensor(s.type, s.ne, s.nb, s.op, s.op_params) if s is not None else None for s in specs]
    return t


def _contexts(prefix: str, usage: Usage, placed: dict[str, list[TensorSpec]]) -> list[ContextSpec]:
    """A context for each buffer type; llama.cpp keeps them by the names of those."""
    return [ContextSpec(f"{prefix}_{buft}", buft, usage, placed[buft]) for buft in sorted(placed)]


def _in_order(contexts: list[ContextSpec]) -> list[ContextSpec]:
    """The contexts. Raises PlaceError if a tensor is a view of one in a later context: no model has such."""
    seen: set[str] = set()
    for context in contexts:
        for t in context.tensors:
            if t.view_src is not None and t.view_src not in seen:
                raise PlaceError(
                    f"{t.id} is a view of {t.view_src}, which lies in another buffer; no model has such views"
                )
            seen.add(t.id)
    return contexts


def _sort_duplicates(
    placed: dict[str, list[TensorSpec]], order: dict[str, int], made: dict[str, int], after: dict[str, str]
) -> None:
    """Put duplicates behind what was made before them, or where that is not known, where the graph meets them.

    All others keep their order. `order` is that of the leafs, `made` that of the weights that are no duplicates.
    """
    last = len(order)
    for buft, specs in placed.items():
        mine = [s for s in specs if s.id in made]
        for copy in (s for s in specs if s.id not in made):
            if copy.id in after:
                at = next((i for i, s in enumerate(mine) if made.get(s.id, -1) > made[after[copy.id]]), len(mine))
            else:
                met = order.get(copy.id, last)
                at = next((i for i, s in enumerate(mine) if order.get(s.id, last) > met), len(mine))
            mine.insert(at, copy)
        placed[buft] = mine
