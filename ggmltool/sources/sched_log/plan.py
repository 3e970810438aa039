"""A log's graph as a plan, with what the log has, so that the views of plans can show it.

A log names tensors, it does not identify them: a source is the last node before it of that name and size, else a
tensor that has no line of its own: a leaf, or a view (views are not printed). Where such a tensor is copied and no node
uses it in place, its backend is known only if there are but two: then it is the one that the copy is not for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ggmltool.ggml.plan import LeafPlan, NodePlan, Plan, SplitPlan
from ggmltool.scenario.tensor_info import TensorInfo
from ggmltool.sources.sched_log.records import ByteRange, Dialect, LogGraph, LogInput, LogNode, LogSplit, LogTensorRef

_WIDTH = 5
_LAST = {"BLAS": 1, "CPU": 2}
_DIGITS = re.compile(r"(\d+)")

MAX_BACKENDS = 1000
"""Different names that are remembered."""


class Backends:
    """The whole names that headers had so far."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._by_cut: dict[str, list[str]] = {}

    def add(self, name: str) -> None:
        """A name from a header."""
        if name not in self.names and len(self.names) < MAX_BACKENDS:
            self.names[name] = None
            self._by_cut.setdefault(_cut(name, _WIDTH), []).append(name)

    def whole(self, cut: str, near: str = "") -> str | None:
        """The backend that a node line calls `cut`: `near`, that of its split, if it can be, else the only one that is
        cut so, else what stands there. None for NULL."""
        if cut == "NULL":
            return None
        if near and _cut(near, _WIDTH) == cut:
            return near
        known = self._by_cut.get(cut, ())
        return known[0] if len(known) == 1 else cut


def _cut(name: str, width: int) -> str:
    """The name as a column of so many bytes has it."""
    return name.encode("utf-8", "surrogateescape")[:width].decode("utf-8", "surrogateescape").strip()


def listed(names: Iterable[str]) -> list[str]:
    """The names as tables list them: by name and number, BLAS and the CPU last, as schedulers have them.

    >>> listed(["CPU", "CUDA10", "CUDA2"])
    ['CUDA2', 'CUDA10', 'CPU']
    """

    def order(name: str) -> tuple[int, list[tuple[int, str]]]:
        parts = _DIGITS.split(name)
        numbered = [(int(p[:9]), "") if p.isascii() and p.isdigit() else (0, p) for p in parts]
        return _LAST.get(name, 0), numbered

    return sorted(set(names), key=order)


_NAME = 20
_WEIGHTS = (".weight", ".bias")
_NOWHERE = (0, 0, 0, 0)

Key = tuple[str, ByteRange, int]


@dataclass(slots=True)
class _Leaf:
    id: str
    name: str
    nbytes: ByteRange
    view_of: str | None
    backend: str | None = None
    copied_to: set[str] = field(default_factory=set)


def log_plan(graph: LogGraph) -> tuple[Plan, dict[str, TensorInfo]]:
    """The graph as a plan without memory, shapes and types, and what is known of its tensors.

    The nodes of the plan are those that have a line, so a node's `index` is not its place; a split's `i_start` and
    `i_end` are places.
    """
    builder = _Builder(graph)
    for place, split in enumerate(graph.splits):
        builder.split(place, split)
    return builder.plan(), builder.infos()


