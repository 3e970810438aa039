"""What every plan must satisfy, whoever made it: checked from the plan alone, by code that knows no planner.

Time is the order of the graph: -1 before it, then one tick for each copy and each node. A tensor with memory of its own
holds something from its first tick to its last use, through views and copies too; what nobody uses, and what is
flagged output, holds it for ever. Two such tensors never share a byte, but for a node computed in place of a source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from ggmltool.ggml.op import CAN_INPLACE, VIEW_OPS
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.spec import ScenarioSpec, TensorSpec

Memory = tuple[str, int]
"""A buffer type (or a context) and a chunk."""

KNOWN_HAZARDS = frozenset({"self_copy", "displaced", "assigned", "early", "leaf_view", "view_elsewhere"})
"""What ggml itself gets wrong, or the user.

- self_copy: a copy over the tensor it is made of, where a CPU node was computed in place in a GPU's memory.
- displaced: a tensor whose memory is not its backend's own: computed in place of another's, or a view of it.
- assigned: the user put a tensor and its reader on one backend, which cannot use the memory.
- early: a node flagged input takes its memory before the graph, in place of a source that is allocated once more when
  its real user comes.
- leaf_view: a view without an op: its root is released with its last use although nobody counted it, and it gets no
  memory itself where its root comes later.
- view_elsewhere: a view that the user or the input flag puts on another backend than its root; it is copied before
  the split in which its root is computed.
