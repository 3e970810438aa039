"""Which tensors have to be read when, so that nodes of a graph can be computed by themselves; and the graph of these.

A node's inputs are taken from where they were made: what lies in a tensor's memory is read before the first node, or
right after the node that wrote to it last. So nodes that work in place, and caches that a graph writes to, keep what
they were before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ggmltool.ggml.op import KEY_NAMES, Op, op_key
from ggmltool.scenario.errors import Mistake, nearest, quoted

VIEWS = frozenset(("none", "view", "reshape", "permute", "transpose"))
"""Ops that compute nothing."""

MADE = "read"
"""The context of inputs that a node made; the scheduler allocates it."""

_PLACES = ("backend", "in", "at")
"""Where a program put a node: alone it is somewhere else."""

Document = dict[str, Any]


@dataclass(slots=True)
class Cut:
    """What is to be read, and the scenario that has it. All tensors go by their ids.

    `inputs` are tensors with their own memory, by the node after which they are read (None: before the first): pairs
    of the id in the cut and the tensor's. `nodes` are those whose results are read, each right after it is computed.
    """

    nodes: list[str] = field(default_factory=list)
    inputs: dict[str | None, list[tuple[str, str]]] = field(default_factory=dict)
    document: Document = field(default_factory=dict)

    @property
    def all_inputs(self) -> Iterator[tuple[str, str]]:
        """Every input, in the order in which they are read."""
        return (pair for pairs in self.inputs.values() for pair in pairs)


def computed_nodes(document: Document, graph: str) -> list[str]:
    """The nodes of a graph that compute something, in its order."""
    spec = document["graphs"][graph]
    idle = set(spec.get("uncomputed", ()))
    return [id for id, t in spec["nodes"].items() if t.get("op", "none") not in VIEWS and id not in idle]


def cut(document: Document, graph: str, wanted: Collection[str]) -> Cut:
    """A scenario in long form whose graph has only the `wanted` nodes (each computes something), in their order.

    Tensors that they read and that no wanted node makes are inputs of it. With all nodes wanted the scenario stays as
    it is.
    """
    all_of_it = len(set(wanted)) == len(computed_nodes(document, graph))
    out = _Cutter(document, graph, frozenset(wanted)).cut()
    if all_of_it:
        out.document = document
    return out


class _Cutter:
    """`_holders` has who holds, in the cut, what a tensor with its own memory has now; `_writers` who wrote to it."""

    def __init__(self, document: Document, graph: str, wanted: frozenset[str]) -> None:
        spec = document["graphs"][graph]
        self._document = document
        self._graph = graph
        self._nodes: Mapping[str, Document] = spec["nodes"]
        self._leafs = {id: t for context in document["contexts"].values() for id, t in context["tensors"].items()}
        self._contexts = {id: name for name, context in document["contexts"].items() for id in context["tensors"]}
        self._computed = set(computed_nodes(document, graph))
        self._wanted = wanted
        self._writers: dict[str, str] = {}
        self._holders: dict[str, str] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._out = Cut()
        self._placed: dict[str, dict[str, Document]] = {}
        self._kept: dict[str, Document] = {}

    def cut(self) -> Cut:
        """Walk through the graph once."""
        for id, node in self._nodes.items():
            if id in self._wanted:
                self._keep(id, node)
                self._out.nodes.append(id)
            elif id in self._computed:
                self._holders.pop(self._root(id), None)
            if id in self._computed:
                self._writers[self._root(id)] = id
        self._out.document = self._written()
        return self._out

    def _written(self) -> Document:
        contexts = self._document["contexts"]
        head = {key: value for key, value in self._document.items() if key not in ("contexts", "graphs", "steps")}
        scheduler = {
            key: value for key, value in head.get("scheduler", {}).items() if key not in ("past", "graph_size")
        }
        placed = {name: {**_kind(contexts.get(name, {})), "tensors": tensors} for name, tensors in self._placed.items()}
        graph = {"nodes": self._kept, "expand": list(self._kept)}
        return head | {"scheduler": scheduler, "contexts": placed, "graphs": {self._graph: graph}}

    def _root(self, id: str) -> str:
        t = self._tensor(id)
        while t.get("view_src") is not None:
            id = t["view_src"]
            t = self._tensor(id)
        return id

    def _tensor(self, id: str) -> Document:
        return self._nodes[id] if id in self._nodes else self._leafs[id]

    def _keep(self, id: str, node: Document) -> None:
        """Put a node into the cut, with what it reads."""
        src = [None if s is None else id if s == id else self._input(s) for s in node.get("src", ())]
        kept = {**{key: value for key, value in node.items() if key not in _PLACES}, "src": src}
        root = self._root(id)
        if root == id:
            self._holders[id] = id
        else:
            kept["view_src"] = self._input(node["view_src"])
        self._kept[id] = kept
        self._made[id, self._holders[root]] = id

    def _input(self, id: str) -> str:
        """The tensor of the cut that stands for one that a node reads."""
        root = self._root(id)
        holder = self._holders.get(root) or self._read(root)
        chain = []
        while (id, holder) not in self._made:
            chain.append(id)
            id = self._behind(id, root)
        found = self._made[id, holder]
        for link in reversed(chain):
            found = self._made[link, holder] = self._view(link, holder, found)
        return found

    def _behind(self, id: str, root: str) -> str:
        """The next tensor on the way from a view to what has the memory."""
        src = self._nodes[id].get("src") if id in self._nodes else None
        if not src:
            return root
        if self._nodes[id].get("op") in VIEWS:
            return str(src[0])
        layout = _layout(self._nodes[id])
        return next((s for s in src if s and self._root(s) == root and _layout(self._tensor(s)) == layout), root)

    def _view(self, id: str, holder: str, behind: str) -> str:
        """A view of what is held, made of the tensor `behind` it; what worked in place is that tensor itself."""
        t = self._tensor(id)
        op = t.get("op", "none")
        if id in self._nodes and op not in VIEWS and _layout(t) == _layout(self._tensor_of(behind)):
            return behind
        if op not in VIEWS or op == "none":
            offset = t.get("view_offs", 0)
            t = {**t, "op": "view", "op_params": [offset & 0xFFFFFFFF, offset >> 32]}
        name = self._fresh(id, holder)
        kept = {key: value for key, value in t.items() if key not in ("flags", "data")}
        self._kept[name] = {**kept, "src": [behind], "view_src": holder, "name": t.get("name", id)}
        return name

    def _tensor_of(self, name: str) -> Document:
        """A tensor of the cut."""
        return self._kept.get(name) or next(tensors[name] for tensors in self._placed.values() if name in tensors)

    def _read(self, root: str) -> str:
        """An input of the cut: what lies in a tensor's memory now."""
        writer = self._writers.get(root)
        name = root if root not in self._kept and not self._is_placed(root) else f"{root}@{writer}"
        t = self._tensor(root)
        leaf: Document = {key: t[key] for key in ("type", "ne", "nb") if key in t}
        if "flags" in t or root not in self._leafs:
            leaf["flags"] = t["flags"] if root in self._leafs else ["input"]
        if t.get("name", root) != name:
            leaf["name"] = t.get("name", root)
        self._placed.setdefault(self._contexts.get(root, MADE), {})[name] = leaf
        self._out.inputs.setdefault(writer, []).append((name, root))
        self._holders[root] = self._made[root, name] = name
        return name

    def _fresh(self, id: str, holder: str) -> str:
        """The id of a view: its own, or with the name of what it is a view of where that is taken."""
        taken = id in self._kept or self._is_placed(id) or id in self._wanted
        return f"{id}@{holder}" if taken else id

    def _is_placed(self, id: str) -> bool:
        return any(id in tensors for tensors in self._placed.values())