class _Builder:
    def __init__(self, graph: LogGraph) -> None:
        self.graph = graph
        self.splits: list[SplitPlan] = []
        self.nodes: list[NodePlan] = []
        self.node_infos: dict[str, TensorInfo] = {}
        self.latest: dict[tuple[str, ByteRange], str] = {}
        self.by_name: dict[str, str] = {}
        self.leafs: dict[Key, _Leaf] = {}
        self.ids: set[str] = set()
        self.copies: dict[tuple[str, str], list[tuple[str, ByteRange]]] = {}
        self.times: dict[tuple[str, str], int] = {}

    def split(self, place: int, split: LogSplit) -> None:
        """Take the next split: first what it copies, then its nodes."""
        inputs = tuple(self._input(split, tensor) for tensor in split.inputs)
        start = len(self.nodes)
        for node in split.nodes:
            self._node(place, split, node)
        self.splits.append(SplitPlan(split.id, split.backend, start, len(self.nodes), inputs))

    def _input(self, split: LogSplit, tensor: LogInput) -> str:
        """The id of a tensor that a split copies. A backend gets each only once, but for 2024, when every split that
        used a copy named it: the same name again is another tensor.
        """
        cut = _cut(tensor.name, _NAME)
        node = self.latest.get((cut, tensor.nbytes))
        if node is not None:
            id = node
        else:
            seen = tensor.name, split.backend
            self.times[seen] = 1 if self.graph.dialect is Dialect.Y2024 else self.times.get(seen, 0) + 1
            leaf = self._leaf(tensor.name, tensor.nbytes, self.times[seen])
            leaf.copied_to.add(split.backend)
            id = leaf.id
        for copy in (f"{split.backend}#{tensor.name}#0", f"{split.backend}#{tensor.name}"):
            self.copies.setdefault((split.backend, _cut(copy, _NAME)), []).append((id, tensor.nbytes))
        return id

    def _node(self, place: int, split: LogSplit, node: LogNode) -> None:
        sources = [self._source(split, source) for source in node.src]
        id = self._unused(node.name or f"node {node.index}", f"@{node.index}")
        self.latest[node.name, node.nbytes] = self.by_name[node.name] = id
        self.nodes.append(
            NodePlan(
                index=node.index, id=id, name=node.name, op=node.op, op_desc=node.op, type="", ne=_NOWHERE, nb=_NOWHERE,
                backend=node.backend, cause=node.cause or None, split=place,
                use_count=-1 if node.use_count is None else node.use_count,
                src=tuple(s.name if copied else of for s, (of, copied) in zip(node.src, sources, strict=True)),
                buffer=None, usage=None, chunk=None, offset=None, alloc_size=None,
            )
        )  # fmt: skip
        self.node_infos[id] = _info(id, node.name, node.nbytes, node.op, tuple(of for of, _ in sources))

    def _source(self, split: LogSplit, source: LogTensorRef) -> tuple[str, bool]:
        """The id of the tensor that a source is, or that it is the copy of, and whether it is a copy."""
        copies = self.copies.get((split.backend, source.name))
        if copies:
            return next((id for id, nbytes in reversed(copies) if nbytes == source.nbytes), copies[-1][0]), True
        node = self.latest.get((source.name, source.nbytes))
        if node is not None:
            return node, False
        leaf = self._leaf(source.name, source.nbytes, 1)
        leaf.backend = leaf.backend or source.backend
        return leaf.id, False

    def _leaf(self, name: str, nbytes: ByteRange, time: int) -> _Leaf:
        """The tensor without a line of that name and size; the `time`th where the same backend copies several such."""
        key = _cut(name, _NAME), nbytes, time
        leaf = self.leafs.get(key)
        if leaf is None:
            base, mark, _ = name.partition(" (")
            view_of = self.by_name.get(_cut(base, _NAME), base) if mark else None
            id = self._unused(name or "unnamed", f"@{time}")
            self.leafs[key] = leaf = _Leaf(id, name, nbytes, view_of)
        return leaf

    def _unused(self, name: str, suffix: str) -> str:
        """An id that no tensor has yet: the name, where need be with what tells it from others of that name."""
        id = name
        if id in self.ids:
            id += suffix
        if id in self.ids:
            id += f".{len(self.ids)}"
        self.ids.add(id)
        return id

    def plan(self) -> Plan:
        """The plan so far."""
        graph = self.graph
        title = f" ({graph.title})" if graph.title else ""
        names = listed(
            [
                *(split.backend for split in graph.splits),
                *(node.backend for node in self.nodes if node.backend),
                *(leaf.backend for leaf in self.leafs.values() if leaf.backend),
            ]
        )
        homes = {leaf.id: leaf.backend for leaf in self.leafs.values()} | {n.id: n.backend for n in self.nodes}
        leafs = []
        for index, leaf in enumerate(self.leafs.values()):
            backend = leaf.backend or homes.get(leaf.view_of or "")
            if backend is None and len(names) == 2 and len(leaf.copied_to) == 1:
                backend = next(name for name in names if name not in leaf.copied_to)
            usage = "weights" if leaf.name.endswith(_WEIGHTS) else None
            leafs.append(LeafPlan(index, leaf.id, backend, None, usage, None, None))
        return Plan(
            graph=f"{graph.number}{title}",
            step="graph",
            ok=True,
            backends=tuple((name, name) for name in names),
            splits=tuple(self.splits),
            nodes=tuple(self.nodes),
            leafs=tuple(leafs),
            ggml="unknown",
        )

    def infos(self) -> dict[str, TensorInfo]:
        """What is known of the tensors, by id."""
        leafs = {}
        for leaf in self.leafs.values():
            src = (leaf.view_of,) if leaf.view_of in self.ids else ()
            leafs[leaf.id] = _info(leaf.id, leaf.name, leaf.nbytes, "NONE", src, leaf.view_of)
        return self.node_infos | leafs


def _info(
    id: str, name: str, nbytes: ByteRange, op: str, src: tuple[str | None, ...], root: str | None = None
) -> TensorInfo:
    slack = nbytes.high - nbytes.low
    return TensorInfo(id, name, "", _NOWHERE, nbytes.low, op, src=src, view_src=root, slack=slack)
