"""The schedulers and the graph of a program that has died: found in what it had in hand, or by their looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from ggmltool.attach.aborted import Frame, held
from ggmltool.attach.corefile import CoreFile
from ggmltool.attach.errors import AttachError
from ggmltool.attach.fields import NotAsLaidOut
from ggmltool.attach.found import schedulers_among
from ggmltool.attach.link import Link, LinkError
from ggmltool.attach.reading import Reader
from ggmltool.attach.state import GraphState, SchedState

MOST = 64
"""Schedulers that are told of at most."""
_FLAGS = (0x0, 0x1, 0x100, 0x101)
"""is_reset and is_alloc, the first two bytes of a scheduler."""
_PIECE = 1 << 24
_LARGEST = 1 << 33
"""Bytes of a core dump that are searched."""
_TRIES = 4096


def schedulers_held(link: Link, reader: Reader, frames: Sequence[Frame]) -> list[SchedState]:
    """The schedulers that the calls have in hand, the innermost first."""
    words = [word.value for word in held(link, frames)]
    return list(_schedulers(reader, schedulers_among(link, reader.layout, words)))


def schedulers_dumped(reader: Reader, core: CoreFile) -> list[SchedState]:
    """The schedulers in the memory of a core dump, by how they look; those that hold a graph first."""
    found = sorted(_schedulers(reader, _alike(core)), key=lambda s: not s.is_alloc)
    return found[:MOST]


def graph_of(link: Link, reader: Reader, sched: SchedState, frames: Sequence[Frame] = ()) -> GraphState:
    """The program's own graph that a scheduler has split: the one in hand of the calls, or the one that its splits are
    views of. Raises AttachError if there is none."""
    ours = {sched.graph.address, *(split.graph.address for split in sched.splits if split.graph)}
    views = _nodes_of_views(reader, sched)
    in_hand = [g for g in _graphs(reader, (w.value for w in held(link, frames))) if g.address not in ours]
    for graph in in_hand:
        if not views or _nodes_at(reader, graph.address) in views:
            return graph
    size = reader.graphs.record.size
    for nodes in views:
        # A graph that ggml made has its nodes right behind it.
        for graph in _graphs(reader, [nodes - size]):
            if _nodes_at(reader, graph.address) == nodes and graph.nodes:
                return graph
    if in_hand:
        return in_hand[0]
    raise AttachError(
        f"the scheduler at {sched.address:#x} is there, but no graph of its calls: it has split none yet, or the "
        "memory of its graph is used for something else",
        refused=True,
    )


def _schedulers(reader: Reader, addresses: Iterable[int]) -> Iterator[SchedState]:
    for tried, address in enumerate(addresses):
        if tried == _TRIES:
            return
        with suppress(LinkError, AttachError):
            yield reader.sched(address)


def _graphs(reader: Reader, addresses: Iterable[int]) -> Iterator[GraphState]:
    for address in addresses:
        if address % 8 or not address:
            continue
        with suppress(LinkError, AttachError):
            graph = reader.graph(address)
            if graph.size and graph.nodes and graph.hash_set.size >= graph.size:
                for node in graph.nodes[:4]:
                    if not reader.tensor(node).name and not reader.tensor(node).op:
                        raise NotAsLaidOut("a node without an op and a name")
                yield graph


def _nodes_at(reader: Reader, graph: int) -> int:
    return int(reader.struct("ggml_cgraph", graph)["nodes"])


def _nodes_of_views(reader: Reader, sched: SchedState) -> list[int]:
    """Where the nodes of the graph lie whose views the splits are."""
    out = []
    for split in sched.splits:
        if split.graph is not None:
            with suppress(LinkError, AttachError):
                out.append(_nodes_at(reader, split.graph.address) - 8 * split.i_start)
    return list(dict.fromkeys(out))


def _alike(core: CoreFile) -> Iterator[int]:
    """Where in a core dump stands what a scheduler begins with: flags, its number of backends, and as many pointers."""
    import numpy as np

    most, left = 16, _LARGEST
    with core.path.open("rb") as file:
        for segment in core.segments:
            if not segment.writable or segment.address % 8:
                continue
            for start in range(0, min(segment.there, left), _PIECE):
                file.seek(segment.offset + start)
                data = file.read(min(_PIECE + 8 * (most + 1), segment.there - start))
                words = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
                n = words >> np.uint64(32)
                alike = (n >= 1) & (n <= most) & np.isin(words & np.uint64(0xFFFFFFFF), np.array(_FLAGS, "<u8"))
                for i in np.flatnonzero(alike[: _PIECE // 8]).tolist():
                    after = words[i + 1 : i + 1 + most]
                    count = int(n[i])
                    if len(after) == most and after[:count].all() and not after[count:].any():
                        yield segment.address + start + 8 * i
            left -= segment.there
