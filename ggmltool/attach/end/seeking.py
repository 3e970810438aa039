"""What a program that has died had in hand: its schedulers, its graph, and the tensors that an abort may be about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from ggmltool.attach.end.abort import AbortReport, StackFrame, held
from ggmltool.attach.end.found import schedulers_among
from ggmltool.attach.files.corefile import CoreFile
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.attach.reading import ProcessReader
from ggmltool.ggml.state import GraphState, SchedState
from ggmltool.state.errors import AttachError, LinkError, NotAsLaidOut
from ggmltool.state.memory.tensors import TensorStruct

_MOST_SCHEDULERS = 64
"""Schedulers that are told of at most."""
_FLAGS = (0x0, 0x1, 0x100, 0x101)
"""is_reset and is_alloc, the first two bytes of a scheduler."""
_PIECE = 1 << 24
_LARGEST = 1 << 33
"""Bytes of a core dump that are searched."""
_TRIES = 4096


def schedulers_held(link: GdbLink, reader: ProcessReader, frames: Sequence[StackFrame]) -> list[SchedState]:
    """The schedulers that the calls have in hand, the innermost first."""
    words = [word.value for word in held(link, frames)]
    return list(_schedulers(reader, schedulers_among(link, reader.layout, words)))


def schedulers_dumped(reader: ProcessReader, core: CoreFile) -> list[SchedState]:
    """The schedulers in the memory of a core dump, by how they look; those that hold a graph first."""
    found = sorted(_schedulers(reader, _alike(core)), key=lambda s: not s.is_alloc)
    return found[:_MOST_SCHEDULERS]


def graph_of(link: GdbLink, reader: ProcessReader, sched: SchedState, frames: Sequence[StackFrame] = ()) -> GraphState:
    """The program's own graph that a scheduler has split: the one in hand of the calls, or the one that its splits are
    views of. Raises AttachError if there is none."""
    ours = {sched.graph.address, *(view.address for view in sched.split_graphs if view)}
    # Where the nodes of the graph lie whose views the splits are.
    views: dict[int, None] = {}
    for split, view in zip(sched.splits, sched.split_graphs, strict=True):
        if view is not None:
            with suppress(LinkError, AttachError):
                views[_nodes_at(reader, view.address) - 8 * split.i_start] = None
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


def _schedulers(reader: ProcessReader, addresses: Iterable[int]) -> Iterator[SchedState]:
    for tried, address in enumerate(addresses):
        if tried == _TRIES:
            return
        with suppress(LinkError, AttachError):
            yield reader.sched(address)


def _graphs(reader: ProcessReader, addresses: Iterable[int]) -> Iterator[GraphState]:
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


def _nodes_at(reader: ProcessReader, graph: int) -> int:
    return int(reader.fields("ggml_cgraph", graph, "nodes")[0])


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


_MOST_SUSPECTS = 6
"""Tensors that are told of."""
_LONGEST = 1 << 40
"""Elements of a dimension, of more than memory has."""
How = Literal["message", "named", "argument", "register", "stack"]


class Suspect(NamedTuple):
    """A tensor that an abort may be about, and how that is known: its name's address was printed (`message`), a tensor
    of that name is in the graph (`named`), or a call has it in hand, as `place` says, of the function `holder`."""

    tensor: TensorStruct
    how: How
    place: str
    holder: str


def suspects(link: GdbLink, reader: ProcessReader, abort: AbortReport, graph: Iterable[int] = ()) -> list[Suspect]:
    """The tensors, the likeliest first. `graph` are the tensors of the scheduler's graph, where there is one."""
    # The name of a tensor lies in it, so that a name that was printed tells the tensor.
    at = (reader.layout.structs["ggml_tensor"].members or {})["name"].offset
    asked = (value for value in abort.values if value.conversion == "s" and value.text not in ("?", ""))
    said = ((value, tensor_at(reader, value.raw - at)) for value in asked)
    printed = [Suspect(t, "message", "", "") for value, t in said if t is not None and _name(t) == value.text]
    if printed:
        return printed
    # Of a message that was read as a text, by the words in parentheses, where ggml prints names.
    tensors = map(reader.tensor, graph)
    named = [Suspect(t, "named", "", "") for t in tensors if t.name and f"({_name(t)})" in abort.message]
    if named:
        return named[:_MOST_SUSPECTS]
    out = []
    for word in held(link, abort.frames):
        tensor = tensor_at(reader, word.value)
        if tensor is not None:
            # At the entry of ggml_abort the registers are still its caller's.
            entered = word.how == "register" and word.frame == 0 and not abort.signal
            holder = abort.frames[word.frame + (entered and len(abort.frames) > 1)].function
            out.append(Suspect(tensor, word.how, word.name, holder))
    return out[:_MOST_SUSPECTS]


def _name(tensor: TensorStruct) -> str:
    return tensor.name.decode("utf-8", "surrogateescape")


def tensor_at(reader: ProcessReader, address: int) -> TensorStruct | None:
    """The tensor at an address, if one is there that ggml has made in one of its arenas."""
    objects = reader.tensors.object
    if address % 8 or not 0 < address < 1 << 56:
        return None
    try:
        _, size, _, kind = objects.unpack(reader.memory.read(address - objects.size, objects.size))
        if kind != reader.tensors.is_tensor or size < reader.tensors.record.size:
            return None
        tensor = reader.tensor(address)
    except (LinkError, AttachError):
        return None
    types, ops = (reader.layout.enums[enum].members.values() for enum in ("ggml_type", "ggml_op"))
    known = tensor.type in types and tensor.op in ops
    return tensor if known and all(0 < n < _LONGEST for n in tensor.ne) else None