"""


class Violation(NamedTuple):
    """`kind`: overlap, bounds, alignment, size, order, unreadable, or one of `KNOWN_HAZARDS`."""

    kind: str
    text: str


@dataclass(slots=True)
class Block:
    """A tensor with memory of its own: bytes `[start, end)`, holding something from tick `first` to tick `last`."""

    name: str
    memory: Memory
    start: int
    end: int
    first: int = -1
    last: float = -1
    keep: bool = False
    copy_of: str | None = None
    in_place: set[str] = field(default_factory=set)

    @property
    def until(self) -> float:
        return inf if self.keep else self.last


def nbytes(type_size: int, block_size: int, ne: Iterable[int], nb: Iterable[int]) -> int:
    """The bytes a tensor's elements span, by counting: the last element's end."""
    ne, nb = tuple(ne), tuple(nb)
    if min(ne) <= 0:
        return 0
    if block_size == 1:
        return type_size + sum((n - 1) * b for n, b in zip(ne, nb, strict=True))
    return ne[0] * nb[0] // block_size + sum((n - 1) * b for n, b in zip(ne[1:], nb[1:], strict=True))


def overlaps(blocks: Iterable[Block], odd: Mapping[str, str] | None = None) -> list[Violation]:
    """Every pair of blocks that hold something at once in the same bytes; `odd` has the kinds of excused blocks."""
    out: list[Violation] = []
    by_memory: defaultdict[Memory, list[Block]] = defaultdict(list)
    for block in blocks:
        if block.end > block.start:
            by_memory[block.memory].append(block)
    for memory, group in by_memory.items():
        group.sort(key=lambda b: b.start)
        active: list[Block] = []
        for b in group:
            active = [a for a in active if a.end > b.start]
            for a in active:
                early, late = (a, b) if a.first <= b.first else (b, a)
                if early.until < late.first:
                    continue
                in_place = early.name in late.in_place and early.start == late.start
                if in_place and early.until == late.first and late.end <= early.end:
                    continue
                kind = "self_copy" if late.copy_of == early.name and early.until == late.first else "overlap"
                if odd and kind == "overlap":
                    kind = odd.get(a.name) or odd.get(b.name) or kind
                out.append(
                    Violation(
                        kind,
                        f"{memory}: {early.name} [{early.start}, {early.end}) held from {early.first} to {early.until} "
                        f"and {late.name} [{late.start}, {late.end}) from {late.first} on",
                    )
                )
            active.append(b)
    return out


def check_graph(
    nodes: Iterable[Tensor], leafs: Iterable[Tensor], sizes: Mapping[Memory, int] | None = None
) -> list[Violation]:
    """Violations in tensors that an allocator placed: those that lie in buffers of usage compute."""
    nodes = list(nodes)
    blocks: dict[int, Block] = {}

    def root(t: Tensor) -> Tensor:
        while t.view_src is not None:
            t = t.view_src
        return t

    def block_of(t: Tensor, first: int) -> None:
        b = t.buffer
        if t.view_src is None and b is not None and b.usage == 2 and id(t) not in blocks:
            start = t.data - b.base
            block = Block(t.name or t.id, (b.buft.name, b.chunk), start, start + b.buft.get_alloc_size(t), first, first)
            block.keep = bool(t.flags & FLAG_OUTPUT)
            blocks[id(t)] = block

    for leaf in leafs:
        block_of(leaf, -1)
    read: set[int] = set()
    out: list[Violation] = []
    for tick, n in enumerate(nodes):
        block_of(n, tick)
        own = blocks.get(id(root(n)))
        for s in n.src:
            if s is None or s is n:
                continue
            read.add(id(s))
            source = blocks.get(id(root(s)))
            if source is None:
                if root(s).buffer is None:
                    out.append(Violation("order", f"{n.name} reads {s.name}, which has no memory"))
                continue
            if source.first >= tick:
                out.append(Violation("order", f"{n.name} reads {s.name} before it is computed"))
            source.last = tick
            if CAN_INPLACE[n.op] and s.view_src is None and own is not None:
                own.in_place.add(source.name)
        if own is not None and n.op:
            own.last = max(own.last, tick)
    for t in [*leafs, *nodes]:
        is_cast = any(s is t for s in t.src)
        of = blocks.get(id(root(t)))
        if of is not None and id(t) not in read and not is_cast and (t.op or t.view_src is None):
            of.keep = True
    for block in blocks.values():
        size = (sizes or {}).get(block.memory)
        if block.start < 0 or (size is not None and block.end > size):
            out.append(Violation("bounds", f"{block.name} ends at {block.end} of {size}"))
    return out + overlaps(blocks.values())


def violations(model: ScenarioSpec, plan: Plan | Mapping[str, Any]) -> list[Violation]:
    """Everything wrong with the plan of an `alloc` step, the known hazards among it."""
    return _PlanChecker(model, plan.as_dict() if isinstance(plan, Plan) else plan).check()


def check_plan(model: ScenarioSpec, plan: Plan | Mapping[str, Any]) -> None:
    """Raises AssertionError with every violation that is not a known hazard."""
    found = [v for v in violations(model, plan) if v.kind not in KNOWN_HAZARDS]
    assert not found, "\n".join(f"{v.kind}: {v.text}" for v in found)


class _PlanChecker:
    def __init__(self, model: ScenarioSpec, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        graph = model.graphs[plan["graph"]]
        self.specs: dict[str, TensorSpec] = {t.id: t for t in (*model.tensors(), *graph.nodes)}
        self.placed = {t.id: f"context {c.name}" for c in model.contexts if c.buft is not None for t in c.tensors}
        self.bufts = make_bufts(model)
        self.devices = {b.name: b.device for b in make_backends(model, self.bufts)}
        self.rows = {row["id"]: row for row in (*plan["nodes"], *plan["leafs"])}
        self.blocks: dict[str, Block] = {}
        self.copies: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
        for copy in plan["copies"]:
            self.copies[copy["of"], copy["backend"]].append(copy)
        self.read: set[str] = set()
        self.out: list[Violation] = []

    def check(self) -> list[Violation]:
        for leaf in self.plan["leafs"]:
            self.add(leaf, -1)
        for id in self.rows.keys() & self.placed.keys():
            self.add(self.rows[id], -1)
        for copies in self.copies.values():
            for copy in copies:
                self.add_copy(copy, parallel=len(copies) > 1)
        tick = 0
        nodes = self.plan["nodes"]
        at = 0
        for split in self.plan["splits"]:
            if split["i_start"] != at:
                self.report("order", f"split {split['id']} begins at {split['i_start']}, not at {at}")
            at = split["i_end"]
            for of in split["inputs"]:
                self.copy(of, split["backend"], tick)
                tick += 1
            for node in nodes[split["i_start"] : split["i_end"]]:
                self.compute(node, split["backend"], tick)
                tick += 1
        if at != len(nodes):
            self.report("order", f"the splits end at node {at} of {len(nodes)}")
        self.keep_results()
        self.check_places()
        return self.out + overlaps(self.blocks.values(), self.excuses())

    def excuses(self) -> dict[str, str]:
        """The known hazards that a tensor of this name may be in."""
        out: dict[str, str] = {}
        for id in self.rows:
            t = self.specs[id]
            if t.view_src is not None and not t.op:
                out[t.view_src] = "leaf_view"
            if t.op and t.flags & FLAG_INPUT:
                out |= dict.fromkeys([id, *(self.root(s) for s in t.src if s is not None)], "early")
        return out

    def report(self, kind: str, text: str) -> None:
        self.out.append(Violation(kind, text))

    def nbytes(self, id: str) -> int:
        spec = self.specs[id]
        return nbytes(spec.type.type_size, spec.type.block_size, spec.ne, spec.nb)

    def root(self, id: str) -> str:
        return self.specs[id].view_src or id

    def block(self, id: str) -> Block | None:
        return self.blocks.get(self.root(id))

    def add(self, row: Mapping[str, Any], first: int) -> None:
        """A node or leaf with memory of its own."""
        id = row["id"]
        spec = self.specs[id]
        if spec.view_src is not None or row["buffer"] is None or id in self.blocks:
            return
        size = row.get("alloc_size") or self.nbytes(id)
        if size < self.nbytes(id):
            self.report("size", f"{id} has {self.nbytes(id)} bytes, {size} were allocated")
        name = self.placed.get(id, row["buffer"])
        block = Block(id, (name, row["chunk"]), row["offset"], row["offset"] + size, first, first)
        block.keep = id in self.placed or bool(spec.flags & FLAG_OUTPUT)
        self.blocks[id] = block

    def add_copy(self, copy: Mapping[str, Any], parallel: bool) -> None:
        of = copy["of"]
        row = self.rows.get(of)
        place = ("backend", "buffer", "chunk", "offset")
        if parallel and row is not None and all(row[k] == copy[k] for k in place):
            return  # a pipeline copy of a graph input: the input itself
        if copy["buffer"] is None:
            return
        key = self.copy_key(copy)
        size = self.nbytes(of)
        block = Block(key, (copy["buffer"], copy["chunk"]), copy["offset"], copy["offset"] + size, -2, -2)
        block.keep = parallel
        block.copy_of = self.root(of)
        if parallel:
            block.first = -1
        self.blocks[key] = block

    @staticmethod
    def copy_key(copy: Mapping[str, Any]) -> str:
        return f"copy {copy['copy']} of {copy['of']} on {copy['backend']}"

    def copy(self, of: str, backend: str, tick: int) -> None:
        self.use(of, tick, f"the copy to {backend}")
        self.read.add(of)
        for copy in self.copies[of, backend]:
            block = self.blocks.get(self.copy_key(copy))
            if block is not None and block.first == -2:
                block.first = block.last = tick

    def use(self, id: str, tick: int, by: str) -> None:
        if id not in self.rows or self.rows[id]["buffer"] is None:
            spec = self.specs[id]
            kind = "leaf_view" if spec.view_src is not None and not spec.op else "order"
            self.report(kind, f"{by} reads {id}, which has no memory")
            return
        block = self.block(id)
        if block is None:
            if self.root(id) in self.rows:
                elsewhere = self.rows[id]["backend"] != self.rows[self.root(id)]["backend"]
                kind = "view_elsewhere" if elsewhere and self.specs[id].op in VIEW_OPS else "order"
                self.report(kind, f"{by} reads {id} before it is computed")
            return
        if block.first >= tick:
            self.report("order", f"{by} reads {id} while it is computed")
        block.last = max(block.last, tick)

    def compute(self, node: Mapping[str, Any], backend: str, tick: int) -> None:
        id = node["id"]
        spec = self.specs[id]
        self.add(node, tick)
        own = self.block(id)
        is_view_op = spec.op in VIEW_OPS
        for original, actual in zip(spec.src, node["src"], strict=True):
            if original is None or original == id:
                continue
            if actual == original:
                if not is_view_op:
                    self.check_readable(id, original, backend)
                self.use(original, tick, id)
                self.read.add(original)
                source = self.block(original)
            else:
                source = self.use_copy(id, original, actual, backend, tick)
            if source is not None and own is not None and spec.view_src is None and CAN_INPLACE[spec.op]:
                own.in_place.add(source.name)
        if own is not None and spec.op:
            own.last = max(own.last, tick)

    def use_copy(self, id: str, original: str, actual: str, backend: str, tick: int) -> Block | None:
        made = [c for c in self.copies[original, backend] if c["name"] == actual]
        if not made:
            self.report("order", f"{id} reads {actual}, and there is no such copy of {original} on {backend}")
            return None
        source = self.blocks.get(self.copy_key(made[0]))
        if source is not None:
            if source.first == -2:
                self.report("order", f"{id} reads {actual} before it is copied")
            source.last = max(source.last, tick)
        buft = made[0]["buffer"]
        if buft is not None and not self.devices[backend].supports_buft(self.bufts[buft]):
            self.report("unreadable", f"{actual} lies in {buft}")
        return source

    def check_readable(self, id: str, source: str, backend: str) -> None:
        row = self.rows.get(source)
        if row is None or row["buffer"] is None or self.devices[backend].supports_buft(self.bufts[row["buffer"]]):
            return
        holder = row["backend"]
        kind = "unreadable"
        if self.specs[source].backend or self.specs[id].backend or self.specs[self.root(source)].backend:
            kind = "assigned"
        elif holder is None or self.devices[holder].buft.name != row["buffer"]:
            kind = "displaced"
        self.report(kind, f"{id} runs on {backend} and reads {source}, which lies in {row['buffer']}")

    def keep_results(self) -> None:
        """What nobody reads is a result: it stays, and so does the root of a view nobody reads. A cast reads itself."""
        for id in self.rows:
            spec = self.specs[id]
            block = self.block(id)
            if block is not None and id not in self.read and id not in spec.src and (spec.op or spec.view_src is None):
                block.keep = True

    def check_places(self) -> None:
        ends: defaultdict[Memory, int] = defaultdict(int)
        for block in self.blocks.values():
            ends[block.memory] = max(ends[block.memory], block.end)
            buft = self.bufts.get(block.memory[0])
            if buft is not None and (block.start < 0 or block.start % buft.alignment):
                self.report("alignment", f"{block.name} begins at {block.start}, the alignment is {buft.alignment}")
        used: defaultdict[str, int] = defaultdict(int)
        for (name, _), end in ends.items():
            used[name] += end
        sizes: defaultdict[str, int] = defaultdict(int)
        for backend in self.plan["backends"]:
            sizes[backend["buft"]] += self.plan["buffer_sizes"][backend["name"]]
        for name, end in used.items():
            if not name.startswith("context ") and end > sizes[name]:
                self.report("bounds", f"the tensors in {name} need {end} bytes, its buffers have {sizes[name]}")
