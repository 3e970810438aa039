"""Graphs in llama.cpp's memory as a scenario: nodes and leafs in their order, with raw words and unique ids."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAGS
from ggmltool.oracle.structs import CGraph, Tensor
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.lib import Lib
from ggmltool.sources.llama.structs import OBJECT_TYPE_TENSOR, Object

_USAGE_WEIGHTS = 1
_OPS = {op.name: op for op in Op}
_SUB_OPS = {Op.UNARY: ("ggml_unary_op_name", UnaryOp), Op.GLU: ("ggml_glu_op_name", GluOp)}
_TENSOR = struct.Struct("@iP4q4Ni16ii10PPNP64s")
"""The fields of ggml_tensor up to its name, all read at once: a graph has thousands of them."""


class GraphWriter:
    """Writes graphs of one llama_context, everything on the CPU.

    Contexts are `weights` (also those that no graph uses), `kv` (KV cache and recurrent state) and, for each graph, its
    inputs, which the scheduler allocates. `ids` has what is named so far, by address.
    """

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.ids: dict[int, str] = {}
        self.taken: set[str] = set()
        self.names: dict[str, int] = {}
        self.contexts: dict[str, dict[str, Any]] = {}
        self.graphs: dict[str, dict[str, Any]] = {}
        self.inputs = "inputs"
        self.graph_size = 0
        self._types: dict[int, str] = {}
        self._ops: dict[tuple[int, int], str] = {}

    def context(self, kind: str, buft: str) -> tuple[str, str]:
        """The context of the `weights` or the `kv` in a buffer type: its name and its buffer type in the scenario."""
        return kind, "CPU"

    def backend(self, node: int) -> str | None:
        """The user assignment of a node."""
        return None

    def has_memory(self, tensor: Tensor) -> bool:
        """Whether the tensor is pre-allocated, not the scheduler's."""
        return bool(tensor.buffer)

    def add(self, name: str, graph: int) -> dict[int, str]:
        """Write a ggml_cgraph that was not split yet, or only for one backend; the ids of its tensors by address.

        Raises CaptureError for an op or a type that this ggml does not have.
        """
        self.inputs = f"inputs_{name}" if self.graphs else "inputs"
        self.graph_size = max(self.graph_size, CGraph.from_address(graph).size)
        nodes, leafs = self.lib.graph_tensors(graph)
        # Tensors of contexts and nodes of any graph have different ids; nodes of two graphs may have the same.
        self.taken = self._in_contexts().union(*(graph["nodes"] for graph in self.graphs.values()))
        self.names = {}
        for leaf in leafs:
            self._leaf(leaf)
        for address in self._neighbors(list(self.ids)):
            self._leaf(address)
        # The next graph takes this one's memory, but not that of the weights and caches.
        lasting = {address: id for address, id in self.ids.items() if self.has_memory(Tensor.from_address(address))}
        self.taken = self._in_contexts()
        written = {self._name(node): self._node(node) for node in nodes}
        self.graphs[name] = {"nodes": written, "expand": [self.ids[address] for address in (*leafs, *nodes)]}
        uncomputed = [self.ids[node] for node in nodes if not Tensor.from_address(node).flags & FLAG_COMPUTE]
        if uncomputed:
            self.graphs[name]["uncomputed"] = uncomputed
        ids, self.ids = self.ids, lasting
        return ids

    def _in_contexts(self) -> set[str]:
        return {id for context in self.contexts.values() for id in context["tensors"]}

    def has_op(self, op: str) -> bool:
        """Whether any node written so far is of the op."""
        return any(node["op"] == op for graph in self.graphs.values() for node in graph["nodes"].values())

    def written(self) -> dict[str, Any]:
        """The parts `scheduler`, `contexts` and `graphs` of the scenario.

        Weights are in the order in which llama.cpp made them, which is that of their memory.
        """
        made = {self.ids[address]: i for i, address in enumerate(self._arenas()) if address in self.ids}
        for context in self.contexts.values():
            if context.get("usage") == "weights":
                tensors = context["tensors"]
                context["tensors"] = dict(
                    sorted(tensors.items(), key=lambda t: made.get(t[1].get("view_src", t[0]), 0))
                )
        scheduler: dict[str, Any] = {"graph_size": self.graph_size}
        if self.lib.has("ggml_backend_sched_set_copy_callback"):
            scheduler["copy_callback"] = "used_experts"
        return {"scheduler": scheduler, "contexts": self.contexts, "graphs": self.graphs}

    def _leaf(self, address: int) -> None:
        """Write a tensor without op into the context of its memory, after what it views."""
        if address in self.ids:
            return
        tensor = Tensor.from_address(address)
        if tensor.view_src:
            self._leaf(tensor.view_src)
        id = self._name(address)
        self._context(tensor)[id] = self._tensor(address)

    def _context(self, tensor: Tensor) -> dict[str, Any]:
        """The tensors of the context of a leaf's memory: that of its buffer; the scheduler gives inputs theirs."""
        while not self.has_memory(tensor) and tensor.view_src:
            tensor = Tensor.from_address(tensor.view_src)
        name, head = self.inputs, {}
        if self.has_memory(tensor):
            lib = self.lib
            weights = lib.ggml_backend_buffer_get_usage(tensor.buffer) == _USAGE_WEIGHTS
            buft = lib.ggml_backend_buft_name(lib.ggml_backend_buffer_get_type(tensor.buffer)).decode()
            name, buft = self.context("weights" if weights else "kv", buft)
            head = {"buft": buft, "usage": "weights" if weights else "any"}
        tensors: dict[str, Any] = self.contexts.setdefault(name, {**head, "tensors": {}})["tensors"]
        return tensors

    def _arenas(self) -> Iterator[int]:
        """The tensors of all contexts that have memory, each context in its order."""
        seen: set[int] = set()
        for address in self.ids:
            if address not in seen:
                tensors = list(_arena(address))
                seen.update(tensors)
                yield from tensors

    def _neighbors(self, leafs: list[int]) -> Iterator[int]:
        """The weights and caches that this graph does not use, in the order in which they were made."""
        seen: set[int] = set()
        for leaf in leafs:
            if not self.has_memory(Tensor.from_address(leaf)) or leaf in seen:
                continue
            for address in _arena(leaf):
                seen.add(address)
                tensor = Tensor.from_address(address)
                if tensor.buffer and not tensor.op and not tensor.view_src and address not in self.ids:
                    yield address

    def _name(self, address: int) -> str:
        """The id of a tensor: its name, with a number where that is taken (or is nothing an id can be)."""
        name = str(Tensor.from_address(address).name.decode("utf-8", "surrogateescape"))
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

    def _node(self, address: int) -> dict[str, Any]:
        out = self._tensor(address)
        backend = self.backend(address)
        return out if backend is None else {**out, "backend": backend}

    def _tensor(self, address: int) -> dict[str, Any]:
        """A named tensor in long form."""
        fields = _TENSOR.unpack(ctypes.string_at(address, _TENSOR.size))
        type, op, flags, view_src, view_offs = fields[0], fields[10], fields[27], fields[38], fields[39]
        ids = self.ids
        id = ids[address]
        out: dict[str, Any] = {
            "type": self._types.get(type) or self._type(type),
            "ne": list(fields[2:6]),
            "nb": list(fields[6:10]),
        }
        if op:
            words = fields[11:27]
            out["op"] = self._ops.get((op, words[0])) or self._op(op, words[0])
            out["src"] = _sources(fields[28:38], ids)
            if any(words):
                out["op_params"] = list(words)
        if view_src:
            self._leaf(view_src)
            out["view_src"] = ids[view_src]
            if view_offs:
                out["view_offs"] = view_offs
        if flags:
            named = [name for name, bit in FLAGS.items() if flags & bit]
            if named:
                out["flags"] = named
        name = _text(fields[41])
        if name != id:
            out["name"] = name
        return out

    def _type(self, number: int) -> str:
        name = str(self.lib.ggml_type_name(number).decode())
        if name not in TYPES or TYPES[name].id != number:
            raise CaptureError(f"the model has tensors of the type {name}, which ggml {NEWEST.name} does not have")
        self._types[number] = name
        return name

    def _op(self, number: int, first_word: int) -> str:
        """The op by its name: numbers differ between releases, and ours are those of the ggml this tool follows."""
        name = self.lib.ggml_op_name(number).decode()
        op = _OPS.get(name)
        if op in _SUB_OPS:
            function, enum = _SUB_OPS[op]
            name = getattr(self.lib, function)(first_word).decode()
            if name not in enum.__members__ or enum[name] != first_word:
                op = None
        if op is None:
            raise CaptureError(
                f"the graph has the op {name} (ggml {self.lib.ggml}), which ggml {NEWEST.name} does not have; ggmltool "
                "cannot plan it"
            )
        self._ops[number, first_word] = op.name.lower()
        return self._ops[number, first_word]


def _sources(src: tuple[int, ...], ids: dict[int, str]) -> list[str | None]:
    """The ids of a node's sources, None for one that it does not have before another."""
    n = len(src)
    while n and not src[n - 1]:
        n -= 1
    return [ids[s] if s else None for s in src[:n]]


def _text(name: bytes) -> str:
    """What ggml keeps of a name, up to its end."""
    return name.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _arena(tensor: int) -> Iterator[int]:
    """The tensors of the ggml_context that a tensor lies in, in the order of its objects."""
    size = ctypes.sizeof(Object)
    start = tensor - Object.from_address(tensor - size).offs
    at: int | None = start
    while at:
        header = Object.from_address(at)
        if header.type == OBJECT_TYPE_TENSOR:
            yield start + header.offs
        at = header.next
