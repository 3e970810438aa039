"""The limits of each release of ggml, and how near a run is to each, from the engine's state and what it announced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from msgspec import Struct, convert
from msgspec.structs import asdict

from ggmltool.ggml.alloc.common import AnyGallocr, hash_keys
from ggmltool.ggml.buffer import Buffer
from ggmltool.ggml.device import Backend, memory_owner
from ggmltool.ggml.errors import Breach
from ggmltool.ggml.events import Allocated, AllocationStarted, Entered, Event, Freed
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT, RELEASES, own_data
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import MAX_DIMS, MAX_NAME, MAX_OP_PARAMS, MAX_SRC, n_dims
from ggmltool.ggml.version import MAX_FREE_BLOCKS, SIZE_MAX, VBUFFER_MAX_CHUNKS, hash_size
from ggmltool.inspect.decisions import Part

Kind = Literal["abort", "device", "grows", "fixed"]
"""Beyond a limit ggml aborts, or a device has no such memory; or ggml makes do (an array grows, a name is cut); or
nothing can go beyond it, since there is no way to ask for more."""


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    """`group` is the part of ggml it belongs to, `text` what is counted, `constant` ggml's name for the limit, `beyond`
    what ggml does then, in its own words where it says something."""

    group: str
    text: str
    constant: str
    kind: Kind
    beyond: str
    nbytes: bool = False


class _Otherwise(Struct, forbid_unknown_fields=True):
    """What a release has otherwise than the one it is like: limits that it lacks, and what others are in it."""

    absent: tuple[str, ...] = ()
    changed: dict[str, dict[str, str]] = {}


@cache
def limits_of(release: str) -> dict[str, Limit]:
    """The limits of the release of this name by their keys, in the order of the report."""
    like = RELEASES[release].like
    if like is None:
        return own_data(RELEASES[release], "limits.toml", dict[str, Limit]) or {}
    limits = limits_of(like.name)
    own = own_data(RELEASES[release], "limits.toml", _Otherwise)
    if own is None:
        return limits
    return {
        key: convert(asdict(limit) | own.changed.get(key, {}), Limit)
        for key, limit in limits.items()
        if key not in own.absent
    }


class LimitWatch(Part):
    """The scheduler's slots, and the most free blocks that a chunk had while the allocator made its last plan."""

    hears = frozenset({Entered, AllocationStarted, Allocated, Freed})
    looks_at_passes = True

    def __init__(self) -> None:
        self.gallocr: AnyGallocr | None = None
        self.slots = 0
        self.free_blocks = 0
        self.free_blocks_at = ""
        self._bufts: dict[str, int] = {}

    def attach(self, sched: AnyScheduler) -> None:
        self.gallocr = sched.gallocr
        for b, buft in enumerate(sched.gallocr.bufts):
            self._bufts.setdefault(buft.name, b)

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        if number == len(sched.passes) - 1:
            self.slots = len(sched.hash_keys())

    def hear(self, event: Event) -> None:
        match event:
            case Entered("ggml_backend_sched_reserve" | "ggml_backend_sched_alloc_graph" | "sched_split_graph"):
                self.slots = 0
            case AllocationStarted(at=-1):
                self.free_blocks, self.free_blocks_at = 0, ""
            case Freed(tensor, buft, chunk) | Allocated(tensor, buft, chunk) if self.gallocr is not None:
                blocks = len(self.gallocr.buf_tallocs[self._bufts[buft]].chunks[chunk].free_blocks)
                if blocks > self.free_blocks:
                    did = "was freed" if isinstance(event, Freed) else "was allocated"
                    self.free_blocks, self.free_blocks_at = blocks, f"{buft} chunk {chunk}, when {tensor} {did}"
            case _:
                pass


