"""Graphs in llama.cpp's memory as a scenario, each llama_context's on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.errors import Error
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.oracle.structs import KNOWN, CGraph
from ggmltool.sources.graph_writer import GraphWriter as AnyGraphWriter
from ggmltool.sources.llama.capture.lib import Lib
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.state.memory.pages import OwnMemory
from ggmltool.state.memory.tensors import Tensors, TensorStruct

_USAGE_WEIGHTS = 1
_SUB_OPS = {"UNARY": "ggml_unary_op_name", "GLU": "ggml_glu_op_name"}


class LibraryTensors(Tensors):
    """The tensors that the library has in this process."""

    def __init__(self, lib: Lib) -> None:
        super().__init__(OwnMemory(), KNOWN.types)
        self.lib = lib

    def arena(self, address: int) -> Sequence[int]:
        """The tensors of the ggml_context that a tensor lies in, in the order of its objects."""
        return next(iter(self.arenas([address])), ())

    def type_name(self, number: int) -> str:
        """ggml_type_name."""
        return str(self.lib.ggml_type_name(number).decode())

    def op_name(self, number: int, first_word: int) -> str:
        """ggml_op_name, or the name of the function of UNARY and GLU."""
        name = str(self.lib.ggml_op_name(number).decode())
        return str(getattr(self.lib, _SUB_OPS[name])(first_word).decode()) if name in _SUB_OPS else name


class GraphWriter(AnyGraphWriter):
    """Writes graphs of one llama_context, everything on the CPU.

    Contexts are `weights` (also those that no graph uses), `kv` (KV cache and recurrent state) and, for each graph, its
    inputs, which the scheduler allocates.
    """

    def __init__(self, lib: Lib) -> None:
        super().__init__(LibraryTensors(lib))
        self.lib = lib
        self.graph_size = 0

    def context(self, kind: str, buft: str) -> tuple[str, str]:
        """The context of the `weights` or the `kv` in a buffer type: its name and its buffer type in the scenario."""
        return kind, "CPU"

    def backend(self, node: int) -> str | None:
        """The user assignment of a node."""
        return None

    def add(self, name: str, graph: int) -> dict[int, str]:
        """Write a ggml_cgraph that was not split yet, or only for one backend; the ids of its tensors by address.

        Raises CaptureError for an op or a type that this ggml does not have.
        """
        self.graph_size = max(self.graph_size, CGraph.from_address(graph).size)
        return self.write(name, *self.lib.graph_tensors(graph))

    def has_op(self, op: str) -> bool:
        """Whether any node written so far is of the op."""
        return any(node["op"] == op for graph in self.graphs.values() for node in graph["nodes"].values())

    def written(self) -> dict[str, Any]:
        """The parts `scheduler`, `contexts` and `graphs` of the scenario.

        Weights are in the order in which llama.cpp made them, which is that of their memory.
        """
        for context in self.contexts.values():
            if context.get("usage") == "weights":
                context["tensors"] = self.in_order_of_memory(context["tensors"])
        scheduler: dict[str, Any] = {"graph_size": self.graph_size}
        if self.lib.has("ggml_backend_sched_set_copy_callback"):
            scheduler["copy_callback"] = "used_experts"
        return {"scheduler": scheduler, "contexts": self.contexts, "graphs": self.graphs}

    def place(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        """The context of a weight or a cache."""
        lib = self.lib
        weights = lib.ggml_backend_buffer_get_usage(tensor.buffer) == _USAGE_WEIGHTS
        buft = lib.ggml_backend_buft_name(lib.ggml_backend_buffer_get_type(tensor.buffer)).decode()
        name, buft = self.context("weights" if weights else "kv", buft)
        return name, {"buft": buft, "usage": "weights" if weights else "any"}

    def node(self, address: int) -> dict[str, Any]:
        """A node with its user assignment."""
        out = self.tensor(address)
        backend = self.backend(address)
        return out if backend is None else {**out, "backend": backend}

    def unknown_type(self, name: str) -> Error:
        """No such type here."""
        return CaptureError(f"the model has tensors of the type {name}, which ggml {NEWEST.name} does not have")

    def unknown_op(self, name: str) -> Error:
        """No such op here."""
        return CaptureError(
            f"the graph has the op {name} (ggml {self.lib.ggml}), which ggml {NEWEST.name} does not have; ggmltool "
            "cannot plan it"
        )
