"""What a layer of a graph needs at least on the devices of one placement: seconds, compute buffers, splits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ggmltool.estimate.seconds import Estimator
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.sources.llama.needs import PlacedSplit
from ggmltool.sources.llama.search.anatomy import Anatomy


class Layer(NamedTuple):
    """A layer's share: likely seconds, bytes live at once in each GPU's compute buffer, changes from one backend to
    another. Each is the least that any placement has in which the layer's weights lie as in the one that was measured.
    """

    seconds: float
    compute: tuple[int, ...]
    changes: int


def layer_shares(a: Anatomy, splits: Sequence[PlacedSplit], estimator: Estimator, gpus: Sequence[str]) -> list[Layer]:
    """The shares of all layers in a graph that was planned to these splits; those of the input's nodes are left out.

    Anchors run where their weights lie, and the nodes between two anchors of a layer by where these run: so the layer's
    inner nodes run on the same backends in every placement with its weights there. What comes after the last anchor may
    run anywhere, and counts as on the fastest device.
    """
    where = [split.backend for split in splits for _ in range(split.i_start, split.i_end)]
    n = max((il for il in a.layers if il is not None), default=-1) + 1
    seconds, changes = [0.0] * n, [0] * n
    sums = {backend: estimator.sums(backend)[1] for backend in estimator.rates}
    for i, il in enumerate(a.layers[: len(where)]):
        if il is None or il < 0:
            continue
        backends = sums.values() if a.border[i] else (sums[where[i]],)
        seconds[il] += min(before[i + 1] - before[i] for before in backends)
        if i and a.layers[i - 1] == il and not a.border[i] and where[i] != where[i - 1]:
            changes[il] += 1
    for il, cost in _copies(a, splits, estimator, gpus):
        seconds[il] += cost
    peaks = {gpu: _peaks(a, splits, where, gpu, n) for gpu in gpus}
    return [Layer(seconds[il], tuple(peaks[gpu][il] for gpu in gpus), changes[il]) for il in range(n)]


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


def _peaks(a: Anatomy, splits: Sequence[PlacedSplit], where: Sequence[str], gpu: str, n: int) -> list[int]:
    """The most bytes that inner nodes of each layer need at once in a GPU's compute buffer.

    When a node is computed, its sources are in the buffer, unless they are the device's weights or caches: made there,
    or copied there. So is all that inner nodes of the layer made there before and that this node or a later one reads.
    What is computed in place takes over the memory of a source that nobody reads later.
    """
    peaks = [0] * n
    copied = {c.id for split in splits if split.backend == gpu for c in split.inputs}
    alive: dict[int, int] = {}
    here: int | None = None
    for i, il in enumerate(a.layers[: len(where)]):
        if il is None or il < 0 or a.border[i]:
            continue
        if il != here:
            alive, here = {}, il
        if where[i] != gpu:
            continue
        alive = {j: size for j, size in alive.items() if a.last_use[j] >= i}
        peaks[il] = max(peaks[il], sum(alive.values()) + _sources(a, i, copied, alive))
        node = a.nodes[i]
        if node.view_src is None:
            alive[i] = node.nbytes
    return peaks


def _sources(a: Anatomy, i: int, copied: Collection[str], alive: Mapping[int, int]) -> int:
    """The bytes of a node's sources that lie in the compute buffer, and are not among those alive."""
    found: dict[int, int] = {}
    for s in a.nodes[i].src:
        if s is None:
            continue
        root = root_of(s)
        at = a.index.get(id(root))
        if s.id in copied or (at is not None and at not in alive):
            found[id(root)] = max(found.get(id(root), 0), s.nbytes)
    return sum(found.values())
