"""What llama.cpp knows of a weight by its name: the layer it belongs to, and the op it is tested with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.dtypes import F16, F32, I32, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb

LayerKind = Literal["input", "repeating", "output"]

_BLOCK = re.compile(r"(?:^|\.)blk\.(\d{1,9})\.")
_STAGE = re.compile(r"^(posnet|convnext)\.(\d{1,9})\.")
_LAYER_OF_NODE = re.compile(r"-(\d{1,9})(?=$| \()")
_LAYER_OF_CACHE = re.compile(r"_l(\d{1,9})(?=$| \()")

TIED = "token_embd"
"""The weight that is also the output's where the model has none of its own."""

LAZY = frozenset(("per_layer_token_embd.weight",))
"""Weights that llama.cpp can read row by row, as they are needed (TENSOR_READ_LAZY)."""

LAZY_SINCE = "2026-09-05"
"""Since when it does."""

LAZY_BYTES = 4 << 30
"""With -lzm auto, those that are larger."""

PER_LAYER = frozenset(("rope_freqs", "rope_factors_long", "rope_factors_short"))
"""Weights that every layer has, though the model holds them once."""

FULL_ATTENTION_ONLY = frozenset(("gemma4", "gemma4-assistant"))
"""Architectures in which only the layers with full attention have those weights."""

OUTPUT_STAYS_WITH_INPUT = frozenset(("bitnet",))
"""Architectures that multiply by the embeddings themselves, without loading them as the output's."""

OUTPUT_WITHOUT_USE = frozenset(("gemma-embedding", "t5encoder"))
"""Architectures that load the embeddings as the output's, though no graph multiplies by them."""

LOADED_TWICE = frozenset(("codeshell", "gemma3n", "gemma4"))
"""Architectures that load the tied weight as two tensors, the output's first, even in one buffer type."""

_NORM_OF_OUTPUT = {("lfm2", "token_embd_norm"), ("lfm2moe", "token_embd_norm")}
_USED_BY = {("ssm_a", Op.MUL)}
"""Names of the table that some architectures use with another op: the node tells."""


class Weight(NamedTuple):
    """A weight's place in the model: `base` is its name without layer and suffix, `il` the number of its layer."""

    base: str
    suffix: str
    kind: LayerKind
    il: int


class _Info(NamedTuple):
    """llm_tensor_info: the layer that a weight is placed with, and the op that a buffer type is tested with."""

    kind: LayerKind
    op: Op


@cache
def _infos() -> dict[str, _Info]:
    text = files("ggmltool.data").joinpath("llama_tensors.toml").read_text("utf-8")
    kinds: dict[LayerKind, dict[str, list[str]]] = tomllib.loads(text)  # type: ignore[assignment]
    return {name: _Info(kind, Op[op]) for kind, ops in kinds.items() for op, names in ops.items() for name in names}


def weight_of(name: str, architecture: str = "") -> Weight:
    """What the name of a weight says, in models of this architecture ("": of most).

    >>> weight_of("blk.3.ffn_up.weight"), weight_of("enc.output_norm.weight").kind
    (Weight(base='ffn_up', suffix='weight', kind='repeating', il=3), 'output')
    >>> weight_of("token_embd_norm.weight").kind, weight_of("token_embd_norm.weight", "lfm2").kind
    ('repeating', 'output')
    """
    block = _BLOCK.search(name)
    stage = None if block else _STAGE.search(name)
    rest = name[block.end() :] if block else re.sub(r"^(enc|dec)\.", "", _STAGE.sub(r"\1.", name))
    base, suffix = rest, ""
    for end in ("weight", "bias", "scale", "input_scale"):
        if rest.endswith(f".{end}"):
            base, suffix = rest[: -len(end) - 1], end
    if block:
        return Weight(base, suffix, "repeating", int(block[1]))
    if stage:
        return Weight(base, suffix, "repeating", int(stage[2]))
    info = _infos().get(base)
    kind: LayerKind = info.kind if info else "repeating"
    if (architecture, base) in _NORM_OF_OUTPUT:
        kind = "output"
    return Weight(base, suffix, kind, 0 if kind == "repeating" else -1)


def tested_op(weight: Weight, used_by: int | None) -> Op:
    """The op that llama.cpp tests a buffer type with, for a name that it knows; else the op `used_by` that uses it."""
    info = _infos().get(weight.base)
    if info is None:
        op = Op.MUL if weight.base.endswith(("norm", "norm_1", "norm_2")) else Op.MUL_MAT
        if used_by in (Op.MUL, Op.ADD, Op.MUL_MAT, Op.MUL_MAT_ID, Op.GET_ROWS) and weight.suffix != "bias":
            op = Op(used_by)
    else:
        op = Op(used_by) if used_by is not None and (weight.base, used_by) in _USED_BY else info.op
    if weight.suffix == "bias":
        return Op.ADD_ID if op is Op.MUL_MAT_ID else Op.ADD
    return op


def layer_of_node(name: str) -> int | None:
    """The layer of a node by the number that llama.cpp's names end with; None if there is none.

    >>> layer_of_node("Qcur-12"), layer_of_node("Qcur-12 (view)"), layer_of_node("result_norm")
    (12, 12, None)
    """
    found = _LAYER_OF_NODE.search(name)
    return int(found[1]) if found else None


