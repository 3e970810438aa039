"""What a placement needs on every device: weights, caches, compute buffers, outputs; and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.scenario.compiled import Compiled
from ggmltool.scenario.model import GraphSpec, Model
from ggmltool.scenario.run import Run
from ggmltool.sources.llama.layers import LayerDevices
from ggmltool.sources.llama.place import Placement, Probe
from ggmltool.sources.llama.weights import layer_of_cache, layer_of_node

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


@dataclass(frozen=True, slots=True)
class Fit:
    """What a placement needs, and what its graphs are planned to.

    `uses` are per buffer type, devices in priority order; `memory` is what devices have, where that is known. `plan`
    is the plan of the first graph after reserve, or that of the graph that ggml refuses. `decided` names the graph
    whose reserve made each compute buffer as large as it is. `warnings` are what llama.cpp would do in another way.
    """

    uses: tuple[BufferUse, ...]
    memory: Mapping[str, int]
    plan: Plan
    graphs: tuple[GraphCost, ...]
    decided: Mapping[str, str]
    warnings: tuple[str, ...]

    def needs(self, device: str) -> int:
        """All bytes on a device."""
        return sum(use.total for use in self.uses if use.device == device)

    def left(self, device: str) -> int | None:
        """What a device has left, below 0 where it has too little; None where nobody knows what it has."""
        memory = self.memory.get(device)
        return None if memory is None else memory - self.needs(device)

    @property
    def short(self) -> dict[str, int]:
        """The bytes that each device lacks, for those that lack some."""
        left = {device: self.left(device) for device in self.memory}
        return {device: -n for device, n in left.items() if n is not None and n < 0}


def measure(placement: Placement, probe: Probe | None = None) -> Fit:
    """Reserve every graph of a placed model as llama.cpp does when it makes a context, and add up.

    `probe` is `Placer.probe` of the same options, for warnings about flash attention.
    """
    model = placement.model
    compiled = Compiled(model)
    plans: dict[str, Plan] = {}
    uses: dict[str, BufferUse] = {}
    costs = []
    for name in model.graphs:
        run = Run(compiled)
        plan = plans[name] = run.reserve(name)
        uses = uses or _allocated(run)
        costs.append(GraphCost(name, len(plan.splits), _copied(run, plan, name)))
    decided = _compute_buffers(plans, uses)
    _add_outputs(model, placement.output_buft, uses)
    memory = {b.name: b.memory for b in model.backends if b.memory is not None}
    order = {b.name: i for i, b in enumerate(model.backends)}
    shown = (use for use in uses.values() if use.total or use.buft in order)
    rows = sorted(shown, key=lambda use: (order.get(use.device, len(order)), use.buft not in order))
    plan = next((p for p in plans.values() if not p.ok), next(iter(plans.values())))
    return Fit(tuple(rows), memory, plan, tuple(costs), decided, tuple(_warnings(model, placement.layers, probe)))


def _allocated(run: Run) -> dict[str, BufferUse]:
    """What weights and caches take, by buffer type; every backend's own type has a row."""
    uses: dict[str, BufferUse] = {}
    for backend in run.backends:
        buft = backend.device.buft
        uses.setdefault(buft.name, BufferUse(_owner(run, buft), buft.name))
    for buffer in run.buffers:
        use = uses.setdefault(buffer.buft.name, BufferUse(_owner(run, buffer.buft), buffer.buft.name))
        if buffer.usage == USAGE_WEIGHTS:
            use.weights += buffer.size
        else:
            use.cache += buffer.size
    return uses


def _owner(run: Run, buft: BufferType) -> str:
    """The backend that a buffer type's memory is counted for: its device's; host memory of any kind is the CPU's."""
    names = [b.name for b in run.backends]
    return buft.device if buft.device in names and not buft.host else names[-1]


def _copied(run: Run, plan: Plan, graph: str) -> int:
    if graph not in run.newest:
        return 0
    sizes = {t.id: t.nbytes for t in run.newest[graph][1]}
    return sum(sizes.get(id, 0) for split in plan.splits for id in split.inputs)


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
    """What is known to come out differently in llama.cpp.

    With -fa auto, llama.cpp looks where the nodes of flash attention went in the graph of one token, and does without
    if one is not on the device of its layer.
    """
    out = []
    if model.meta.get("phase") == "token":
        out.append("the graph is that of one token: llama.cpp reserves compute buffers for a whole ubatch of a prompt")
    if probe is None:
        return out
    backends = {n.id: n.backend for n in Run(Compiled(probe.placement.model)).reserve(probe.graph).nodes}
    for id, il in _attention_layers(model.graphs[probe.graph]).items():
        backend = backends.get(id)
        if backend is not None and backend != layers.of(il):
            out.append(
                f"layer {il} is on {layers.of(il)}, its flash attention on {backend}: with -fa auto llama.cpp does "
                "without flash attention then, which is another graph (capture it with -fa off)"
            )
            break
    return out


def _attention_layers(graph: GraphSpec) -> dict[str, int]:
    """The layer of every node of flash attention, which has no name of its own: that of what it reads or gives."""
    found: dict[str, int] = {}
    attention = {n.id: n for n in graph.nodes if n.op == Op.FLASH_ATTN_EXT}
    for node in graph.nodes:
        own = node.id in attention
        id = node.id if own else next((s for s in node.src if s in attention), None)
        names = [s or "" for s in node.src] if own else [node.name]
        layers = [il for name in names for il in (layer_of_node(name), layer_of_cache(name)) if il is not None]
        if id is not None and layers:
            found.setdefault(id, layers[0])
    return found
