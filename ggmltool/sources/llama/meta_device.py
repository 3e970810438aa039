"""-sm tensor: all GPUs are one device to the scheduler, ggml's Meta device, and each computes its part of every node.

From llama.cpp b11549, ggml/src/ggml-backend-meta.cpp: what Meta answers is what all its devices answer, it takes no
offload and has no events; of a compute buffer each device has one as large as if it computed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import pad
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.scenario.versions import lacks
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.layers import PlaceOptions
from ggmltool.sources.llama.needs import BufferUse, PlannedNeeds, margins_of, place_and_measure
from ggmltool.sources.llama.place import Placement, Placer
from ggmltool.sources.llama.tensor_split import SINCE, TensorSplit


class Share(NamedTuple):
    """What a GPU has: the part of 1 that was asked for, that it got of what is cut, and the bytes that are whole."""

    gpu: str
    asked: float
    got: float
    whole: int


class OnAll(NamedTuple):
    """A model on all GPUs at once: placed on Meta, with what each GPU needs."""

    placement: Placement
    needs: PlannedNeeds
    shares: tuple[Share, ...]


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
) -> tuple[tuple[BufferUse, ...], tuple[Share, ...]]:
    """What each GPU has of the buffers of Meta, and the share that this is."""
    meta = placer.gpus[0].name
    buft = placer.devices[meta].buft
    whole = next(use for use in needs.uses if use.buft == buft.name)
    uses = [BufferUse(gpu.name, gpu.name, compute=whole.compute) for gpu in gpus]
    cut, mirrored = [0] * len(gpus), 0
    for context in (c for c in placement.model.contexts if c.buft == buft.name):
        for spec in (t for t in context.tensors if t.view_src is None):
            part = split.of(spec)
            sizes = [_size(buft, Tensor(spec.type, part.ne(spec, i))) for i in range(len(gpus))]
            for i, use in enumerate(uses):
                if context.usage == "weights":
                    use.weights += sizes[i]
                else:
                    use.cache += sizes[i]
                cut[i] += sizes[i] if part.axis is not None else 0
            mirrored += sizes[0] if part.axis is None else 0
    asked = split.shares if any(split.shares) else [1.0] * len(gpus)
    shares = tuple(
        Share(gpu.name, asked[i] / sum(asked), cut[i] / (sum(cut) or 1), mirrored) for i, gpu in enumerate(gpus)
    )
    return (*uses, *(use for use in needs.uses if use is not whole)), shares


def _size(buft: BufferType, part: Tensor) -> int:
    """What a part takes in the buffer of its GPU."""
    return pad(buft.get_alloc_size(part), buft.alignment)
