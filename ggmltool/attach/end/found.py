"""Which scheduler and which graph a program is busy with, wherever it stands: looked for on its stack.

A call of the scheduler has both in its arguments, its registers or its stack, as have the functions that it calls. What
points to one is told from what does not by the struct that it points to, so no debug information is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.attach.files.instance import Instance
from ggmltool.attach.gdb.link import GdbLink
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


class _Fields:
    """Fields of a struct, read at many addresses at once."""

    def __init__(self, link: GdbLink, layout: Layout, tag: str) -> None:
        self.link = link
        self.struct = layout.structs[tag]

    def offset(self, name: str) -> int:
        """Where a field begins, -1 of one that the struct has not."""
        member = (self.struct.members or {}).get(name)
        return -1 if member is None else member.offset

    def ints(self, address: int, names: Iterable[str]) -> list[int]:
        """Fields of four bytes at an address; 0 of those that there are not."""
        return self.pointers(address, names, 4)

    def pointers(self, address: int, names: Iterable[str], size: int = 8) -> list[int]:
        """Fields of eight bytes, or `size`."""
        spans = [(address + self.offset(name), size) if self.offset(name) >= 0 else (0, 0) for name in names]
        return [int.from_bytes(raw, "little", signed=size == 4) for raw in self.link.read_many(spans)]


def is_scheduler(link: GdbLink, layout: Layout, address: int) -> bool:
    """Whether a ggml_backend_sched lies there, as far as its fields tell."""
    f = _Fields(link, layout, "ggml_backend_sched")
    n, n_copies, n_splits = f.ints(address, ("n_backends", "n_copies", "n_splits"))
    if (
        not 1 <= n <= _MOST_BACKENDS
        or n_splits < 0
        or ("n_copies" in (f.struct.members or {}) and not 1 <= n_copies <= 64)
    ):
        return False
    raw, raw_bufts = link.read_many(
        [(address + f.offset("backends"), 8 * _MOST_BACKENDS), (address + max(f.offset("bufts"), 0), 8 * n)]
    )
    if len(raw) < 8 * _MOST_BACKENDS:
        return False
    backends = struct.unpack(f"<{_MOST_BACKENDS}Q", raw)
    if not all(map(_points, backends[:n])) or any(backends[n:]):
        return False
    if f.offset("bufts") >= 0 and not all(map(_points, struct.unpack(f"<{len(raw_bufts) // 8}Q", raw_bufts))):
        return False
    (galloc,) = f.pointers(address, ("galloc",))
    if not galloc:
        return "galloc" not in (f.struct.members or {})
    (n_buffers,) = _Fields(link, layout, "ggml_gallocr").ints(galloc, ("n_buffers",))
    return n_buffers == n


def is_graph(link: GdbLink, layout: Layout, address: int) -> bool:
    """Whether a ggml_cgraph with nodes lies there, as far as its fields tell."""
    f = _Fields(link, layout, "ggml_cgraph")
    size, n_nodes, n_leafs = f.ints(address, ("size", "n_nodes", "n_leafs"))
    if not 0 < n_nodes <= _MOST_NODES or not 0 <= n_leafs <= _MOST_NODES or not 0 <= size <= _MOST_NODES:
        return False
    (nodes,) = f.pointers(address, ("nodes",))
    (raw,) = link.read_many([(nodes, 8)]) if _points(nodes) else [b""]
    if len(raw) < 8:
        return False
    node = int.from_bytes(raw, "little")
    if not _points(node):
        return False
    f = _Fields(link, layout, "ggml_tensor")
    type, op = f.ints(node, ("type", "op"))
    (raw,) = link.read_many([(node + f.offset("ne"), 32)])
    ne = struct.unpack("<4q", raw) if len(raw) == 32 else (-1,)
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
    f = _Fields(link, layout, "ggml_backend_sched")
    wanted = [address for address in dict.fromkeys(addresses) if _points(address)]
    heads = link.read_many([(address + f.offset("n_backends"), 4) for address in wanted])
    likely = [a for a, raw in zip(wanted, heads, strict=True) if 1 <= int.from_bytes(raw, "little") <= _MOST_BACKENDS]
    return (address for address in likely if is_scheduler(link, layout, address))


def _first_graph(
    link: GdbLink, layout: Layout, sched: int, addresses: Sequence[int], frames: Sequence[Mapping[str, Any]]
) -> int:
    """The first graph that is none of the scheduler's own: its copy of the graph, and the views that its splits are."""
    f, g = _Fields(link, layout, "ggml_backend_sched"), _Fields(link, layout, "ggml_cgraph")
    (splits,), (capacity,) = f.pointers(sched, ("splits",)), f.ints(sched, ("splits_capacity",))
    own = (
        range(sched, sched + f.struct.size),
        range(splits, splits + max(capacity, 0) * layout.structs["ggml_backend_sched_split"].size),
        range(frames[0]["stack"], max(frame["stack"] for frame in frames)),
    )
    wanted = [a for a in dict.fromkeys(addresses) if _points(a) and not any(a in place for place in own)]
    heads = link.read_many([(address + g.offset("n_nodes"), 4) for address in wanted])
    likely = [a for a, raw in zip(wanted, heads, strict=True) if 0 < int.from_bytes(raw, "little") <= _MOST_NODES]
    return next((address for address in likely if is_graph(link, layout, address)), 0)
