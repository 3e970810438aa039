"""Where a tensor lies and when, who has its bytes before and after it, from the allocator's events and from the memory
that contexts have of their own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.sched.common import n_keepers
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor, dims, op_desc
from ggmltool.inspect.allocator import watch_allocator
from ggmltool.inspect.built import graph_numbers, no_tensor
from ggmltool.inspect.memory import TensorLifetime
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.use_after_free import FreedBy, freed_memory_of
from ggmltool.show.document import Row, StepDocument, head


class Reader(Row):
    """A node that reads a tensor, at `at` of `allocs`' node_allocs (copies counted); through the view `view`, or as a
    copy of it."""

    at: int
    node: str
    view: str = ""
    is_copy: bool = False


class Owner(Row):
    """A tensor that has some of the bytes, from `start` to `end` of `allocs`' node_allocs, null for the end."""

    id: str
    start: int
    end: int | None
    offset: int
    size: int
    in_place_of: str | None

    @classmethod
    def of(cls, life: TensorLifetime) -> Owner:
        """What the allocator planned for a tensor."""
        return cls(life.tensor, life.start, life.end, life.offset, life.size, life.reused)


class Overwritten(Row):
    """Who is written over a tensor before a node reads it."""

    by: str
    read_by: str


class Until(Row):
    """A node, number `at` in program order, until which the device of `backend` keeps a tensor (add_alloc_dep)."""

    at: int
    node: str
    backend: str


class TensorLife(Row, kw_only=True):
    """A tensor's place and time: `where` is a buffer, null without memory; `start` and `end` are numbers of nodes, -1
    before the first, null for memory of a context's. `owners` have some of its bytes at some time, in order; `own` is
    the number of itself (or of what it is a view of) among them. `writers` are nodes that write into it in place of
    having memory of their own; `older`: an older plan placed it, of which the allocator knows nothing now."""

    id: str
    view_of: str | None
    where: str | None
    chunk: int
    offset: int
    size: int
    start: int | None = None
    end: int | None = None
    output: bool
    in_place_of: str | None = None
    readers: tuple[Reader, ...]
    views: tuple[str, ...]
    owners: tuple[Owner, ...]
    overwritten_too_early: tuple[Overwritten, ...]
    kept_until: tuple[Until, ...]
    freed: FreedBy | UnsetType = UNSET
    op: str
    shape: str
    input: bool
    copy: bool
    own: int | None
    writers: tuple[str, ...]
    older: bool = False

    @property
    def life(self) -> Owner | None:
        """What the allocator planned for it, or for what it is a view of; None for memory of a context's."""
        return None if self.own is None else self.owners[self.own]

    @property
    def takers(self) -> list[Owner]:
        """Who is written over it, in order."""
        life = self.life
        return [] if life is None else [n for n in self.owners if n is not life and n.start > life.start]

    @property
    def early(self) -> list[tuple[Owner, Reader]]:
        """Who is written over it before a node reads it, and that node.

        A node may overwrite what it reads itself, where it computes in place; a copy may not.
        """
        return [
            (t, r)
            for t in self.takers
            for r in self.readers
            if r.at > t.start or (r.is_copy and t.id == r.node and t.start == r.at)
        ]


class LifetimeTable(StepDocument, kw_only=True):
    """`lifetime --json`: who has a tensor's memory before it and after it; of two tensors, whether they collide.

    `nodes` are in program order, `numbers` theirs in the graph, null of what the scheduler put between. Of two tensors:
    the bytes that they share, from one offset to another; the nodes while both are alive, from the first to the last;
    and in words what that means.
    """

    view = "lifetimes"
    tells_refusal = ("json", "csv")
    kind: Literal["lifetime"] = "lifetime"
    nodes: tuple[str, ...]
    tensors: tuple[TensorLife, ...]
    shared: tuple[int, int] | UnsetType | None = UNSET
    both_alive: tuple[int, int] | UnsetType | None = UNSET
    told: tuple[str, ...] | UnsetType = UNSET
    numbers: tuple[int | None, ...]

    @property
    def turns(self) -> tuple[str, ...]:
        """The nodes, each with its number."""
        return tuple(f"{n} {node}" if n is not None else node for n, node in zip(self.numbers, self.nodes, strict=True))


