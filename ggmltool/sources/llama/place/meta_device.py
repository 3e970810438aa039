"""-sm tensor: all GPUs are one device to the scheduler, ggml's Meta device, and each computes its part of every node.

From llama.cpp b11549, ggml/src/ggml-backend-meta.cpp: what Meta answers is what all its devices answer, it takes no
offload and has no events; of a compute buffer each device has one as large as if it computed alone.

Which part of a weight or a cache each GPU has, llama_meta_device_get_split_state decides (src/llama-model.cpp), here
for models whose layers all have attention of the usual form. Parts are cut along one axis, in units that tear no head
and no block apart: what a share asks for is rounded down to them, so that the GPUs' parts drift away from -ts. What is
not cut is whole on every GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import lcm
from typing import Literal, NamedTuple

from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import pad
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec, TensorSpec
from ggmltool.scenario.versions import lacks
from ggmltool.sources.llama.errors import LlamaRefused, PlaceError
from ggmltool.sources.llama.place.needs import BufferUse, PlannedNeeds, margins_of, place_and_measure
from ggmltool.sources.llama.place.options import PlaceOptions, f32
from ggmltool.sources.llama.place.parts import Heads, Parts, heads_of
from ggmltool.sources.llama.place.place import Placement, Placer
from ggmltool.sources.llama.place.weights import layer_of_cache, weight_of

SINCE = "2026-10-10"
"""The day of the llama.cpp whose rules these are."""

NOT_IMPLEMENTED = frozenset(
    ("bailingmoe3", "bitnet", "deepseek2", "deepseek32", "dots3note", "falcon-h1", "gemma3n", "glm-dsa", "glm5-next",
     "granitehybrid", "grok", "hy_v4", "jamba", "kimi-k3", "kimi-linear", "mamba", "mamba2", "minicpm3", "minimax-01",
     "minimax-m2", "minimax-m3", "mistral4", "mpt", "nemotron_h", "nemotron_h_moe", "olmo2", "olmoe", "plamo2",
     "qwen3tts", "t5")
)  # fmt: skip
"""llm_arch_supports_sm_tensor: the architectures that llama.cpp refuses."""

_SPECIAL = frozenset(
    ("clef", "deepseek4", "dflash", "hrm_text", "lfm2", "lfm2moe", "qwen35", "qwen35moe", "qwen3next", "qwen4exp")
)
"""Architectures with rules of their own, which are not here."""

_FASTEST = 128
"""Elements from which on kernels are fast; smaller blocks are cut in multiples that come up to it."""

Unit = Literal["query", "key", "value", "head", "output", "gate", "fused", "feed-forward", "one"]

_ATTENTION, _FEED_FORWARD = ("attn_output.weight", "ssm_out.weight"), ("ffn_down.weight", "ffn_down_exps.weight")


class _Cut(NamedTuple):
    """How a tensor is cut: along which axis, in which unit; `behind` are weights of the layer whose blocks stay whole
    (the first that there is; (): its own).
    """

    axis: int
    unit: Unit
    behind: tuple[str, ...] = ()


_CUTS: Mapping[str, _Cut] = {
    "attn_q.weight": _Cut(1, "query", _ATTENTION),
    "attn_q.bias": _Cut(0, "query", _ATTENTION),
    "attn_k.weight": _Cut(1, "key", _ATTENTION),
    "attn_k.bias": _Cut(0, "key", _ATTENTION),
    "attn_v.weight": _Cut(1, "value", _ATTENTION),
    "attn_v.bias": _Cut(0, "value", _ATTENTION),
    "attn_v_exps.weight": _Cut(1, "value", _ATTENTION),
    "attn_qkv.weight": _Cut(1, "fused", _ATTENTION),
    "attn_qkv.bias": _Cut(0, "fused", _ATTENTION),
    "attn_sinks.weight": _Cut(0, "head", _ATTENTION),
    "attn_gate.weight": _Cut(1, "gate", _ATTENTION),
    "attn_output.weight": _Cut(0, "output"),
    **{
        f"ffn_{kind}{experts}.{suffix}": _Cut(axis, "feed-forward", _FEED_FORWARD)
        for kind in ("up", "gate", "gate_up")
        for experts in ("", "_exps")
        for suffix, axis in (("weight", 1), ("bias", 0))
        if (kind, suffix) != ("gate_up", "bias")
    },
    "ffn_down.weight": _Cut(0, "feed-forward", _FEED_FORWARD),
    "ffn_down_exps.weight": _Cut(0, "feed-forward", _FEED_FORWARD),
    "output.weight": _Cut(1, "one"),
    "output.bias": _Cut(0, "one"),
    "cache_k": _Cut(0, "key", _ATTENTION),
    "cache_v": _Cut(0, "value", _ATTENTION),
}
_NORMS = frozenset(("attn_q_norm.weight", "attn_k_norm.weight"))


class Slice(NamedTuple):
    """How much each GPU has of a tensor along an axis; of one that is whole everywhere `axis` is None."""

    axis: int | None
    parts: tuple[int, ...]

    def ne(self, spec: TensorSpec, gpu: int) -> tuple[int, int, int, int]:
        """The extents of a GPU's part."""
        whole = spec.ne
        if self.axis is None:
            return whole
        i = self.axis
        return (*whole[:i], self.parts[gpu], *whole[i + 1 :])  # type: ignore[return-value]


