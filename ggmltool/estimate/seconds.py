"""Seconds of a plan: for each node the longer of its bytes and its operations, summed once for each device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from ggmltool.estimate.records import Estimate, Link, PlacedSplit, Rates, ShareRange, SplitCopy, lasting
from ggmltool.estimate.timeline import StepCopy, TimelineStep, Way, duration
from ggmltool.estimate.work import VIEW, Cells, NodeWork, RateKind, used_experts, work_of
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor, root_of
from ggmltool.ggml.version import SCHED_MAX_COPIES


class CopyCost(NamedTuple):
    """What copying a tensor of a graph takes: its bytes, as far as they are looked at, and what it is.

    The host has an `input` of the graph, or what a `node` has made, in pinned memory, where devices have such; a
    `weight` in the pages of the model's file, or in pinned memory without mmap; a `cache` in memory of the usual kind.
    `by_user`: it is flagged input itself, as a view of an input is not; then ggml_backend_sched_copy_input copies it
    before the user can write the next.
    """

    nbytes: float
    what: Literal["input", "node", "weight", "cache"]
    by_user: bool

    def is_pinned(self, weights_pinned: bool) -> bool:
        """Whether the host has it in pinned memory."""
        return self.what in ("input", "node") or (weights_pinned and self.what == "weight")


class GraphWork:
    """The work of a graph's nodes, made once and used for every placement of the graph.

    `nodes` are the graph's, in ggml's order; `cached` is how many tokens the caches hold before this batch, by default
    as many as the graph was built for. `works` has an entry for each node, `copied` one for each tensor by its id;
    `experts` has for the number of a MUL_MAT_ID its weight and the share of it that the batch uses.
    """

    def __init__(self, nodes: Sequence[Tensor], cached: int | None = None) -> None:
        cells = Cells(nodes, cached)
        self.works = work_of(nodes, cells)
        self.copied: dict[str, CopyCost] = {}
        self.experts: dict[int, tuple[str, float]] = {}
        for i, n in enumerate(nodes):
            for t in (n, *n.src):
                if t is not None and t.id not in self.copied:
                    nbytes = cells.of(t).read * t.nbytes
                    self.copied[t.id] = CopyCost(nbytes, _what(t, cells), bool(t.flags & FLAG_INPUT))
            if n.op == Op.MUL_MAT_ID and n.src[0] is not None and n.src[2] is not None:
                weight, ids = n.src[0], n.src[2]
                self.experts[i] = weight.id, used_experts(weight.ne[2], ids.ne[0], ids.ne[1]) / max(weight.ne[2], 1)

    def copied_as(self, id: str) -> CopyCost:
        """What copying a tensor takes, by its id, or by that of a weight that a placement has twice."""
        return self.copied.get(id) or self.copied[id.rpartition("~")[0]]


def _what(t: Tensor, cells: Cells) -> Literal["input", "node", "weight", "cache"]:
    root = root_of(t)
    if root.op != Op.NONE:
        return "node"
    if root.flags & FLAG_INPUT:
        return "input"
    return "cache" if cells.is_cache(root) else "weight"


class Estimator:
    """The seconds of a graph on devices of known rates.

    `rates` has the rates of each backend by its name. `weights_pinned`: weights on the host lie in memory that devices
    read themselves (llama.cpp's --no-mmap), instead of the pages of the model's file. `copies_experts`:
    only the experts that a batch uses are copied to where they are multiplied.
    """

    def __init__(
        self, work: GraphWork, rates: Mapping[str, Rates], weights_pinned: bool = False, copies_experts: bool = True
    ) -> None:
        self.work = work
        self.rates = rates
        self.weights_pinned = weights_pinned
        self.copies_experts = copies_experts
        self._sums: dict[str, tuple[list[float], list[float], list[float]]] = {}
        self._copies: dict[tuple[str, str, str, float], Estimate] = {}

    def seconds(self, splits: Iterable[PlacedSplit]) -> Estimate:
        """The seconds of computing the graph once, one split after the other, each after what it copies.

        That is how ggml_backend_sched computes a single batch: the next split always needs something of the one before.
        Raises KeyError for a backend without rates.
        """
        low = mid = high = 0.0
        for split in splits:
            lows, mids, highs = self.sums(split.backend)
            a, b = split.i_start, split.i_end
            low += lows[b] - lows[a]
            mid += mids[b] - mids[a]
            high += highs[b] - highs[a]
            for copied in split.inputs:
                s = self.copy(copied, split)
                low += s.low
                mid += s.mid
                high += s.high
        return Estimate(low, mid, high)

    def seconds_of_many(self, splits: Iterable[PlacedSplit], batches: int, copies: int = SCHED_MAX_COPIES) -> Estimate:
        """The seconds of computing the graph for so many batches one behind the other, with so many pipeline copies.

        A device can be at the next batch while another one is still at the one before. 1: there are no such copies.
        """
        splits = list(splits)
        if batches == 1 or len({s.backend for s in splits if not self.rates[s.backend].waits}) < 2:
            return self.seconds(splits).times(batches)
        return duration(self.steps(splits), batches, copies)

    def steps(self, splits: Iterable[PlacedSplit]) -> list[TimelineStep]:
        """The splits as they take time."""
        return [
            TimelineStep(
                split.backend,
                self.rates[split.backend].waits,
                self.compute(split),
                tuple(StepCopy(self._way(c, split), c.source, self.copy(c, split)) for c in split.inputs),
            )
            for split in splits
        ]

    def _way(self, copied: SplitCopy, split: PlacedSplit) -> Way:
        here, there = self.rates[split.backend], self.rates.get(copied.source)
        if self.work.copied_as(copied.id).by_user:
            return Way.USER
        if self.copies_experts and self.work.experts.get(split.i_start, ("", 1.0))[0] == copied.id:
            return Way.EXPERTS_QUEUED if self.weights_pinned else Way.EXPERTS
        return Way.QUEUED if there is not None and here.queues_copy(there) else Way.WAITING

    def compute(self, split: PlacedSplit) -> Estimate:
        """The seconds of a split's nodes."""
        a, b = split.i_start, split.i_end
        low, mid, high = (sums[b] - sums[a] for sums in self.sums(split.backend))
        return Estimate(low, mid, high)

    def copy(self, copied: SplitCopy, split: PlacedSplit) -> Estimate:
        """The seconds of copying a tensor to a split's backend."""
        share = self._share(copied, split)
        key = (copied.id, copied.source, split.backend, share)
        if key not in self._copies:
            self._copies[key] = self._copy(*key)
        return self._copies[key]

    def copied_nbytes(self, copied: SplitCopy, split: PlacedSplit) -> float:
        """The bytes that are copied of a tensor: of experts those that are used, of a cache the filled cells."""
        return self._share(copied, split) * self.work.copied_as(copied.id).nbytes

    def _share(self, copied: SplitCopy, split: PlacedSplit) -> float:
        weight, share = self.work.experts.get(split.i_start, ("", 1.0))
        return share if weight == copied.id and self.copies_experts else 1.0

    def _copy(self, id: str, source: str, backend: str, share: float) -> Estimate:
        what = self.work.copied_as(id)
        here, there = self.rates[backend], self.rates.get(source)
        ways = [(here.to_device, here)] if here.to_device is not None else []
        if there is not None and there.from_device is not None:
            ways.append((there.from_device, there))
        nbytes = share * what.nbytes
        if not ways:
            return lasting(here.launch, 2 * nbytes, here.memory, here.efficiency.stream)
        pinned = what.is_pinned(self.weights_pinned)
        slowest, rates = min(ways, key=lambda way: _rate(way[0], pinned))
        latency = max(link.latency for link, _ in ways)
        return lasting(latency, nbytes, _rate(slowest, pinned), rates.efficiency.link)

    def sums(self, backend: str) -> tuple[list[float], list[float], list[float]]:
        """For a backend the seconds of all nodes before the i-th: at least, likely, at most."""
        sums = self._sums.get(backend)
        if sums is None:
            known = {w: node_seconds(w, self.rates[backend]) for w in set(self.work.works)}
            low, mid, high = (list(accumulate((known[w][i] for w in self.work.works), initial=0.0)) for i in range(3))
            sums = self._sums[backend] = low, mid, high
        return sums


def _rate(link: Link, pinned: bool) -> float:
    return link.pinned if pinned else link.pageable


def node_seconds(work: NodeWork, rates: Rates) -> Estimate:
    """The seconds of one node on a device: the longer of its bytes and its operations, and its launch."""
    reads, rate, computes = _shares(work, rates)
    operations = work.operations
    if work.columns >= rates.many:
        operations *= 1 + rates.filling / work.columns
    captured = rates.launch_captured if work.columns < rates.many else None
    launch = rates.launch if captured is None else captured
    if work == VIEW or (rates.fuses and work.fused is not None and work.fused < rates.many):
        launch = 0.0
    return Estimate(
        *(
            launch * longer + max(work.nbytes / (rates.memory * m), operations / (rate * o))
            for m, o, longer in zip(reversed(reads), reversed(computes), rates.efficiency.launch, strict=True)
        )
    )


def _shares(work: NodeWork, rates: Rates) -> tuple[ShareRange, float, ShareRange]:
    """The share of the memory's rate, the rate of operations, and the share of that."""
    e = rates.efficiency
    few = work.columns < rates.many
    match work.kind:
        case RateKind.ELEMENTS:
            return e.stream, rates.f32, e.vector
        case RateKind.ATTENTION:
            return e.stream, rates.f16, e.attention
        case RateKind.QUANTIZED:
            return (e.matvec, rates.int8, e.vector) if few else (e.stream, rates.int8, e.matmul_quantized)
        case RateKind.F16:
            return e.stream, rates.f16, e.vector if few else e.matmul_float
        case RateKind.BF16:
            return e.stream, rates.bf16, e.vector if few else e.matmul_float
        case RateKind.F32:
            return e.stream, rates.f32, e.vector if few else e.matmul_float