def _kind(context: Document) -> Document:
    """A context without what lies where in it."""
    return {key: context[key] for key in ("buft", "usage") if key in context}


def _layout(t: Document) -> tuple[object, ...]:
    return t["type"], tuple(t["ne"]), tuple(t["nb"]), t.get("view_offs", 0)


def with_data(document: Document, file: str, kept: Collection[str]) -> Document:
    """The scenario with the values of its inputs in a GGUF file beside it, where they are under the same ids."""
    contexts = {
        name: {
            **context,
            "tensors": {
                id: {**t, "data": {"gguf": file, "tensor": id}} if id in kept else t
                for id, t in context["tensors"].items()
            },
        }
        for name, context in document["contexts"].items()
    }
    return {**document, "contexts": contexts}


def op_of(t: Document) -> str:
    """The op of a tensor as ggml describes it, with the function of UNARY and GLU; NONE of what nothing computes."""
    name = str(t.get("op", "none")).upper()
    if name not in Op.__members__:
        return name
    return KEY_NAMES[op_key(Op[name], tuple(t.get("op_params", ()))[:1])].upper()


ALL = "all"


def chosen_nodes(document: dict[str, Any], graph: str, patterns: Sequence[str]) -> list[str]:
    """The nodes that compute something and that `patterns` mean: ids, names that a program gave, globs, or `all`.

    Raises Mistake for a pattern that means none, with what it may have meant.
    """
    nodes = document["graphs"][graph]["nodes"]
    computed = computed_nodes(document, graph)
    names = {id: (id, nodes[id].get("name", id)) for id in computed}
    found: set[str] = set()
    for pattern in patterns:
        hits = [
            id
            for id in computed
            if pattern == ALL or any(name == pattern or fnmatchcase(name, pattern) for name in names[id])
        ]
        if not hits:
            raise Mistake(*_unknown(document, graph, pattern, [n for pair in names.values() for n in pair]))
        found.update(hits)
    return [id for id in computed if id in found]


def _unknown(document: dict[str, Any], graph: str, pattern: str, names: Sequence[str]) -> tuple[str, str]:
    """What is the matter with a pattern, and a hint."""
    node = document["graphs"][graph]["nodes"].get(pattern)
    leafs = {id for context in document["contexts"].values() for id in context["tensors"]}
    if node is not None and node.get("op", "none") in VIEWS:
        behind = node.get("view_src", "")
        return f"{quoted(pattern)} is a view, which computes nothing", f"its values are those of {quoted(behind)}"
    if pattern in leafs:
        return f"{quoted(pattern)} is never computed", "the inputs of the nodes that are named are written, too"
    near = nearest(pattern, names)
    return f"the graph has no node {quoted(pattern)}", f"did you mean {quoted(near)}?" if near else ""
