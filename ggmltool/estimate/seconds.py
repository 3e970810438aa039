"""Seconds of a plan: for each node the longer of its bytes and its operations, summed once for each device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from ggmltool.estimate.records import NOTHING, Efficiency, Estimate, Range, Rates, Split
from ggmltool.estimate.work import Kind, NodeWork, work_of
from ggmltool.ggml.tensor import Tensor

Sums = tuple[list[float], list[float], list[float]]
"""Seconds of all nodes before the i-th: at least, likely, at most."""


class GraphWork:
    """The work of a graph's nodes, made once and used for every placement of the graph.

    `nodes` are the graph's, in its order; `cached` as in `work_of`.
    """

    def __init__(self, nodes: Sequence[Tensor], cached: int | None = None) -> None:
        self.works = work_of(nodes, cached)
        self.index = {n.id: i for i, n in enumerate(nodes)}
        self.nbytes = {t.id: t.nbytes for n in nodes for t in (n, *n.src) if t is not None}


class Estimator:
    """The seconds of a graph on devices of known rates.

    `rates` has each backend's rates by its name. `weights_pinned`: weights on the host lie in memory that devices read
    themselves, instead of the model file's pages.
    """

    def __init__(self, work: GraphWork, rates: Mapping[str, Rates], weights_pinned: bool = False) -> None:
        self.work = work
        self.rates = rates
        self.weights_pinned = weights_pinned
        self._sums: dict[str, Sums] = {}

    def seconds(self, splits: Iterable[Split]) -> Estimate:
        """The seconds of computing the graph once, split by split. Raises KeyError for a backend without rates."""
        low = mid = high = 0.0
        copied = NOTHING
        where: dict[int, str] = {}
        for split in splits:
            lows, mids, highs = self._sums_of(split.backend)
            a, b = split.i_start, split.i_end
            low += lows[b] - lows[a]
            mid += mids[b] - mids[a]
            high += highs[b] - highs[a]
            for id in split.inputs:
                copied += self._copy(id, split.backend)
            where[a] = split.backend
        return Estimate(low, mid, high) + copied

    def _copy(self, id: str, backend: str) -> Estimate:
        rates = self.rates[backend]
        link = rates.to_device
        if link is None:
            return NOTHING
        rate = link.pinned if id in self.work.index or self.weights_pinned else link.pageable
        s = link.latency + self.work.nbytes.get(id, 0) / rate
        return Estimate(s, s, s)

    def _sums_of(self, backend: str) -> Sums:
        sums = self._sums.get(backend)
        if sums is None:
            rates = self.rates[backend]
            rows = [node_seconds(w, rates) for w in self.work.works]
            sums = self._sums[backend] = (
                list(accumulate((r.low for r in rows), initial=0.0)),
                list(accumulate((r.mid for r in rows), initial=0.0)),
                list(accumulate((r.high for r in rows), initial=0.0)),
            )
        return sums


def node_seconds(work: NodeWork, rates: Rates) -> Estimate:
    """The seconds of one node on a device: the longer of its bytes and its operations, and its launch."""
    bytes_share, rate, operations_share = _shares(work, rates)
    launch = _launch(work, rates)
    operations = work.operations
    if work.columns >= rates.many:
        operations *= 1 + rates.filling / work.columns
    by = [
        max(work.nbytes / (rates.memory * m), operations / (rate * o))
        for m, o in zip(bytes_share, operations_share, strict=True)
    ]
    low, mid, high = sorted(by)
    return Estimate(launch + low, launch + mid, launch + high)


def _launch(work: NodeWork, rates: Rates) -> float:
    if work.nbytes == 0 or (work.fused and rates.fuses):
        return 0.0
    return rates.launch if rates.launch_captured is None else rates.launch_captured


def _shares(work: NodeWork, rates: Rates) -> tuple[Range, float, Range]:
    """The share of the memory's rate, the rate of operations, and the share of that."""
    e: Efficiency = rates.efficiency
    few = work.columns < rates.many
    match work.kind:
        case Kind.ELEMENTS:
            return e.stream, rates.f32, e.vector
        case Kind.ATTENTION:
            return e.stream, rates.f16, e.attention
        case Kind.QUANTIZED:
            return (e.matvec, rates.int8, e.vector) if few else (e.stream, rates.int8, e.matmul_quantized)
    rate = {Kind.F16: rates.f16, Kind.BF16: rates.bf16}.get(work.kind, rates.f32)
    return e.stream, rate, e.vector if few else e.matmul_float
