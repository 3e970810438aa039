"""Which scheduler and which graph a program is busy with, wherever it stands: looked for on its stack.

A call of the scheduler has both in its arguments, its registers or its stack, as have the functions that it calls. What
points to one is told from what does not by the struct that it points to, so no debug information is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.attach.files.instance import Instance
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.memory.fields import record
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