def layer_of_cache(name: str) -> int | None:
    """The layer of a tensor of the KV cache or the recurrent state, or of a view of it.

    >>> layer_of_cache("cache_k_l7"), layer_of_cache("cache_k_l7 (view)"), layer_of_cache("cache")
    (7, 7, None)
    """
    found = _LAYER_OF_CACHE.search(name)
    return int(found[1]) if found else None


_BATCH = 512
"""Tokens of the op that a buffer type is tested with."""
_SEQUENCES = 3


class Hparams(NamedTuple):
    """What the test needs to know of the model: experts that a token uses, heads and their size, the state's size."""

    n_expert_used: int = 1
    n_embd_head: int = 64
    n_head: int = 1
    ssm_d_state: int = 1
    ssm_head_dim: int = 1
    ssm_n_group: int = 1


def _tensor(type: DType, *ne: int) -> Tensor:
    dims: Dims = (*ne, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
    return Tensor(type, dims, contiguous_nb(type, dims))


def _op(op: Op, ne: Sequence[int], *src: Tensor, type: DType = F32, op_params: tuple[int, ...] = ()) -> Tensor:
    t = _tensor(type, *ne)
    t.set_op(op, op_params, *src)
    return t


def _test(op: Op, w: Tensor, h: Hparams) -> Tensor:
    """The node that a buffer type is tested with, for a weight."""
    match op:
        case Op.GET_ROWS:
            type = I32 if w.type is I32 else F32
            return _op(op, (w.ne[0], _BATCH), w, _tensor(I32, _BATCH), type=type)
        case Op.MUL_MAT:
            x = _tensor(F32, w.ne[0], _BATCH, w.ne[2], w.ne[3])
            return _op(op, (w.ne[1], _BATCH, w.ne[2], w.ne[3]), w, x)
        case Op.MUL_MAT_ID:
            x, ids = _tensor(F32, w.ne[0], h.n_expert_used, _BATCH), _tensor(I32, h.n_expert_used, _BATCH)
            return _op(op, (w.ne[1], h.n_expert_used, _BATCH), w, x, ids)
        case Op.ADD | Op.MUL:
            return _op(op, w.ne, _tensor(F32, *w.ne), w)
        case Op.ADD_ID:
            ne = (w.ne[0], h.n_expert_used, _BATCH)
            return _op(op, ne, _tensor(F32, *ne), w, _tensor(I32, h.n_expert_used, _BATCH))
        case Op.DIV:
            return _op(op, (w.ne[0],), _tensor(F32, w.ne[0]), w)
        case Op.ROPE:
            ne = (h.n_embd_head, h.n_head, _BATCH)
            return _op(op, ne, _tensor(F32, *ne), _tensor(I32, _BATCH), w)
        case Op.SSM_CONV:
            x = _tensor(F32, w.ne[0] - 1 + _BATCH, w.ne[1], _SEQUENCES)
            return _op(op, (w.ne[1], _BATCH, _SEQUENCES), x, w)
        case Op.SSM_SCAN:
            d_state = h.ssm_d_state if w.ne[0] == 1 else w.ne[0]
            head, n_head, n = h.ssm_head_dim, w.ne[1], _BATCH * _SEQUENCES
            state = _tensor(F32, d_state, head, n_head, _SEQUENCES)
            x = _tensor(F32, head, n_head, _BATCH, _SEQUENCES)
            dt = _tensor(F32, n_head, _BATCH, _SEQUENCES)
            b, c = (_tensor(F32, d_state, h.ssm_n_group, _BATCH, _SEQUENCES) for _ in range(2))
            size = head * n_head * n + d_state * head * n_head * _SEQUENCES
            return _op(op, (size,), state, x, dt, w, b, c, _tensor(I32, _SEQUENCES), op_params=(1,))
        case Op.RWKV_WKV6:
            n = 123
            k, v, r, decay = (_tensor(F32, n, n, n) for _ in range(4))
            return _op(op, (n * n, n + n * n), k, v, r, w, decay, _tensor(F32, n, n, n, n))
        case Op.IM2COL:
            columns = h.n_embd_head * h.n_head
            x = _tensor(F32, columns, w.ne[1])
            return _op(op, (w.ne[0] * w.ne[1], columns - w.ne[0] + 1), w, x, type=F16, op_params=(1, 0, 0, 0, 1))
        case Op.SCALE:
            return _op(op, w.ne, w, type=w.type)
    raise KeyError(op)


def weight_buft_supported(device: Device, buft: BufferType, op: Op, type: DType, ne: Dims, hparams: Hparams) -> bool:
    """weight_buft_supported: whether `device` runs `op` with a weight of this shape that lies in `buft`."""
    w = Tensor(type, ne, contiguous_nb(type, ne))
    t = _test(op, w, hparams)
    if buft.ops is not None and t.src[0] is not w:
        return False
    w.buffer = Buffer(buft, 0, AddressSpace())
    return device.supports_op(t)
