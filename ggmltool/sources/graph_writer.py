"""Graphs in a program's memory as a scenario: nodes and leafs in their order, with raw words and unique ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import Error
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAGS
from ggmltool.state.memory.tensors import TensorStruct

_OPS = {op.name: op for op in Op}
_FUNCTIONS: dict[str, tuple[Op, int]] = {
    **{f.name: (Op.UNARY, f.value) for f in UnaryOp},
    **{f.name: (Op.GLU, f.value) for f in GluOp},
}


class TensorMemory(Protocol):
    """Where tensors are read: our own process, or another."""

    def tensor(self, address: int) -> TensorStruct:
        """The ggml_tensor at an address."""

    def arena(self, address: int) -> Iterable[int]:
        """The tensors of the ggml_context that a tensor lies in, in the order in which they were made."""

    def type_name(self, number: int) -> str:
        """ggml_type_name."""

    def op_name(self, number: int, first_word: int) -> str:
        """ggml_op_name; of UNARY and GLU the name of the function that the first word of the parameters says."""


class GraphWriter(ABC):
    """Writes graphs, tensor by tensor, whoever made them.

    A leaf is written into the context of its memory, which `place` knows; one without memory into the graph's inputs,
    which the scheduler allocates. `ids` has what is named so far, by address.
    """

    def __init__(self, memory: TensorMemory) -> None:
        self.memory = memory
        self.ids: dict[int, str] = {}
        self.taken: set[str] = set()
        self.names: dict[str, int] = {}
        self.contexts: dict[str, dict[str, Any]] = {}
        self.graphs: dict[str, dict[str, Any]] = {}
        self.inputs = "inputs"
        self._types: dict[int, str] = {}
        self._ops: dict[tuple[int, int], str] = {}

    @abstractmethod
    def place(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        """The context of a tensor that has memory: its name and what it says besides its tensors."""

    @abstractmethod
    def unknown_type(self, name: str) -> Error:
        """What is wrong with a graph that has tensors of a type that ggmltool does not know."""

    @abstractmethod
    def unknown_op(self, name: str) -> Error:
        """What is wrong with a graph that has an op that ggmltool does not know."""

    def has_memory(self, tensor: TensorStruct) -> bool:
        """Whether the tensor is pre-allocated, not the scheduler's."""
        return bool(tensor.buffer)

    def is_computed(self, tensor: TensorStruct) -> bool:
        """Whether a node is computed, not only planned."""
        return not tensor.op or bool(tensor.flags & FLAG_COMPUTE)

    def node(self, address: int) -> dict[str, Any]:
        """What is written of a node."""
        return self.tensor(address)

    def leaf(self, address: int) -> dict[str, Any]:
        """What is written of a tensor of a context."""
        return self.tensor(address)

    def sources(self, tensor: TensorStruct) -> tuple[int, ...]:
        """The sources of a node as the program gave them."""
        return tensor.src

    def write(self, name: str, nodes: Sequence[int], leafs: Sequence[int]) -> dict[int, str]:
        """Write a graph; the ids of its tensors by address.

        Raises the error of `unknown_type` or `unknown_op` for what this ggml does not have.
        """
        memory = self.memory
        self.inputs = f"inputs_{name}" if self.graphs else "inputs"
        # Tensors of contexts and nodes of any graph have different ids; nodes of two graphs may have the same.
        self.taken = self._in_contexts().union(*(graph["nodes"] for graph in self.graphs.values()))
        self.names = {}
        for leaf in leafs:
            self.add_leaf(leaf)
        for address in self._neighbors(list(self.ids)):
            self.add_leaf(address)
        # The next graph takes this one's memory, but not that of the weights and caches.
        lasting = {address: id for address, id in self.ids.items() if self.has_memory(memory.tensor(address))}
        self.taken = self._in_contexts()
        written = {}
        for node in nodes:
            if memory.tensor(node).op:
                id = self.name(node)
                written[id] = self.node(node)
            else:
                self.add_leaf(node)
        self.graphs[name] = {"nodes": written, "expand": [self.ids[address] for address in (*leafs, *nodes)]}
        uncomputed = [self.ids[node] for node in nodes if not self.is_computed(memory.tensor(node))]
        if uncomputed:
            self.graphs[name]["uncomputed"] = uncomputed
        ids, self.ids = self.ids, lasting
        return ids

    def _in_contexts(self) -> set[str]:
        return {id for context in self.contexts.values() for id in context["tensors"]}

    def add_leaf(self, address: int) -> None:
        """Write a tensor without op into the context of its memory, after what it views."""
        if address in self.ids:
            return
        tensor = self.memory.tensor(address)
        if tensor.view_src:
            self.add_leaf(tensor.view_src)
        id = self.name(address)
        name, head = self.context_of(tensor)
        entry = self.leaf(address)
        tensors: dict[str, Any] = self.contexts.setdefault(name, {**head, "tensors": {}})["tensors"]
        tensors[id] = entry

    def context_of(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        """The context of a leaf, as `place` has it: that of its memory, or of what it views, or the inputs."""
        while not self.has_memory(tensor) and tensor.view_src:
            tensor = self.memory.tensor(tensor.view_src)
        return self.place(tensor) if self.has_memory(tensor) else (self.inputs, {})

    def arenas(self, addresses: Iterable[int]) -> Iterator[int]:
        """The tensors of all ggml_contexts that these lie in, each context in its order."""
        seen: set[int] = set()
        for address in addresses:
            if address not in seen:
                tensors = list(self.memory.arena(address))
                seen.update(tensors)
                yield from tensors

    def _neighbors(self, leafs: list[int]) -> Iterator[int]:
        """The weights and caches that this graph does not use, in the order in which they were made."""
        seen: set[int] = set()
        for leaf in leafs:
            if not self.has_memory(self.memory.tensor(leaf)) or leaf in seen:
                continue
            for address in self.memory.arena(leaf):
                seen.add(address)
                tensor = self.memory.tensor(address)
                if tensor.buffer and not tensor.op and not tensor.view_src and address not in self.ids:
                    yield address

    def in_order_of_memory(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """A context's tensors in the order in which the program made them, each view behind what it views."""
        made = {self.ids[address]: i for i, address in enumerate(self.arenas(self.ids)) if address in self.ids}
        return dict(sorted(tensors.items(), key=lambda t: made.get(t[1].get("view_src", t[0]), 0)))

    def name(self, address: int) -> str:
        """The id of a tensor: its name, with a number where that is taken (or is nothing an id can be)."""
        name = text(self.memory.tensor(address).name)
        id = name if name and name.isprintable() else "unnamed"
        n = self.names.get(id, 0)
        unique = id if n == 0 else f"{id}~{n}"
        while unique in self.taken:
            n += 1
            unique = f"{id}~{n}"
        self.names[id] = n + 1
        self.taken.add(unique)
        self.ids[address] = unique
        return unique

    def tensor(self, address: int, is_node: bool = True) -> dict[str, Any]:
        """A tensor that has its id, in long form; one that is no node has no op, whichever graph computed it."""
        t = self.memory.tensor(address)
        ids = self.ids
        id = ids[address]
        out: dict[str, Any] = {
            "type": self._types.get(t.type) or self._type(t.type),
            "ne": list(t.ne),
            "nb": list(t.nb),
        }
        if t.op and is_node:
            words = t.op_params
            out["op"] = self._ops.get((t.op, words[0])) or self._op(t.op, words[0])
            out["src"] = _sources(self.sources(t), ids)
            if any(words):
                out["op_params"] = list(words)
        if t.view_src:
            if t.view_src not in ids:
                self.add_leaf(t.view_src)
            out["view_src"] = ids[t.view_src]
            if t.view_offs:
                out["view_offs"] = t.view_offs
        if t.flags:
            named = [name for name, bit in FLAGS.items() if t.flags & bit]
            if named:
                out["flags"] = named
        name = text(t.name)
        if name != id:
            out["name"] = without_controls(name)
        return out

    def _type(self, number: int) -> str:
        name = self.memory.type_name(number)
        if name not in TYPES or TYPES[name].id != number:
            raise self.unknown_type(name)
        self._types[number] = name
        return name

    def _op(self, number: int, first_word: int) -> str:
        """The op by its name: numbers differ between releases, and ours are those of the ggml this tool follows."""
        name = self.memory.op_name(number, first_word)
        op = _OPS.get(name)
        if name in _FUNCTIONS:
            family, word = _FUNCTIONS[name]
            op = family if word == first_word else None
        if op is None or (op in (Op.UNARY, Op.GLU) and name not in _FUNCTIONS):
            raise self.unknown_op(name)
        self._ops[number, first_word] = op.name.lower()
        return self._ops[number, first_word]


def _sources(src: tuple[int, ...], ids: dict[int, str]) -> list[str | None]:
    """The ids of a node's sources, None for one that it does not have before another."""
    n = len(src)
    while n and not src[n - 1]:
        n -= 1
    return [ids[s] if s else None for s in src[:n]]


def text(name: bytes) -> str:
    """What ggml keeps of a name, up to its end."""
    return name.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def without_controls(name: str) -> str:
    """A name without control characters, which a scenario's names cannot have."""
    if name.isprintable():
        return name
    return "".join("?" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in name)
