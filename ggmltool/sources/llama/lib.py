"""llama.cpp as the Python package xllamacpp carries it: one shared object with all llama_* and ggml_* functions."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ggmltool.oracle.structs import BufferI, CGraph, Tensor
from ggmltool.sources.llama.errors import LlamaUnavailable
from ggmltool.sources.llama.structs import (
    CONTEXT_DEFAULTS,
    MODEL_DEFAULTS,
    Batch,
    context_params,
    model_params,
    wrong_fields,
)

DISTRIBUTION = "xllamacpp"

FIRST, BEFORE = (2026, 8, 10566), (2026, 11)
"""The releases of xllamacpp whose structs are known: from the first to before the second."""

SUPPORTED = ">=" + ".".join(map(str, FIRST)) + ",<" + ".".join(map(str, BEFORE))

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


def version() -> str:
    """The installed xllamacpp. Raises LlamaUnavailable if there is none, or one whose structs are not known."""
    try:
        found = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise LlamaUnavailable(
            f"llama.cpp is missing: the package {DISTRIBUTION} is not installed. {_REMEDY}"
        ) from None
    if not FIRST <= release(found) < BEFORE:
        raise LlamaUnavailable(
            f"{DISTRIBUTION} {found} is installed; ggmltool knows the structs of {DISTRIBUTION}{SUPPORTED}. {_REMEDY}"
        )
    return found


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _functions(version: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Every function that is bound, with its result and arguments; the params' structs are those of the release."""
    model, context = model_params(release(version)), context_params(release(version))
    return _FUNCTIONS | {
        "llama_model_default_params": (model, ()),
        "llama_context_default_params": (context, ()),
        "llama_model_load_from_file": (_P, (_S, model)),
        "llama_init_from_model": (_P, (_P, context)),
    }


_REMEDY = f"Install it with `pip install '{DISTRIBUTION}{SUPPORTED}'` (ggmltool's extra `llama`)."


def shared_object() -> Path:
    """The file of the library. Raises LlamaUnavailable."""
    spec = importlib.util.find_spec(DISTRIBUTION)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        for path in sorted(folder.glob(f"{DISTRIBUTION}*.so")):
            return path
    raise LlamaUnavailable(f"The package {DISTRIBUTION} has no shared object here. {_REMEDY}")


class Lib:
    """The loaded library. A function is an attribute under its own name; everything llama.cpp owns is an address."""

    def __init__(self) -> None:
        self.version = version()
        path = shared_object()
        try:
            library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
            for name, (result, arguments) in _functions(self.version).items():
                function = getattr(library, name)
                function.restype = result
                function.argtypes = arguments
                setattr(self, name, function)
        except (OSError, AttributeError) as error:
            raise LlamaUnavailable(f"{DISTRIBUTION} {self.version} cannot be used: {error}") from error
        self.library = library
        self.graph_reserve: Callable[[int, int, int, int], int | None] = getattr(self, GRAPH_RESERVE)
        self._check_layouts()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name!r} is not bound; add it to ggmltool.sources.llama.lib")

    def _check_layouts(self) -> None:
        """Raise where the library's structs are not the ones mirrored here, whatever its version says."""
        wrong = wrong_fields(self.llama_model_default_params(), MODEL_DEFAULTS)
        wrong += wrong_fields(self.llama_context_default_params(), CONTEXT_DEFAULTS)
        if self.ggml_tensor_overhead() != 32 + ctypes.sizeof(Tensor):
            wrong.append("ggml_tensor")
        if wrong:
            raise LlamaUnavailable(
                f"{DISTRIBUTION} {self.version} has other structs than ggmltool knows ({', '.join(wrong)}). {_REMEDY}"
            )

    @property
    def ggml(self) -> str:
        """The version of its ggml."""
        return str(self.ggml_version().decode())

    def graph_tensors(self, graph: int) -> tuple[list[int], list[int]]:
        """The nodes and the leafs of a ggml_cgraph, in its order."""
        g = CGraph.from_address(graph)
        nodes = g.nodes[: g.n_nodes]
        if g.n_nodes != self.ggml_graph_n_nodes(graph) or (nodes and nodes[0] != self.ggml_graph_node(graph, 0)):
            raise LlamaUnavailable(f"{DISTRIBUTION} {self.version} has another ggml_cgraph than ggmltool knows")
        return nodes, g.leafs[: g.n_leafs]

    def model_value(self, model: int, key: str) -> str:
        """A value of the GGUF's metadata as text, "" if there is none."""
        room = ctypes.create_string_buffer(1024)
        n = self.llama_model_meta_val_str(model, key.encode(), room, len(room))
        return room.value.decode("utf-8", "replace") if n >= 0 else ""
