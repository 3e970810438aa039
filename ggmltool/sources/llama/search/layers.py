"""What a layer of a graph comes to at least on the devices of one placement: seconds, compute buffers, splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.estimate.seconds import Estimator
from ggmltool.ggml.tensor import Tensor
from ggmltool.sources.llama.needs import Copied, PlacedSplit
from ggmltool.sources.llama.search.anatomy import Anatomy
from ggmltool.sources.llama.search.peaks import Peak, Peaks


class Layer(NamedTuple):
    """A layer's share: likely seconds, bytes at once in a GPU's compute buffer (more `before_next`, a layer on the same
    GPU), those of a `single` tensor there, changes from one backend to another. Each is the least that any placement
    has in which the layer's weights lie as in the one that was measured.
    """

    seconds: float
    compute: int
    before_next: int
    single: int
    changes: int


def layer_shares(
    a: Anatomy,
    splits: Sequence[PlacedSplit],
    estimator: Estimator,
    gpus: Sequence[str],
    peaks: Sequence[Peak],
    on_cpu: bool,
) -> list[Layer]:
    """The shares of all layers in a graph that was planned to these splits; those of the input's nodes are left out.

    Anchors run where their weights lie, and the nodes between two anchors of a layer by where these run: so the layer's
    inner nodes run on the same backends in every placement with its weights there. What comes after the last anchor
    runs on some GPU if it does here, for the next layer is on a GPU, too; after a layer that is `on_cpu` it may run
    anywhere.
    """
    where = [split.backend for split in splits for _ in range(split.i_start, split.i_end)]
    n = len(peaks)
    seconds, changes = [0.0] * n, [0] * n
    sums = {backend: estimator.sums(backend)[1] for backend in estimator.rates}
    on_gpus = [sums[gpu] for gpu in gpus]
    for i, il in enumerate(a.layers[: len(where)]):
        if il is None or il < 0:
            continue
        if not a.border[i]:
            backends = [sums[where[i]]]
        else:
            backends = list(sums.values()) if on_cpu or where[i] not in gpus else on_gpus
        seconds[il] += min(before[i + 1] - before[i] for before in backends)
        if i and a.layers[i - 1] == il and not a.border[i] and where[i] != where[i - 1]:
            changes[il] += 1
    for il, cost in _copies(a, splits, estimator, gpus):
        seconds[il] += cost
    return [Layer(seconds[il], *peaks[il], changes[il]) for il in range(n)]


def input_seconds(a: Anatomy, splits: Sequence[PlacedSplit], estimator: Estimator) -> float:
    """The seconds of the input's own nodes, whose weights are always on the CPU."""
    where = [split.backend for split in splits for _ in range(split.i_start, split.i_end)]
    nodes = [i for i, il in enumerate(a.layers[: len(where)]) if il == -1 and not a.border[i]]
    sums = {backend: estimator.sums(backend)[1] for backend in set(where)}
    return sum(sums[where[i]][i + 1] - sums[where[i]][i] for i in nodes)


def arrivals(a: Anatomy, peaks: Peaks, estimator: Estimator, gpu: str, n: int) -> list[float]:
    """The seconds of copies without which the first layer of a GPU cannot begin, for each layer that this may be.

    The graph's inputs that its inner nodes read are copied to the GPU, and at least one tensor computed before.
    """
    out = []
    for il in range(n):
        leafs: dict[str, float] = {}
        made: list[float] = []
        for i in peaks.inner.get(il, ()):
            for s in peaks.outside(i, il):
                seconds = min(
                    estimator.copy(Copied(s.id, s.nbytes, b), PlacedSplit(gpu, i, i, ())).mid
                    for b in estimator.rates
                    if b != gpu
                )
                if not peaks.is_leaf(s):
                    made.append(seconds)
                elif s.id not in a.weights:
                    leafs[s.id] = seconds
        out.append(sum(leafs.values()) + min(made, default=0.0))
    return out


def _copies(
    a: Anatomy, splits: Sequence[PlacedSplit], estimator: Estimator, gpus: Sequence[str]
) -> list[tuple[int, float]]:
    """The seconds of copies that a layer has wherever others are: of its weights, and of what its own nodes made."""
    at = {n.id: i for i, n in enumerate(a.nodes)}
    out = []
    for split in splits:
        readers = _readers(a.nodes[split.i_start : split.i_end], split.i_start)
        for copied in split.inputs:
            reader, made = readers.get(copied.id), at.get(copied.id)
            il = None if reader is None else a.layers[reader]
            if reader is None or il is None or il < 0:
                continue
            inner = not a.border[reader]
            if made is None and not (inner and copied.id in a.weights):
                continue
            if made is not None and (a.layers[made] != il or a.border[made]):
                continue
            backends = [split.backend] if inner else gpus
            out.append((il, min(estimator.copy(copied, split._replace(backend=b)).mid for b in backends)))
    return out


def _readers(nodes: Sequence[Tensor], first: int) -> Mapping[str, int]:
    """The first node that reads each tensor."""
    found: dict[str, int] = {}
    for i, n in enumerate(nodes, first):
        for s in n.src:
            if s is not None:
                found.setdefault(s.id, i)
    return found
