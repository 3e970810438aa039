"""Where tensors lie and when, from the allocator's events and from the memory that contexts have of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.sched.common import n_keepers
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor, dims, op_desc
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.built import graph_numbers
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.memory import Lifetime
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.use_after_free import FreedBy, freed_memory_of
from ggmltool.scenario.errors import nearest, quoted
from ggmltool.scenario.versions import has_no_flags


class Reader(NamedTuple):
    """A node that reads a tensor, its place in the order of computing (copies counted), and the view it reads ("" for
    none); or a copy of it.
    """

    at: int
    node: str
    view: str = ""
    is_copy: bool = False


class Until(NamedTuple):
    """A node until which a device keeps a tensor, its place in the order of computing (copies counted), and the backend
    of the device."""

    at: int
    node: str
    backend: str


@dataclass(frozen=True, slots=True)
class TensorLife:
    """A tensor's place and time.

    `where` names the buffer ("" if it has no memory), `offset` is in `chunk`; a view has its `root` and the bytes that
    it looks at. `life` is what the allocator planned for it (or its root), None for memory of a context's. `neighbors`
    have some of its bytes at some time, itself among them; `writers` are nodes that write into it in place of having
    memory of their own. `can_be_output`: this ggml keeps what is flagged output.
    `kept_until` are the nodes until which devices asked for its memory to be kept (add_alloc_dep). `freed` says why its
    memory was freed (None: it was not); `is_older`: an older plan placed it, of which the allocator knows nothing now.
    """

    tensor: str
    op: str
    shape: str
    root: str | None
    where: str
    chunk: int
    offset: int
    size: int
    life: Lifetime | None
    is_input: bool
    is_output: bool
    is_copy: bool
    readers: tuple[Reader, ...]
    views: tuple[str, ...]
    neighbors: tuple[Lifetime, ...]
    writers: tuple[str, ...]
    can_be_output: bool = True
    kept_until: tuple[Until, ...] = ()
    freed: FreedBy | None = None
    is_older: bool = False

    @property
    def takers(self) -> list[Lifetime]:
        """Who is written over it, in order."""
        life = self.life
        return [] if life is None else [n for n in self.neighbors if n is not life and n.start > life.start]

    @property
    def overwritten_too_early(self) -> list[tuple[Lifetime, Reader]]:
        """Who is written over it before a node reads it, and that node.

        A node may overwrite what it reads itself, where it computes in place; a copy may not.
        """
        return [
            (t, r)
            for t in self.takers
            for r in self.readers
            if r.at > t.start or (r.is_copy and t.tensor == r.node and t.start == r.at)
        ]


class Lifetimes:
    """The allocator's last plan at a moment: all lifetimes, and the nodes in the order they are computed."""

    def __init__(self, opened: Opened, moment: Moment) -> None:
        self.watched = watch_allocator(opened, moment)
        self.memory = self.watched.at.record.memory
        self.nodes = tuple(self.memory.nodes)
        self.turns = self.memory.turns(graph_numbers(opened.scenario, self.watched.at.graph))
        self.planned = self.watched.gallocr.planned_nodes
        gallocr = self.watched.gallocr
        # Where the allocator makes a view of what it places in the memory of a source, that is no view of the graph's.
        self.inplace = gallocr.inplace
        self.tensors: dict[str, Tensor] = {}
        older = (t for _, table in reversed(self.watched.at.run.newest.values()) for t in table)
        for t in (*self._of_the_graph(), *self.watched.gallocr.planned_leafs, *self.watched.at.built().table, *older):
            self.tensors.setdefault(t.label, t)

    def _of_the_graph(self) -> list[Tensor]:
        return [t for n in self.planned for t in (n, *n.src) if t is not None]

    def of(self, name: str) -> TensorLife:
        """Where a tensor lies, and who else has its bytes. Raises InspectError if there is none of that name."""
        t = self.tensors.get(name) or next((t for t in self.tensors.values() if t.name == name), None)
        if t is None:
            near = nearest(name, self.tensors)
            hint = f"; did you mean {quoted(near)}?" if near else ""
            raise InspectError(f"graph {self.watched.at.graph} has no tensor {quoted(name)}{hint}")
        root = t.view_src if t.view_src is not None and t.index not in self.inplace else t
        life = self._life(root)
        own = root.buffer if life is None else None
        if life is not None:
            place = (f"{life.buft} compute buffer", life.chunk, life.offset)
            room = life.size
        elif own is not None and root.data:
            place = (f"{own.buft.name} ({USAGE_NAMES[own.usage]})", own.chunk, root.data - own.base)
            room = root.nbytes
        else:
            place, room = ("", 0, 0), 0
        offset = place[2] + (t.view_offs if t is not root else 0)
        return TensorLife(
            tensor=t.label,
            op=op_desc(t) if t.op else "",
            shape=f"{t.type.name}{dims(t.ne)}",
            root=root.label if root is not t else None,
            where=place[0],
            chunk=place[1],
            offset=offset,
            size=room if t is root else t.nbytes,
            life=life,
            is_input=bool(t.flags & FLAG_INPUT) or (life is not None and life.start < 0 and not t.op),
            is_output=bool(root.flags & FLAG_OUTPUT),
            is_copy=not t.id,
            readers=tuple(self._readers(t, root)),
            views=tuple(v.label for v in self.tensors.values() if self._views(v, t) and v.op),
            neighbors=tuple(self._neighbors(life, offset, t.nbytes if t is not root else room)),
            writers=tuple(
                n.label
                for n in self.planned
                if n.view_src is root and n.op and not n.is_view_op and n.index not in self.inplace
            ),
            can_be_output=not has_no_flags(self.watched.at.sched.release),
            kept_until=tuple(self._kept_until(t, root)),
            freed=freed_memory_of(root, self.watched.at.run.model),
            is_older=own is not None and own in self.watched.at.sched.compute_buffers(),
        )

    def _views(self, v: Tensor, t: Tensor) -> bool:
        """Whether the graph itself says that `v` is a view of `t`."""
        return v.view_src is t and v.index not in self.inplace

    def _life(self, t: Tensor) -> Lifetime | None:
        """What was planned for a tensor. Copies of tensors of one name have one name; then its place tells."""
        lives = [life for life in self.memory.lifetimes if life.tensor == t.label]
        hn = self.watched.gallocr.hash_nodes
        if len(lives) > 1 and t.index < len(hn.offset):
            lives = [x for x in lives if (x.chunk, x.offset) == (hn.chunk[t.index], hn.offset[t.index])] or lives
        return lives[0] if lives else None

    def _readers(self, t: Tensor, root: Tensor) -> list[Reader]:
        """The nodes that read a tensor, through its views too, and its copies; with the number of each.

        The scheduler puts a view without an op before each copy, which ties it to what is copied.
        """
        out = []
        keepers = {i for at in self.keepers.values() for i in at}
        for i, node in enumerate(self.planned):
            if i in keepers:
                continue
            if node.view_src is not None and not node.op:
                if node.view_src is root and i + 1 < len(self.planned):
                    out.append(Reader(i + 1, self.planned[i + 1].label, is_copy=True))
                continue
            for s in node.src:
                if s is not None and (s is t or (t is root and self._views(s, root))):
                    out.append(Reader(i, node.label, "" if s is t else s.label))
                    break
        return out

    @cached_property
    def keepers(self) -> dict[int, range]:
        """By the number of a node the numbers of those behind it that keep what devices asked for."""
        kept = self.watched.at.sched.kept
        out = {}
        for i, node in enumerate(self.planned):
            if node.index in kept:
                out[i] = range(i + 1, i + 1 + n_keepers(kept[node.index]))
        return out

    def _kept_until(self, t: Tensor, root: Tensor) -> Iterator[Until]:
        backends = {n.id: n.backend for n in self.watched.at.plan.nodes}
        for at, keepers in self.keepers.items():
            if any(s is t or s is root for i in keepers for s in self.planned[i].src):
                node = self.planned[at].label
                yield Until(at, node, backends.get(node) or "")

    def _neighbors(self, life: Lifetime | None, offset: int, size: int) -> list[Lifetime]:
        """All that has one of these bytes at some time, in order, and the tensor itself, which may have none."""
        if life is None:
            return []
        return [
            other
            for other in self.memory.lifetimes
            if other is life
            or (
                (other.buft, other.chunk) == (life.buft, life.chunk)
                and other.offset < offset + size
                and offset < other.offset + other.size
            )
        ]