class Gauge(NamedTuple):
    """One limit: `used` of `limit`, where that is, and what it is made `of`. `key` is that of the limit; `used` is None
    where ggml did not get so far. `release` is the ggml whose limit it is."""

    key: str
    used: int | None
    limit: int
    where: str = ""
    of: tuple[tuple[str, int], ...] = ()
    release: str = ""

    @property
    def about(self) -> Limit:
        """What the limit is called, and what is beyond it."""
        return limits_of(self.release)[self.key]

    @property
    def share(self) -> float:
        """`used` as a share of `limit`; 1 is just possible."""
        if self.used is None:
            return 0.0
        return self.used / self.limit if self.limit else float(self.used > 0)


@dataclass(slots=True)
class Checked:
    """What the gauges are read from: a run after one step. `sched` is None if none could be made, `graph` where none
    could be built; `names` are the tensors' names before ggml cut them, `breach` is what ended the step, `release` the
    ggml that did it."""

    watch: LimitWatch
    backends: Sequence[Backend]
    sched: AnyScheduler | None = None
    graph: CGraph | None = None
    buffers: Sequence[Buffer] = ()
    names: Sequence[str] = ()
    breach: Breach | None = None
    ok: bool = True
    release: Release = DEFAULT


def gauges(of: Checked) -> list[Gauge]:
    """The gauge of every limit, in the order of the report; of several of a kind, the one that is closest to its limit.

    Limits that a run does not have (the memory of a device that the scenario does not give) are left out.
    """
    found: dict[str, Gauge] = {}
    for gauge in _all(of):
        known = found.get(gauge.key)
        if known is None or gauge.share > known.share:
            found[gauge.key] = gauge
    breach = of.breach
    if breach is not None and breach.limit in found:
        found[breach.limit] = found[breach.limit]._replace(used=breach.used)
    limits = limits_of(of.release.name)
    return [found[key]._replace(release=of.release.name) for key in limits if key in found]


def _all(of: Checked) -> Iterator[Gauge]:
    yield Gauge("backends", len(of.backends), of.release.max_backends, ", ".join(b.name for b in of.backends))
    sched, graph = of.sched, of.graph
    if graph is not None:
        for key, tensors in (("cgraph_nodes", graph.nodes), ("cgraph_leafs", graph.leafs)):
            yield Gauge(key, len(tensors), graph.size, f"the last is {tensors[-1].label}" if tensors else "")
        yield Gauge("cgraph_slots", len(graph.visited), hash_size(2 * graph.size))
        yield from map(_name, of.names)
        for t in (*graph.leafs, *graph.nodes):
            yield Gauge("dims", n_dims(t), MAX_DIMS, t.label)
            yield Gauge("src", len(t.src), MAX_SRC, t.label)
            yield Gauge("op_params", 4 * len(t.op_params), 4 * MAX_OP_PARAMS, t.label)
    if sched is None:
        return
    planned = of.ok or bool(sched.gallocr.node_allocs)
    yield from _scheduler(sched, graph, of.watch, planned)
    yield from _allocator(sched.gallocr, of.watch, planned, of.breach)
    yield from _memory(sched, of.buffers, planned)


def _scheduler(s: AnyScheduler, graph: CGraph | None, watch: LimitWatch, planned: bool) -> Iterator[Gauge]:
    most_inputs = s.release.rules.max_split_inputs
    yield Gauge("copies", s.n_copies, s.release.max_copies)
    if graph is not None:
        of = s.counted(graph)
        yield Gauge("sched_tensors", sum(n for _, n in of), s.hash_size, f"graph_size {s.graph_size}", of)
    split = watch.slots > 0
    yield Gauge("sched_slots", watch.slots if split else None, s.hash_size)
    made = s.arena.described() if split else ""
    yield Gauge("sched_context", s.arena.used if split else None, s.arena.size, made)
    splits = s.splits[: s.n_splits] if split else []
    most = s.release.max_splits
    grown = f"capacity so far: {len(s.splits)}" if most is None else ""
    yield Gauge("splits", len(splits) if split else None, most or s.graph_size, grown)
    if not split:
        yield Gauge("split_inputs", None, most_inputs)
    for i, sp in enumerate(splits):
        grown = f", capacity so far: {sp.inputs_capacity}" if sp.inputs_capacity > most_inputs else ""
        where = f"split #{i} on {s.names[sp.backend_id]}{grown}" if sp.inputs else ""
        yield Gauge("split_inputs", len(sp.inputs), most_inputs, where)
        for t in sp.inputs:
            yield _name(s.copy_name(sp.backend_id, t, s.n_copies - 1))
    if s.n_copies > 1:
        yield Gauge("graph_inputs", len(s.graph_inputs) if split else None, most_inputs)
    room = s.graph_size + s.graph_size * most_inputs * 2
    sized = f"capacity so far: {s.own_size}; " if planned else ""
    yield Gauge("sched_nodes", len(s.nodes) if planned else None, room, f"{sized}with copies and dependencies")
    yield Gauge("sched_leafs", len(s.leafs) if planned else None, room, "with pipeline copies")


