"""llama.cpp as a Python package carries it: a shared object with all llama_* functions, ggml in it or beside it.

The structs of llama.h are mirrors of the builds of llama.cpp that are known (64-bit). They are passed by value; `spare`
at their end is room for what a later build appends.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from ggmltool.oracle.structs import BufferI, CGraphStruct, Tensor
from ggmltool.sources.llama.capture.packages import REMEDY, Behavior, FoundPackage, behavior_of, find
from ggmltool.sources.llama.errors import LlamaUnavailable

_POINTER = c.c_void_p


class Added(NamedTuple):
    """A field that builds have behind the field `after`; `since` is the first build that is known to have it."""

    since: str
    after: str
    name: str
    type: Any
    default: int


ADDED = (
    Added("b10566", "n_outputs_max", "n_outputs_max_per_seq", c.c_uint32, 1),
    Added("b10809", "load_mode", "lazy_mode", c.c_int, 1),
    Added("b11548", "type_v", "moe_cache_size", c.c_size_t, 0),
)
"""In the order in which they came: a build has the first so many of them. A later field is a line more."""

FIRST = "b10335"
"""The first build that is known, without any of them."""

_MODEL = (
    ("devices tensor_buft_overrides", _POINTER),
    ("n_gpu_layers", c.c_int32),
    ("split_mode load_mode", c.c_int),
    ("main_gpu", c.c_int32),
    ("tensor_split progress_callback progress_callback_user_data kv_overrides", _POINTER),
    ("vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp", c.c_bool),
    ("spare", c.c_uint8 * 58),
)
_CONTEXT = (
    ("n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max", c.c_uint32),
    ("n_threads n_threads_batch", c.c_int32),
    ("ctx_type rope_scaling_type pooling_type attention_type flash_attn_type", c.c_int),
    ("rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow", c.c_float),
    ("yarn_orig_ctx", c.c_uint32),
    ("defrag_thold", c.c_float),
    ("cb_eval cb_eval_user_data", _POINTER),
    ("type_k type_v", c.c_int),
    ("abort_callback abort_callback_data", _POINTER),
    ("embeddings offload_kqv no_perf op_offload swa_full kv_unified", c.c_bool),
    ("samplers", _POINTER),
    ("n_samplers", c.c_size_t),
    ("ctx_other", _POINTER),
    ("spare", c.c_uint8 * 64),
)
"""The fields in their order, those of one type that follow each other in one line."""


class LlamaLayout(NamedTuple):
    """llama_model_params and llama_context_params of some builds, as ctypes classes; `since` is the first one known."""

    since: str
    model: Any
    context: Any


@cache
def layouts() -> tuple[LlamaLayout, ...]:
    """All that are known, the newest first."""
    made = []
    for n in range(len(ADDED), -1, -1):
        added = ADDED[:n]
        since = added[-1].since if added else FIRST
        made.append(
            LlamaLayout(since, _struct("ModelParams", _MODEL, added), _struct("ContextParams", _CONTEXT, added))
        )
    return tuple(made)


def _struct(name: str, fields: Sequence[Any], added: Sequence[Added]) -> Any:
    out = [(field, type) for names, type in fields for field in names.split()]
    for more in added:
        names = [field[0] for field in out]
        if more.after in names:
            out.insert(names.index(more.after) + 1, (more.name, more.type))
    return type(name, (c.Structure,), {"_fields_": tuple(out)})


class Batch(c.Structure):
    """llama_batch: a value per token in each array; `logits` says of which tokens logits are asked."""

    _fields_ = (
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", c.POINTER(c.c_float)),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.c_void_p)),
        ("logits", c.POINTER(c.c_int8)),
    )


MODEL_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("devices", "tensor_buft_overrides", "tensor_split", "progress_callback", "kv_overrides")),
    **dict.fromkeys(("vocab_only", "check_tensors", "no_host", "no_alloc"), False),
    "n_gpu_layers": -1,
    "split_mode": 1,
    "main_gpu": 0,
    "use_extra_bufts": True,
}
"""What llama_model_default_params answers where the layout is the one above."""

CONTEXT_DEFAULTS: dict[str, Any] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    **dict.fromkeys(("ctx_type", "rope_freq_base", "yarn_orig_ctx", "n_samplers"), 0),
    **dict.fromkeys(("rope_scaling_type", "pooling_type", "attention_type", "flash_attn_type"), -1),
    **dict.fromkeys(("yarn_ext_factor", "defrag_thold"), -1.0),
    **dict.fromkeys(("cb_eval", "samplers", "ctx_other")),
    **dict.fromkeys(("type_k", "type_v"), 1),
    **dict.fromkeys(("offload_kqv", "op_offload", "swa_full"), True),
    **dict.fromkeys(("embeddings", "kv_unified"), False),
}
"""What llama_context_default_params answers where the layout is the one above."""


def wrong_fields(params: c.Structure, defaults: dict[str, Any]) -> list[str]:
    """The fields that do not have their default, which says that the layout is another build's."""
    added = {more.name: more.default for more in ADDED if hasattr(params, more.name)}
    return [name for name, value in (defaults | added).items() if getattr(params, name) != value]