def refuse_models(parts: Parts) -> None:
    """Raise LlamaRefused for a model that llama.cpp does not split so, PlaceError for one whose rules are not here."""
    if parts.architecture in NOT_IMPLEMENTED:
        raise LlamaRefused(
            f"error loading model: LLAMA_SPLIT_MODE_TENSOR not implemented for architecture '{parts.architecture}'",
            "-sm tensor knows which axis of each weight to cut, and for this architecture llama.cpp does not. Use -sm "
            "layer.",
        )
    if parts.meta.get("flash_attn") is False and any(name.endswith(_ATTENTION[0]) for name in parts.names):
        raise LlamaRefused(
            "SPLIT_MODE_TENSOR requires flash_attn to be enabled",
            "The graph was captured without flash attention; capture it with -fa on.",
        )
    if parts.architecture in _SPECIAL:
        raise PlaceError(f"-sm tensor of {parts.architecture} has rules that ggmltool does not have; use -sm layer")


class TensorSplit:
    """The parts that GPUs have of a model's tensors. `shares` are those of -ts; without any, all are alike.

    Raises LlamaRefused and PlaceError for models that are not split so.
    """

    def __init__(self, parts: Parts, n_gpus: int, shares: Sequence[float]) -> None:
        refuse_models(parts)
        self.n_gpus = n_gpus
        self.shares = [shares[i] if i < len(shares) else 0.0 for i in range(n_gpus)]
        self.n_layer = parts.n_layer
        self.heads = heads_of(parts)
        self.weights = {spec.name: spec for spec in parts.weights}
        without = [il for il in range(parts.n_layer) if il not in self.heads]
        if without:
            raise PlaceError(f"-sm tensor of a model whose layer {without[0]} has no attention is not supported here")

    def of(self, spec: TensorSpec) -> Slice:
        """The parts of a weight or a cache. Raises PlaceError for a fused one of another form than usual."""
        name, il = self._name_and_layer(spec)
        cut = _Cut(1, "one") if name in _NORMS and spec.ne[1] != 1 else _CUTS.get(name)
        if cut is None:
            return Slice(None, ())
        behind = next((self.weights[n] for b in cut.behind if (n := f"blk.{il}.{b}") in self.weights), spec)
        heads = self.heads[max(il, 0)]
        # The rounding goes around the GPUs with the layers before that have the same kind of attention.
        alike = sum(self.heads[before].mask == self.heads[il].mask for before in range(il))
        rotation = (self.n_layer if il < 0 else alike) % self.n_gpus
        total = [0] * self.n_gpus
        for length, times, unit in self._segments(spec, cut, heads, behind.type.block_size):
            for gpu, part in enumerate(self._cut(length, unit, rotation)):
                total[gpu] += part * times
        return Slice(cut.axis, tuple(total))

    def _name_and_layer(self, spec: TensorSpec) -> tuple[str, int]:
        """What a tensor is called in each layer, and its layer; -1 outside of layers."""
        if spec.name.startswith("cache_"):
            return spec.name.rpartition("_l")[0], layer_of_cache(spec.name) or 0
        weight = weight_of(spec.name)
        if spec.name.startswith("blk."):
            return spec.name.split(".", 2)[2], weight.il
        return spec.name, -1

    def _segments(self, spec: TensorSpec, cut: _Cut, heads: Heads, block: int) -> list[tuple[int, int, int]]:
        """The stretches of the axis that are cut each by itself: length, how many alike follow each other, unit."""
        n = spec.ne[cut.axis]
        group = heads.queries // heads.keys
        fast = block
        while fast < _FASTEST and fast * self.n_gpus < group * heads.key_size:
            fast *= 2
        query = lcm(group * heads.key_size, fast)
        head, key = query // heads.key_size, query // group
        value = key // heads.key_size * heads.value_size
        units = {"query": query, "key": key, "value": value, "head": head, "output": head * heads.value_size}
        match cut.unit:
            case "gate":
                return [(n, 1, head if n == heads.queries else query)]
            case "fused":
                stretches = [(heads.queries * heads.key_size, 1, query), (heads.keys * heads.key_size, 1, key),
                             (heads.keys * heads.value_size, 1, value)]  # fmt: skip
                if sum(length for length, *_ in stretches) != n:
                    raise PlaceError(f"-sm tensor: {spec.name} has {n} rows, which are not those of Q, K and V")
                return stretches
            case "feed-forward":
                # Of a weight that is gate and up together, each half is cut by itself.
                base = spec.name.rpartition(".")[0].replace("gate_up", "down").replace("up", "down")
                down = self.weights.get(f"{base}.weight")
                fused = "gate_up" in spec.name or ("ffn_up." in spec.name and down is not None and n == 2 * down.ne[0])
                return [(n // 2 if fused else n, 2 if fused else 1, lcm(block, _FASTEST))]
        return [(n, 1, units.get(cut.unit, 1))]

    def _cut(self, length: int, unit: int, rotation: int) -> list[int]:
        """The part of each GPU, rounded down to whole units; the last one in turn has the rest."""
        turned = [self.shares[(i + rotation) % self.n_gpus] for i in range(self.n_gpus)]
        ends = list(accumulate(turned, lambda a, b: f32(a + f32(b)), initial=0.0))[1:]
        parts, low = [0] * self.n_gpus, 0
        for i in range(self.n_gpus):
            high = length
            if i < self.n_gpus - 1:
                even = length * (i + 1) // self.n_gpus
                high = int(f32(f32(f32(length) * ends[i]) / ends[-1])) if ends[-1] else even
                high -= high % unit
            parts[(i + rotation) % self.n_gpus] = high - low
            low = high
        return parts


class GpuShare(NamedTuple):
    """What a GPU has: the part of 1 that was asked for, that it got of what is cut, and the bytes that are whole."""

    gpu: str
    asked: float
    got: float
    whole: int


class OnAll(NamedTuple):
    """A model on all GPUs at once: placed on Meta, with what each GPU needs."""

    placement: Placement
    needs: PlannedNeeds
    shares: tuple[GpuShare, ...]


def meta_device(gpus: Sequence[BackendSpec]) -> BackendSpec:
    """The device that stands for the GPUs. Raises PlaceError if they are of different kinds, or there is none."""
    if not gpus:
        raise PlaceError("-sm tensor needs a GPU: --device CUDA0:24GiB,CUDA1:24GiB")
    first = gpus[0]
    if any(replace(gpu, name=first.name, memory=first.memory) != first for gpu in gpus):
        names = ", ".join(gpu.name for gpu in gpus)
        raise PlaceError(f"-sm tensor is planned for GPUs of one kind, with the same params; not for {names}")
    known = [gpu.memory for gpu in gpus if gpu.memory is not None]
    return replace(
        first,
        name=f"Meta({','.join(gpu.name for gpu in gpus)})",
        memory=sum(known) if len(known) == len(gpus) else None,
        offload_min_batch=None,
        never_offloads=True,
        events=False,
        graph_optimize=False,
    )


def place_on_all(
    model: ScenarioSpec, devices: Sequence[BackendSpec], options: PlaceOptions, margins: Sequence[int]
) -> OnAll:
    """Place a captured model with -sm tensor, and reserve its graphs. Raises LlamaRefused and PlaceError."""
    if lacks(model.release, SINCE):
        raise PlaceError(f"-sm tensor follows the llama.cpp of {SINCE}; the graph is of an earlier one")
    names = {gpu.name for gpu in Placer(model, devices).gpus}
    gpus = [d for d in devices if d.name in names]
    meta = meta_device(gpus)
    placer = Placer(model, [meta, *(d for d in devices if d.name not in names)])
    split = TensorSplit(placer.parts, len(gpus), options.tensor_split)
    placement, needs = place_and_measure(placer, replace(options, split_mode="layer", tensor_split=()), probe=True)
    uses, shares = _parts(placer, placement, needs, gpus, split)
    memory = {d.name: d.memory for d in (*gpus, placer.cpu) if d.memory is not None}
    kept = margins_of([gpu.name for gpu in gpus], placer.cpu.name, margins)
    placement = replace(placement, pipeline="each GPU has a part of every layer")
    return OnAll(placement, replace(needs, uses=uses, memory=memory, margins=kept), shares)


def _parts(
    placer: Placer, placement: Placement, needs: PlannedNeeds, gpus: Sequence[BackendSpec], split: TensorSplit
) -> tuple[tuple[BufferUse, ...], tuple[GpuShare, ...]]:
    """What each GPU has of the buffers of Meta, and the share that this is."""
    meta = placer.gpus[0].name
    buft = placer.devices[meta].buft
    whole = next(use for use in needs.uses if use.buft == buft.name)
    uses = [BufferUse(gpu.name, gpu.name, compute=whole.compute) for gpu in gpus]
    cut, mirrored = [0] * len(gpus), 0
    for context in (c for c in placement.model.contexts if c.buft == buft.name):
        for spec in (t for t in context.tensors if t.view_src is None):
            part = split.of(spec)
            cuts = (Tensor(spec.type, part.ne(spec, i)) for i in range(len(gpus)))
            sizes = [pad(buft.get_alloc_size(t), buft.alignment) for t in cuts]
            for i, use in enumerate(uses):
                if context.usage == "weights":
                    use.weights += sizes[i]
                else:
                    use.cache += sizes[i]
                cut[i] += sizes[i] if part.axis is not None else 0
            mirrored += sizes[0] if part.axis is None else 0
    asked = split.shares if any(split.shares) else [1.0] * len(gpus)
    shares = tuple(
        GpuShare(gpu.name, asked[i] / sum(asked), cut[i] / (sum(cut) or 1), mirrored) for i, gpu in enumerate(gpus)
    )
    return (*uses, *(use for use in needs.uses if use is not whole)), shares
