"""What a program that has died had in hand: its schedulers, its graph, and the tensors that an abort may be about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from ggmltool.attach.end.abort import AbortReport, HeldWord, StackFrame, held
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
    return int(reader.struct("ggml_cgraph", graph)["nodes"])


def _nodes_of_views(reader: ProcessReader, sched: SchedState) -> list[int]:
    """Where the nodes of the graph lie whose views the splits are."""
    out = []
    for split, view in zip(sched.splits, sched.split_graphs, strict=True):
        if view is not None:
            with suppress(LinkError, AttachError):
                out.append(_nodes_at(reader, view.address) - 8 * split.i_start)
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
    printed = list(_printed(reader, abort))
    if printed:
        return printed
    named = list(_named(reader, abort, graph))
    if named:
        return named[:_MOST_SUSPECTS]
    return list(_in_hand(link, reader, abort))[:_MOST_SUSPECTS]


def _printed(reader: ProcessReader, abort: AbortReport) -> Iterator[Suspect]:
    """The name of a tensor lies in it, so that a name that was printed tells the tensor."""
    name = (reader.layout.structs["ggml_tensor"].members or {})["name"].offset
    for value in abort.values:
        if value.conversion == "s" and value.text not in ("?", ""):
            tensor = tensor_at(reader, value.raw - name)
            if tensor is not None and tensor.name.decode("utf-8", "surrogateescape") == value.text:
                yield Suspect(tensor, "message", "", "")


def _named(reader: ProcessReader, abort: AbortReport, graph: Iterable[int]) -> Iterator[Suspect]:
    """Of a message that was read as a text, by the words in parentheses, where ggml prints names."""
    for address in graph:
        tensor = reader.tensor(address)
        name = tensor.name.decode("utf-8", "surrogateescape")
        if name and f"({name})" in abort.message:
            yield Suspect(tensor, "named", "", "")


def _in_hand(link: GdbLink, reader: ProcessReader, abort: AbortReport) -> Iterator[Suspect]:
    for word in held(link, abort.frames):
        tensor = tensor_at(reader, word.value)
        if tensor is not None:
            yield Suspect(tensor, word.how, word.name, _holder(abort, word))


def _holder(abort: AbortReport, word: HeldWord) -> str:
    """The function that has a word in hand. At the entry of ggml_abort the registers are still its caller's."""
    entered = word.how == "register" and word.frame == 0 and not abort.signal
    i = word.frame + 1 if entered and len(abort.frames) > 1 else word.frame
    return abort.frames[i].function


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
    known = tensor.type in _values(reader, "ggml_type") and tensor.op in _values(reader, "ggml_op")
    return tensor if known and all(0 < n < _LONGEST for n in tensor.ne) else None


def _values(reader: ProcessReader, enum: str) -> frozenset[int]:
    return frozenset(reader.layout.enums[enum].members.values())
