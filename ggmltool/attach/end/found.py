"""What a program has in hand, wherever it stands: schedulers, graphs, and the tensors that an abort may be about."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from ggmltool.attach.end.abort import AbortReport, StackFrame, held
from ggmltool.attach.files.corefile import CoreFile
from ggmltool.attach.files.instance import Instance
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.attach.reading import ProcessReader
from ggmltool.ggml.state import GraphState, SchedState
from ggmltool.state.errors import AttachError, LinkError, NotAsLaidOut
from ggmltool.state.memory.fields import record
from ggmltool.state.memory.tensors import TensorStruct
from ggmltool.structs.layout import Layout

_MOST_FRAMES = 40
_MOST_STACK = 1 << 18
_MOST_NODES = 1 << 24
_MOST_BACKENDS = 16
_PROLOGUE = 64
_LOWEST, _HIGHEST = 0x10000, 1 << 47
_SCHEDULERS = ("sched",)
_GRAPHS = ("graph", "measure_graph", "gf", "cgraph")


class FoundScheduler(NamedTuple):
    """Addresses; 0 is none. `call` is the innermost function of the scheduler on the stack, "" if there is none,
    `entered` whether it has just begun; `copy` is the number of the ggml whose they are."""

    sched: int
    graph: int
    call: str = ""
    copy: int = 0
    entered: bool = False


def _read(link: GdbLink, layout: Layout, tag: str, address: int, *names: str) -> list[Any] | None:
    """Fields of a struct at an address, as StructFields has them; None where nothing is."""
    fields = record(layout, tag, names)
    (raw,) = link.read_many([(address, fields.size)])
    return fields.unpack(raw) if len(raw) == fields.size else None


def is_scheduler(link: GdbLink, layout: Layout, address: int) -> bool:
    """Whether a ggml_backend_sched lies there, as far as its fields tell."""
    names = ("n_backends", "n_copies|", "n_splits", "backends", "bufts|", "galloc|")
    found = _read(link, layout, "ggml_backend_sched", address, *names)
    if found is None:
        return False
    n, n_copies, n_splits, backends, bufts, galloc = found
    members = layout.structs["ggml_backend_sched"].members or {}
    if not 1 <= n <= len(backends) or n_splits < 0 or ("n_copies" in members and not 1 <= n_copies <= 64):
        return False
    if not all(map(_points, (*backends[:n], *(bufts[:n] if bufts else ())))) or any(backends[n:]):
        return False
    if not galloc:
        return "galloc" not in members
    return _read(link, layout, "ggml_gallocr", galloc, "n_buffers|") == [n]


def is_graph(link: GdbLink, layout: Layout, address: int) -> bool:
    """Whether a ggml_cgraph with nodes lies there, as far as its fields tell."""
    found = _read(link, layout, "ggml_cgraph", address, "size", "n_nodes", "n_leafs", "nodes")
    if found is None or not 0 < found[1] <= _MOST_NODES or not all(0 <= n <= _MOST_NODES for n in found[:3]):
        return False
    (raw,) = link.read_many([(found[3], 8)]) if _points(found[3]) else [b""]
    node = int.from_bytes(raw, "little")
    tensor = _read(link, layout, "ggml_tensor", node, "type", "op", "ne") if _points(node) else None
    if tensor is None:
        return False
    type, op, ne = tensor
    most = max(layout.enums["ggml_op"].members.values())
    return 0 <= type < 256 and 0 < op <= most + 8 and all(0 <= n < 1 << 48 for n in ne) and any(ne)


def _points(address: int) -> bool:
    return _LOWEST <= address < _HIGHEST and address % 8 == 0


def find(link: GdbLink, copies: Sequence[Instance], structs: Sequence[Layout]) -> FoundScheduler:
    """The scheduler and the graph that the selected thread is busy with, else another thread, in one of the copies of
    ggml, which have these structs."""
    for thread in link.ask("threads"):
        frames = link.ask("frames_of", thread, _MOST_FRAMES, [*_SCHEDULERS, *_GRAPHS])
        files = [frame["file"] for frame in frames]
        busy = [copy for copy in copies if any(file in copy.files for file in files)]
        # With one copy alone, its functions may stand in a program that gdb names otherwise.
        innermost = {c.files: next((i for i, f in enumerate(files) if f in c.files), len(files)) for c in copies}
        for copy in sorted(busy or copies[:1], key=lambda c: innermost[c.files]):
            number = copies.index(copy)
            found = _on_stack(link, structs[number], frames, {at: name for name, at in copy.symbols.items()})
            if found.sched:
                return found._replace(copy=number)
    return FoundScheduler(0, 0)


def _on_stack(
    link: GdbLink, layout: Layout, frames: Sequence[Mapping[str, Any]], functions: Mapping[int, str]
) -> FoundScheduler:
    calls = [frame["function"] for frame in frames if frame["function"].startswith("ggml_backend_sched_")]
    call = calls[0] if calls else ""
    # What variables of these names point to, where there is debug information.
    schedulers = [f["variables"][name] for f in frames for name in _SCHEDULERS if name in f["variables"]]
    graphs = [f["variables"][name] for f in frames for name in _GRAPHS if name in f["variables"]]
    if frames and frames[0]["function"].startswith("ggml_"):
        arguments = (
            link.arguments()[:3] if functions.get(frames[0]["pc"]) or calls[:1] == [frames[0]["function"]] else []
        )
        schedulers += arguments
        graphs += arguments
    words = list(dict.fromkeys([register for frame in frames for register in frame["registers"]]))
    sched = next(schedulers_among(link, layout, [*schedulers, *words]), 0)
    if not sched and any(frame["function"].startswith("ggml_") for frame in frames):
        words += _stack_words(link, frames)
        sched = next(schedulers_among(link, layout, words), 0)
    if not sched:
        return FoundScheduler(0, 0, call)
    if not graphs:
        words = list(dict.fromkeys([*words, *_stack_words(link, frames)]))
    graph = _first_graph(link, layout, sched, [*graphs, *words], frames)
    # A function stands at its first instructions where gdb puts breakpoints.
    entry = next((at for at, name in functions.items() if name == call), 0)
    entered = bool(call) and frames[0]["function"] == call and 0 <= frames[0]["pc"] - entry < _PROLOGUE
    return FoundScheduler(sched, graph, call, entered=entered)


def _stack_words(link: GdbLink, frames: Sequence[Mapping[str, Any]]) -> list[int]:
    """What may be pointers on the stack, the newest first; such as point to the stack itself are none."""
    if not frames:
        return []
    start = frames[0]["stack"]
    end = min(max(frame["stack"] for frame in frames) + 1024, start + _MOST_STACK)
    (raw,) = link.read_many([(start, max(end - start, 0) & ~7)])
    if not raw:
        (raw,) = link.read_many([(start, max(frames[-1]["stack"] - start, 0) & ~7)])
    words = struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) & ~7])
    return [word for word in dict.fromkeys(words) if _points(word) and not start <= word < end]


def schedulers_among(link: GdbLink, layout: Layout, addresses: Sequence[int]) -> Iterator[int]:
    """Those of these addresses where a scheduler lies, as far as its fields tell."""
    likely = _likely(link, layout, "ggml_backend_sched", "n_backends", _MOST_BACKENDS, addresses)
    return (address for address in likely if is_scheduler(link, layout, address))


def _likely(link: GdbLink, layout: Layout, tag: str, field: str, most: int, addresses: Sequence[int]) -> list[int]:
    """Those of these addresses where a struct with a count of 1 to `most` may lie."""
    offset = (layout.structs[tag].members or {})[field].offset
    wanted = [address for address in dict.fromkeys(addresses) if _points(address)]
    heads = link.read_many([(address + offset, 4) for address in wanted])
    return [a for a, raw in zip(wanted, heads, strict=True) if 1 <= int.from_bytes(raw, "little") <= most]


def _first_graph(
    link: GdbLink, layout: Layout, sched: int, addresses: Sequence[int], frames: Sequence[Mapping[str, Any]]
) -> int:
    """The first graph that is none of the scheduler's own: its copy of the graph, and the views that its splits are."""
    splits, capacity = _read(link, layout, "ggml_backend_sched", sched, "splits", "splits_capacity|") or (0, 0)
    own = [
        range(sched, sched + layout.structs["ggml_backend_sched"].size),
        range(frames[0]["stack"], max(frame["stack"] for frame in frames)),
    ]
    if capacity > 0:
        own.append(range(splits, splits + capacity * layout.structs["ggml_backend_sched_split"].size))
    wanted = [address for address in addresses if not any(address in place for place in own)]
    likely = _likely(link, layout, "ggml_cgraph", "n_nodes", _MOST_NODES, wanted)
    return next((address for address in likely if is_graph(link, layout, address)), 0)


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
