"""A graph in llama.cpp's memory as a scenario: nodes and leafs in their order, with raw words and unique ids."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import FLAGS
from ggmltool.ggml.version import VERSION
from ggmltool.oracle.structs import CGraph, Tensor
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.lib import Lib
from ggmltool.sources.llama.structs import OBJECT_TYPE_TENSOR, Object

_CONTEXTS = ("weights", "inputs", "kv")
_USAGE_WEIGHTS = 1
_OPS = {op.name: op for op in Op}
_SUB_OPS = {Op.UNARY: ("ggml_unary_op_name", UnaryOp), Op.GLU: ("ggml_glu_op_name", GluOp)}


def scenario_of(lib: Lib, graph: int) -> dict[str, Any]:
    """The scenario of a ggml_cgraph that was not split yet, or only for one backend: everything on the CPU.

    Its contexts are `weights` (also those that this graph does not use), `kv` (KV cache and recurrent state) and
    `inputs`, which the scheduler allocates. Raises CaptureError for an op or a type that this ggml does not have.
    """
    return _Writer(lib, graph).scenario()


class _Writer:
    """Gives every tensor an id, and writes it in long form. `ids` has what is named so far, by address."""

    def __init__(self, lib: Lib, graph: int) -> None:
        self.lib = lib
        self.graph = graph
        self.ids: dict[int, str] = {}
        self.taken: set[str] = set()
        self.names: dict[str, int] = {}

    def scenario(self) -> dict[str, Any]:
        nodes, leafs = self.lib.graph_tensors(self.graph)
        contexts: dict[str, dict[str, Any]] = {name: {} for name in _CONTEXTS}
        for leaf in leafs:
            self._leaf(leaf, contexts)
        used = list(self.ids)
        for address in self._neighbours(used):
            self._leaf(address, contexts)
        written = {self._name(node): self._written(node) for node in nodes}
        head = {"weights": {"buft": "CPU", "usage": "weights"}, "inputs": {}, "kv": {"buft": "CPU", "usage": "any"}}
        return {
            "backends": [{"name": "CPU"}],
            "scheduler": {"graph_size": CGraph.from_address(self.graph).size},
            "contexts": {name: {**head[name], "tensors": tensors} for name, tensors in contexts.items() if tensors},
            "graphs": {
                "main": {"nodes": written, "expand": [*(self.ids[a] for a in leafs), *(self.ids[a] for a in nodes)]}
            },
        }

    def _leaf(self, address: int, contexts: dict[str, dict[str, Any]]) -> None:
        """Write a tensor without op into the context of its memory, after what it views."""
        if address in self.ids:
            return
        tensor = Tensor.from_address(address)
        if tensor.view_src:
            self._leaf(tensor.view_src, contexts)
        id = self._name(address)
        contexts[self._context(tensor)][id] = self._written(address)

    def _context(self, tensor: Tensor) -> str:
        """Whose memory a leaf has: that of its buffer; the scheduler gives inputs theirs."""
        while not tensor.buffer and tensor.view_src:
            tensor = Tensor.from_address(tensor.view_src)
        if not tensor.buffer:
            return "inputs"
        weights = self.lib.ggml_backend_buffer_get_usage(tensor.buffer) == _USAGE_WEIGHTS
        return "weights" if weights else "kv"

    def _neighbours(self, leafs: list[int]) -> Iterator[int]:
        """The weights and caches that this graph does not use, in the order in which they were made."""
        seen: set[int] = set()
        for leaf in leafs:
            if not Tensor.from_address(leaf).buffer or leaf in seen:
                continue
            for address in _arena(leaf):
                seen.add(address)
                tensor = Tensor.from_address(address)
                if tensor.buffer and not tensor.op and not tensor.view_src and address not in self.ids:
                    yield address

    def _name(self, address: int) -> str:
        """The id of a tensor: its name, with a number where that is taken (or is nothing an id can be)."""
        name = self._text(address)
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

    def _text(self, address: int) -> str:
        return str(Tensor.from_address(address).name.decode("utf-8", "surrogateescape"))

    def _written(self, address: int) -> dict[str, Any]:
        """A named tensor in long form."""
        tensor = Tensor.from_address(address)
        out: dict[str, Any] = {"type": self._type(tensor.type), "ne": list(tensor.ne), "nb": list(tensor.nb)}
        if tensor.op:
            op = self._op(tensor)
            out["op"] = op.name.lower()
            out["src"] = self._sources(tensor)
            words = list(tensor.op_params)
            if any(words):
                out["op_params"] = words
        if tensor.view_src:
            out["view_src"] = self.ids[tensor.view_src]
            if tensor.view_offs:
                out["view_offs"] = tensor.view_offs
        flags = [name for name, bit in FLAGS.items() if tensor.flags & bit]
        if flags:
            out["flags"] = flags
        name = self._text(address)
        if name != self.ids[address]:
            out["name"] = name
        return out

    def _sources(self, tensor: Tensor) -> list[str | None]:
        src = list(tensor.src)
        while src and not src[-1]:
            src.pop()
        return [self.ids[s] if s else None for s in src]

    def _type(self, number: int) -> str:
        name = self.lib.ggml_type_name(number).decode()
        if name not in TYPES or TYPES[name].id != number:
            raise CaptureError(f"the model has tensors of the type {name}, which ggml {VERSION} does not know")
        return str(name)

    def _op(self, tensor: Tensor) -> Op:
        """The op by its name: numbers differ between releases, and ours are those of the ggml this tool follows."""
        name = self.lib.ggml_op_name(tensor.op).decode()
        op = _OPS.get(name)
        if op in _SUB_OPS:
            function, enum = _SUB_OPS[op]
            number = tensor.op_params[0]
            name = getattr(self.lib, function)(number).decode()
            if name not in enum.__members__ or enum[name] != number:
                op = None
        if op is None:
            raise CaptureError(
                f"the graph has the op {name} (ggml {self.lib.ggml}), which ggml {VERSION} does not know; "
                "ggmltool cannot plan it"
            )
        return op


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