LOG_CALLBACK = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
ABORT_CALLBACK = c.CFUNCTYPE(None, c.c_char_p)

GRAPH_RESERVE = "_Z19llama_graph_reserveP13llama_contextjjj"
"""llama_graph_reserve(ctx, n_tokens, n_seqs, n_outputs), as C++ names it."""

_P, _I, _U, _Z, _S, _B = c.c_void_p, c.c_int, c.c_uint32, c.c_size_t, c.c_char_p, c.c_bool
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_version": (_S, ()),
    **dict.fromkeys(("ggml_op_name", "ggml_unary_op_name", "ggml_glu_op_name", "ggml_type_name"), (_S, (_I,))),
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
    "llama_model_meta_val_str": (c.c_int32, (_P, _S, _S, _Z)),
    "llama_model_desc": (c.c_int32, (_P, _S, _Z)),
    **{f"llama_model_{name}": (c.c_uint64, (_P,)) for name in ("size", "n_params")},
    **{f"llama_model_{name}": (c.c_int32, (_P,)) for name in ("n_layer", "n_swa", "n_ctx_train")},
    "llama_model_has_encoder": (_B, (_P,)),
    "llama_model_get_vocab": (_P, (_P,)),
    "llama_vocab_type": (_I, (_P,)),
    "llama_tokenize": (c.c_int32, (_P, _S, c.c_int32, _P, c.c_int32, _B, _B)),
    "llama_decode": (c.c_int32, (_P, Batch)),
    "llama_model_is_recurrent": (_B, (_P,)),
    "llama_get_memory": (_P, (_P,)),
    **{f"llama_n_{name}": (_U, (_P,)) for name in ("ctx", "ctx_seq", "batch", "ubatch", "seq_max")},
    GRAPH_RESERVE: (_P, (_P, _U, _U, _U)),
}


def _param_functions(layout: LlamaLayout) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The functions that give and take the params' structs."""
    return {
        "llama_model_default_params": (layout.model, ()),
        "llama_context_default_params": (layout.context, ()),
        "llama_model_load_from_file": (_P, (_S, layout.model)),
        "llama_init_from_model": (_P, (_P, layout.context)),
    }


class LlamaLib:
    """The loaded library. A function is an attribute under its own name; everything llama.cpp owns is an address.

    `wanted` is a package, as `packages.find` takes it.
    """

    def __init__(self, wanted: str = "") -> None:
        self.found: FoundPackage = find(wanted)
        try:
            self.library = c.CDLL(str(self.found.file), mode=c.RTLD_LOCAL)
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

    def _layout(self) -> LlamaLayout:
        """The layout of the params that gives llama.cpp's defaults: only the one that the library has does.

        Raises LlamaUnavailable if none does, whatever the package's version says.
        """
        wrong: list[str] = []
        for layout in layouts():
            self._bind(_param_functions(layout))
            found = wrong_fields(self.llama_model_default_params(), MODEL_DEFAULTS)
            found += wrong_fields(self.llama_context_default_params(), CONTEXT_DEFAULTS)
            if not found and self.ggml_tensor_overhead() == 32 + c.sizeof(Tensor):
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
        raise AttributeError(f"{name!r} is not bound; add it to ggmltool.sources.llama.capture.lib")

    @property
    def ggml(self) -> str:
        """The version of its ggml."""
        return str(self.ggml_version().decode())

    def graph_tensors(self, graph: int) -> tuple[list[int], list[int]]:
        """The nodes and the leafs of a ggml_cgraph, in its order."""
        g = CGraphStruct.from_address(graph)
        nodes = g.nodes[: g.n_nodes]
        if g.n_nodes != self.ggml_graph_n_nodes(graph) or (nodes and nodes[0] != self.ggml_graph_node(graph, 0)):
            raise LlamaUnavailable(f"{self.found.title} has another ggml_cgraph than ggmltool knows")
        return nodes, g.leafs[: g.n_leafs]

    def model_value(self, model: int, key: str) -> str:
        """A value of the GGUF's metadata as text, "" if there is none."""
        room = c.create_string_buffer(1024)
        n = self.llama_model_meta_val_str(model, key.encode(), room, len(room))
        return room.value.decode("utf-8", "replace") if n >= 0 else ""