class Lifetimes:
    """The allocator's last plan at a moment: all lifetimes, and the nodes in the order they are computed."""

    def __init__(self, opened: Opened, moment: Moment) -> None:
        self.watched = watch_allocator(opened, moment)
        self.memory = self.watched.at.record.memory
        self.nodes = tuple(self.memory.nodes)
        numbers = graph_numbers(opened.scenario, self.watched.at.graph)
        self.numbers = tuple(numbers.get(name) for name in self.nodes)
        self.planned = self.watched.gallocr.planned_nodes
        gallocr = self.watched.gallocr
        # Where the allocator makes a view of what it places in the memory of a source, that is no view of the graph's.
        self.inplace = gallocr.inplace
        self.tensors: dict[str, Tensor] = {}
        older = (t for _, table in reversed(self.watched.at.run.newest.values()) for t in table)
        of_the_graph = (t for n in self.planned for t in (n, *n.src) if t is not None)
        for t in (*of_the_graph, *gallocr.planned_leafs, *self.watched.at.built().table, *older):
            self.tensors.setdefault(t.label, t)

    def table(self, *tensors: TensorLife) -> LifetimeTable:
        """The lifetimes asked for."""
        known = head(self.watched.at.plan)
        return LifetimeTable(**known, nodes=self.nodes, tensors=tensors, numbers=self.numbers)

    def of(self, name: str) -> TensorLife:
        """Where a tensor lies, and who else has its bytes. Raises InspectError if there is none of that name."""
        t = self.tensors.get(name) or next((t for t in self.tensors.values() if t.name == name), None)
        if t is None:
            raise no_tensor(self.watched.at.graph, name, self.tensors)
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
        end = offset + (t.nbytes if t is not root else room)
        # All that has one of these bytes at some time, in order, and the tensor itself, which may have none.
        neighbors = [
            other
            for other in ([] if life is None else self.memory.of(life.buft, life.chunk))
            if other is life or (other.offset < end and offset < other.offset + other.size)
        ]
        found = TensorLife(
            id=t.label,
            view_of=root.label if root is not t else None,
            where=place[0] or None,
            chunk=place[1],
            offset=offset,
            size=room if t is root else t.nbytes,
            start=None if life is None else life.start,
            end=None if life is None else life.end,
            output=bool(root.flags & FLAG_OUTPUT),
            in_place_of=None if life is None else life.reused,
            readers=tuple(self._readers(t, root)),
            views=tuple(v.label for v in self.tensors.values() if self._views(v, t) and v.op),
            owners=tuple(map(Owner.of, neighbors)),
            overwritten_too_early=(),
            kept_until=tuple(self._kept_until(t, root)),
            freed=freed_memory_of(root, self.watched.at.run.model) or UNSET,
            op=op_desc(t) if t.op else "",
            shape=f"{t.type.name}{dims(t.ne)}",
            input=bool(t.flags & FLAG_INPUT) or (life is not None and life.start < 0 and not t.op),
            copy=not t.id,
            own=next((i for i, other in enumerate(neighbors) if other is life), None),
            writers=tuple(
                n.label
                for n in self.planned
                if n.view_src is root and n.op and not n.is_view_op and n.index not in self.inplace
            ),
            older=own is not None and own in self.watched.at.sched.compute_buffers(),
        )
        return replace(found, overwritten_too_early=tuple(Overwritten(t.id, r.node) for t, r in found.early))

    def _views(self, v: Tensor, t: Tensor) -> bool:
        """Whether the graph itself says that `v` is a view of `t`."""
        return v.view_src is t and v.index not in self.inplace

    def _life(self, t: Tensor) -> TensorLifetime | None:
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
        held = ((i, n_keepers(kept[node.index])) for i, node in enumerate(self.planned) if node.index in kept)
        return {i: range(i + 1, i + 1 + n) for i, n in held}

    def _kept_until(self, t: Tensor, root: Tensor) -> Iterator[Until]:
        backends = {n.id: n.backend for n in self.watched.at.plan.nodes}
        for at, keepers in self.keepers.items():
            if any(s is t or s is root for i in keepers for s in self.planned[i].src):
                node = self.planned[at].label
                yield Until(at, node, backends.get(node) or "")