def _allocator(g: AnyGallocr, watch: LimitWatch, planned: bool, breach: Breach | None) -> Iterator[Gauge]:
    reached = planned or (breach is not None and breach.limit in ("gallocr_slots", "chunks", "free_blocks"))
    if not planned:
        yield Gauge("gallocr_slots", None, g.hash_size)
    else:
        n = len(hash_keys(g.planned_nodes, g.planned_leafs))
        own = (("nodes", len(g.planned_nodes)), ("leafs", len(g.planned_leafs)))
        others = n - sum(k for _, k in own)
        of = (*own, ("roots of views", others)) if others > 0 else own
        yield Gauge("gallocr_slots", n, g.hash_size, "copies are both" if others < 0 else "", of)
    for i, tallocr in enumerate(g.buf_tallocs):
        if g.buf_tallocs.index(tallocr) == i:
            yield Gauge("chunks", len(tallocr.chunks) if reached else None, VBUFFER_MAX_CHUNKS, g.bufts[i].name)
    yield Gauge("free_blocks", watch.free_blocks if reached else None, MAX_FREE_BLOCKS, watch.free_blocks_at)


def _name(name: str) -> Gauge:
    return Gauge("name", len(name.encode("utf-8", "surrogateescape")), MAX_NAME - 1, name)


def _memory(s: AnyScheduler, contexts: Sequence[Buffer], planned: bool) -> Iterator[Gauge]:
    compute = s.compute_buffers()
    by_device: dict[str, list[int]] = {}
    for k, buffers in enumerate((contexts, compute)):
        for buffer in buffers:
            by_device.setdefault(memory_owner(buffer.buft, s.backends).name, [0, 0])[k] += buffer.size
            if buffer.buft.largest < SIZE_MAX // 2:
                what = "compute buffer, chunk" if k else "buffer of a context, part"
                yield Gauge(
                    "buffer_size", buffer.size, buffer.buft.largest, f"{buffer.buft.name} {what} {buffer.chunk}"
                )
    for name, most, room in s.measured_memory():
        yield Gauge("measured", most, room, name)
    for backend in s.backends:
        memory = backend.device.memory
        if memory is not None:
            of_contexts, of_compute = by_device.get(backend.name, (0, 0))
            of = (("contexts", of_contexts), ("compute buffers", of_compute))
            used = of_contexts + of_compute if planned or of_contexts > memory else None
            yield Gauge("device_memory", used, memory, backend.name, of)


def highest(of_graphs: Mapping[str, Sequence[Gauge]]) -> list[Gauge]:
    """Of every limit the gauge of the graph that is closest to it, which then says which graph that is."""
    best: dict[str, Gauge] = {}
    for graph, found in of_graphs.items():
        for gauge in found:
            known = best.get(gauge.key)
            if known is None or (known.used is None and gauge.used is not None) or gauge.share > known.share:
                where = f"{graph}: {gauge.where}" if gauge.where else graph
                best[gauge.key] = gauge._replace(where=where)
    releases = {gauge.release for found in of_graphs.values() for gauge in found}
    order = dict.fromkeys(key for release in releases for key in limits_of(release))
    return [best[key] for key in order if key in best]
