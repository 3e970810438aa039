"""llama.cpp as a Python package carries it: a shared object with all llama_* functions, ggml in it or beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ggmltool.oracle.structs import BufferI, CGraph, Tensor
from ggmltool.sources.llama.behavior import Behavior, behavior_of
from ggmltool.sources.llama.errors import LlamaUnavailable
from ggmltool.sources.llama.packages import REMEDY, Found, find
from ggmltool.sources.llama.structs import (
    CONTEXT_DEFAULTS,
    MODEL_DEFAULTS,
    Batch,
    Layout,
    layouts,
    wrong_fields,
)

LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
ABORT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

GRAPH_RESERVE = "_Z19llama_graph_reserveP13llama_contextjjj"
"""llama_graph_reserve(ctx, n_tokens, n_seqs, n_outputs), as C++ names it."""

_P, _I, _U, _Z, _S, _B = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.c_bool,
)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_version": (_S, ()),
    "ggml_op_name": (_S, (_I,)),
    "ggml_unary_op_name": (_S, (_I,)),
    "ggml_glu_op_name": (_S, (_I,)),
    "ggml_type_name": (_S, (_I,)),
    "ggml_tensor_overhead": (_Z, ()),
    "ggml_nbytes": (_Z, (_P,)),
    "ggml_graph_n_nodes": (_I, (_P,)),
    "ggml_graph_node": (_P, (_P, _I)),
    "ggml_set_abort_callback": (_P, (_P,)),
    "ggml_backend_buffer_get_usage": (_I, (_P,)),
    "ggml_backend_buffer_get_type": (_P, (_P,)),
    "ggml_backend_buft_name": (_S, (_P,)),
    "ggml_backend_buft_alloc_buffer": (_P, (_P, _Z)),
    "ggml_backend_buffer_init": (_P, (_P, BufferI, _P, _Z)),
    "ggml_backend_cpu_buffer_type": (_P, ()),
    "llama_log_set": (None, (_P, _P)),
    "llama_backend_init": (None, ()),
    "llama_free": (None, (_P,)),
    "llama_model_free": (None, (_P,)),
    "llama_model_meta_val_str": (ctypes.c_int32, (_P, _S, _S, _Z)),
    "llama_model_desc": (ctypes.c_int32, (_P, _S, _Z)),
    "llama_model_size": (ctypes.c_uint64, (_P,)),
    "llama_model_n_params": (ctypes.c_uint64, (_P,)),
    "llama_model_n_layer": (ctypes.c_int32, (_P,)),
    "llama_model_n_swa": (ctypes.c_int32, (_P,)),
    "llama_model_n_ctx_train": (ctypes.c_int32, (_P,)),
    "llama_model_has_encoder": (_B, (_P,)),
    "llama_model_get_vocab": (_P, (_P,)),
    "llama_vocab_type": (_I, (_P,)),
    "llama_tokenize": (ctypes.c_int32, (_P, _S, ctypes.c_int32, _P, ctypes.c_int32, _B, _B)),
    "llama_decode": (ctypes.c_int32, (_P, Batch)),
    "llama_model_is_recurrent": (_B, (_P,)),
    "llama_get_memory": (_P, (_P,)),
    "llama_n_ctx": (_U, (_P,)),
    "llama_n_ctx_seq": (_U, (_P,)),
    "llama_n_batch": (_U, (_P,)),
    "llama_n_ubatch": (_U, (_P,)),
    "llama_n_seq_max": (_U, (_P,)),
    GRAPH_RESERVE: (_P, (_P, _U, _U, _U)),
}


def _param_functions(layout: Layout) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The functions that give and take the params' structs."""
    return {
        "llama_model_default_params": (layout.model, ()),
        "llama_context_default_params": (layout.context, ()),
        "llama_model_load_from_file": (_P, (_S, layout.model)),
        "llama_init_from_model": (_P, (_P, layout.context)),
    }


class Lib:
    """The loaded library. A function is an attribute under its own name; everything llama.cpp owns is an address.

    `wanted` is a package, as `packages.find` takes it.
    """

    def __init__(self, wanted: str = "") -> None:
        self.found: Found = find(wanted)
        try:
            self.library = ctypes.CDLL(str(self.found.file), mode=ctypes.RTLD_LOCAL)
            self._bind(_FUNCTIONS)
            self._bind(_param_functions(self._layout()))
        except (OSError, AttributeError) as error:
            raise LlamaUnavailable(f"{self.found.title} cannot be used: {error}") from error
        self.graph_reserve: Callable[[int, int, int, int], int | None] = getattr(self, GRAPH_RESERVE)
        if self.found.backend is not None:
            self.library.ggml_backend_load(str(self.found.backend).encode())

    def _bind(self, functions: dict[str, tuple[Any, tuple[Any, ...]]]) -> None:
        for name, (result, arguments) in functions.items():
            function = getattr(self.library, name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def _layout(self) -> Layout:
        """The layout of the params that gives llama.cpp's defaults: only the one that the library has does.

        Raises LlamaUnavailable if none does, whatever the package's version says.
        """
        wrong: list[str] = []
        for layout in layouts():
            self._bind(_param_functions(layout))
            found = wrong_fields(self.llama_model_default_params(), MODEL_DEFAULTS)
            found += wrong_fields(self.llama_context_default_params(), CONTEXT_DEFAULTS)
            if not found and self.ggml_tensor_overhead() == 32 + ctypes.sizeof(Tensor):
                return layout
            wrong = wrong or found or ["ggml_tensor"]
        raise LlamaUnavailable(
            f"{self.found.title} has other structs than ggmltool knows ({', '.join(wrong)}). {REMEDY}"
        )

    @cached_property
    def behavior(self) -> Behavior:
        """The release of ggml that it behaves as. Raises LlamaUnavailable."""
        try:
            return behavior_of(self.ggml, self.found.build, self.has)
        except LlamaUnavailable as error:
            raise LlamaUnavailable(f"{self.found.title} cannot be used: {error}") from None

    @property
    def title(self) -> str:
        """The package and its ggml."""
        return f"{self.found.title}, ggml {self.ggml}"

    def has(self, function: str) -> bool:
        """Whether the library has a function."""
        return hasattr(self.library, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name!r} is not bound; add it to ggmltool.sources.llama.lib")

    @property
    def ggml(self) -> str:
        """The version of its ggml."""
        return str(self.ggml_version().decode())

    def graph_tensors(self, graph: int) -> tuple[list[int], list[int]]:
        """The nodes and the leafs of a ggml_cgraph, in its order."""
        g = CGraph.from_address(graph)
        nodes = g.nodes[: g.n_nodes]
        if g.n_nodes != self.ggml_graph_n_nodes(graph) or (nodes and nodes[0] != self.ggml_graph_node(graph, 0)):
            raise LlamaUnavailable(f"{self.found.title} has another ggml_cgraph than ggmltool knows")
        return nodes, g.leafs[: g.n_leafs]

    def model_value(self, model: int, key: str) -> str:
        """A value of the GGUF's metadata as text, "" if there is none."""
        room = ctypes.create_string_buffer(1024)
        n = self.llama_model_meta_val_str(model, key.encode(), room, len(room))
        return room.value.decode("utf-8", "replace") if n >= 0 else ""
