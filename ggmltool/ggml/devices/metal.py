"""The Metal device: its ops and their conditions, what its tensors take, which ops it offloads, and the
order in which it runs a split.

From ggml 0.20.2, src/ggml-metal: ggml_metal_device_supports_op (ggml-metal-device.m),
ggml_backend_metal_buffer_type_get_alloc_size, ggml_backend_metal_device_offload_op (ggml-metal.cpp), what is behind
tensors (ggml-metal-ops.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ggmltool.ggml.buffer import AllocSize, BufferType
from ggmltool.ggml.device import Keep, OpRule, UseCount
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices.conditions import RESULT, optional, source, word
from ggmltool.ggml.devices.op_rules import COL2IM_1D, NO_KERNEL, PADS_WITH_ZEROS, copies, writes_rows
from ggmltool.ggml.devices.profile import ExtraBuft, Hardware, Profile, SizeFacts
from ggmltool.ggml.devices.unsupported import aborts
from ggmltool.ggml.dtypes import BF16, F16, F32, I32, I64, TYPES
from ggmltool.ggml.op import EMPTY_OPS, Op
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor, are_same_shape, nelements
from ggmltool.ggml.version import pad

FAMILY = "Metal"

FEATURES = ("bfloat", "simdgroup_mm", "simdgroup_reduction")
"""What Apple's own GPUs have from the M1 on; bfloat needs Metal 3."""

HEAD_SIZES = (32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576)
KV_TYPES = r.types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1")
_TO_FLOAT = r.types("f32 f16")
_COPIES = {
    F32: r.types("f32 f16 bf16 q8_0 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 iq4_nl tq2_0 i32"),
    F16: _TO_FLOAT,
    BF16: r.types("f32 bf16"),
    I32: r.types("f32 i32"),
} | dict.fromkeys(r.types("q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 tq2_0"), _TO_FLOAT)
_SET_ROWS = {F16: r.types("f16"), F32: r.types("f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl tq2_0")}


def _four_connections(*rules: r.Rule) -> r.Rule:
    return r.saying("there are not 4 hyper-connections", r.all_of(*rules))


RULES: dict[int, r.Rule] = r.by_op(
    {
        "SCALE FILL CLAMP SQR SQRT SIN COS LOG UNARY": r.all_of(r.contiguous_rows(0), r.f32_or_f16(0)),
        "SILU_BACK": r.all_of(r.f32(0, 1, RESULT), r.contiguous(0, 1, RESULT), r.same_shape(0, 1)),
        "GLU": r.all_of(r.contiguous(0, kind="from 1"), r.f32_or_f16(0)),
        "CONCAT": r.all_of(r.same_type(0, 1, RESULT), r.types_of(0, r.types("f32 f16 bf16 i8 i16 i32 i64"), NO_KERNEL)),
        "ADD SUB MUL DIV ADD_ID": r.all_of(r.contiguous_rows(0, 1), r.f32_or_f16(0), r.same_type(0, 1)),
        "ACC": r.all_of(r.contiguous_rows(0, 1), r.f32(0)),
        "CONV_TRANSPOSE_2D": r.all_of(r.contiguous(0, 1), r.f32_or_f16(0), r.f32(1, RESULT)),
        "COL2IM_1D": COL2IM_1D,
        "CONV_3D": r.all_of(r.contiguous(0, 1), r.f32_or_f16(0), r.f32(1)),
        "SUM ROLL": r.contiguous(0),
        "TRI SUM_ROWS CUMSUM MEAN SOFT_MAX GROUP_NORM L2_NORM NORM RMS_NORM": r.contiguous_rows(0),
        "COUNT_EQUAL": r.all_of(r.types_of((0, 1), I32), r.types_of(RESULT, I64)),
        "IM2COL": r.all_of(r.contiguous(1), r.f32(1), r.f32_or_f16(RESULT)),
        "CONV_2D": r.all_of(r.contiguous(0), r.f32(1, RESULT), r.f32_or_f16(0)),
        "CONV_2D_DW": r.all_of(r.f32(1, RESULT), r.f32_or_f16(0)),
        "UPSCALE POOL_2D PAD_REFLECT_1D TIMESTEP_EMBEDDING": r.f32(0),
        "POOL_1D": r.all_of(r.contiguous(0), r.f32(0)),
        "PAD": r.all_of(
            PADS_WITH_ZEROS, r.holds("it pads at the end only", lambda op: not any(word(op, i) for i in (0, 2, 4, 6)))
        ),
        "LEAKY_RELU": r.f32_or_f16(0),
        "FLASH_ATTN_EXT": r.all_of(
            r.among(0, "ne0", *HEAD_SIZES), r.same_type(1, 2), r.types_of(1, KV_TYPES, NO_KERNEL)
        ),
        "LIGHTNING_INDEXER": r.all_of(
            r.among(0, "ne0", 128),
            r.among(0, "ne1", 64),
            r.types_of(3, F16),
            r.types_of(1, KV_TYPES, NO_KERNEL),
            r.f32(0, 2, RESULT),
            r.contiguous_rows(0, 1, 2, 3),
        ),
        "DSV4_HC_COMB": r.all_of(
            r.f32(0, 1, 2, RESULT),
            _four_connections(r.among((0, 2), "ne0", 24), r.at_least(1, "ne0", 3)),
            r.contiguous_rows(0, 1, 2),
        ),
        "DSV4_HC_PRE": r.all_of(
            r.f32(0, 1, RESULT),
            _four_connections(r.among(0, "ne1", 4), r.among(1, "ne0", 4)),
            r.contiguous_rows(0, 1),
        ),
        "DSV4_HC_POST": r.all_of(
            r.f32(0, 1, 2, 3, RESULT),
            _four_connections(r.among((1, 3), "ne1", 4), r.among((2, 3), "ne0", 4)),
            r.contiguous_rows(0, 1, 2, 3),
        ),
        "GATED_DELTA_NET": r.multiple(2, "ne0", 32),
        "SOLVE_TRI MUL_MAT MUL_MAT_ID GET_ROWS": r.not_types(0, TYPES["nvfp4"], NO_KERNEL),
        "SET CPY DUP CONT": copies(_COPIES),
        "SET_ROWS": writes_rows(_SET_ROWS),
        "REPEAT CONV_TRANSPOSE_1D ARGMAX ROPE ROPE_BACK ARGSORT TOP_K ARANGE SSM_SCAN SSM_CONV RWKV_WKV6 RWKV_WKV7 "
        "DIAG OPT_STEP_ADAMW OPT_STEP_SGD": r.ALWAYS,
    }
)
"""All that Metal runs, on hardware that has every feature."""

_NEEDS_REDUCTION = r.ops(
    "SUM SUM_ROWS CUMSUM MEAN SOFT_MAX GROUP_NORM L2_NORM COUNT_EQUAL ARGMAX NORM RMS_NORM DSV4_HC_COMB DSV4_HC_PRE "
    "DSV4_HC_POST SSM_SCAN SSM_CONV GATED_DELTA_NET SOLVE_TRI MUL_MAT MUL_MAT_ID OPT_STEP_ADAMW OPT_STEP_SGD"
)
_NEEDS_MATRICES = r.ops("FLASH_ATTN_EXT LIGHTNING_INDEXER")

WITHOUT: dict[str, r.Rule] = {
    "bfloat": r.not_types((RESULT, 0, 1, 2), BF16, "which this GPU has not"),
    "simdgroup_reduction": r.holds(
        "this GPU cannot reduce over a simdgroup, which {op} needs",
        lambda op: op.op not in _NEEDS_REDUCTION,
    ),
    "simdgroup_mm": r.holds(
        "this GPU has no matrices of a simdgroup, which {op} needs",
        lambda op: op.op not in _NEEDS_MATRICES,
    ),
}
"""What a GPU without a feature asks of every op."""


def hardware_limits(_: BufferType, hardware: Hardware) -> OpRule | None:
    """What a GPU that lacks features asks of every op; None for one that has them all."""
    return without(hardware, WITHOUT)


def without(hardware: Hardware, asks: Mapping[str, r.Rule]) -> OpRule | None:
    """What `asks`, by feature, is asked of every op on a GPU that has not all of these features."""
    missing = [rule for feature, rule in asks.items() if feature not in hardware.features]
    return r.all_of(*missing).ask if missing else None


def batch_size(op: Tensor) -> int:
    """The batch size by which Metal offloads an op: products only (-1: never)."""
    if op.op == Op.MUL_MAT:
        return op.ne[1]
    return op.ne[2] if op.op == Op.MUL_MAT_ID else -1


_PADDED_KEYS = 64
_WORKGROUPS = 32
_MAX_ROWS = 32
_VEC_MAX_ROWS = 20


def alloc_size(_: SizeFacts) -> AllocSize:
    """ggml_backend_metal_buffer_type_get_alloc_size: room behind some results for what their kernels leave there."""
    return _size_of


_TAKES_MORE = r.ops("MUL_MAT_ID FLASH_ATTN_EXT CUMSUM ARGSORT TOP_K")


def sizes(attention: Callable[[Tensor], int], product: int = 0) -> AllocSize:
    """The bytes that a tensor takes, given the room behind FLASH_ATTN_EXT, and behind MUL_MAT_ID besides its lists."""

    def size_of(t: Tensor) -> int:
        if t.op not in _TAKES_MORE:
            return t.nbytes
        if t.op == Op.MUL_MAT_ID:
            experts, tokens = source(t, 0).ne[2], source(t, 2).ne[1]
            return t.nbytes + 4 * experts + 4 * experts * tokens + product
        if t.op == Op.FLASH_ATTN_EXT:
            return t.nbytes + attention(t)
        return 8 * nelements(source(t, 0)) if t.op == Op.TOP_K else 2 * t.nbytes

    return size_of


def attention_room(t: Tensor, k_row: int, v_row: int) -> int:
    """Room for padded keys and values, whose rows take so many bytes, for the blocks of the mask, and for the results
    of workgroups.
    """
    q, k, v, mask = source(t, 0), source(t, 1), source(t, 2), optional(t, 3)
    padded = k_row * k.ne[2] * k.ne[3] + v_row * v.ne[2] * v.ne[3]
    blocks = 0
    if mask is not None:
        padded += 2 * mask.ne[1] * mask.ne[2] * mask.ne[3]
        rows, keys = (1, 32) if takes_vectors(t) else (8, 64)
        blocks = pad(-(-mask.ne[0] // keys) * -(-q.ne[1] // rows) * mask.ne[2] * mask.ne[3], 32)
    results = min(q.ne[1], _MAX_ROWS) * q.ne[2] * q.ne[3] * _WORKGROUPS * (v.ne[0] + 2)
    return _PADDED_KEYS * padded + blocks + 4 * results


def takes_vectors(t: Tensor) -> bool:
    """ggml_metal_op_flash_attn_ext_use_vec: few queries, of a head size that the vector kernel has."""
    q = source(t, 0)
    return q.ne[1] < _VEC_MAX_ROWS and q.ne[0] % 32 == 0


def extra_bufts(size_of: AllocSize) -> tuple[ExtraBuft, ...]:
    """Memory that only the GPU sees, and memory of the host (a mapped model file) that it takes over."""
    return tuple(
        ExtraBuft(name, FAMILY, max_size=None, alignment=None, alloc_size=size_of, alloc_more="as the device's own")
        for name in ("{device}_Private", "{device}_Mapped")
    )


_size_of = sizes(lambda t: attention_room(t, source(t, 1).nb[1], source(t, 2).nb[1]))

EXTRA = extra_bufts(_size_of)


_MAX_FUSE = 16
_LOOK_AHEAD = 64

_STARTS_A_GROUP = r.ops("ADD NORM RMS_NORM")
_JOINS_A_GROUP = r.ops("ADD MUL NORM RMS_NORM")
_MAY_BE_PASSED = frozenset(EMPTY_OPS) | r.ops(
    "MUL_MAT MUL_MAT_ID ROPE NORM RMS_NORM GROUP_NORM L2_NORM SUM_ROWS SSM_CONV SSM_SCAN CLAMP TRI DIAG MUL ADD SUB "
    "DIV GLU SCALE UNARY GET_ROWS SET_ROWS SET CPY CONT REPEAT"
)
"""Ops that may move, and that others may move in front of."""


class Range(NamedTuple):
    """The memory of a tensor: bytes [first, last) of what `of` names: a buffer, or a tensor without memory itself."""

    of: int
    first: int
    last: int


class KernelGroup(NamedTuple):
    """Nodes that one kernel computes: the memory that they read, and that they write."""

    nodes: list[Tensor]
    reads: list[Range]
    writes: list[Range]

    @property
    def is_empty(self) -> bool:
        return self.nodes[0].op in EMPTY_OPS


class _Ranges:
    """ggml_mem_ranges: memory that is read and written by nodes that may run at the same time."""

    def __init__(self) -> None:
        self._reads: dict[int, list[Range]] = {}
        self._writes: dict[int, list[Range]] = {}

    def clear(self) -> None:
        self._reads.clear()
        self._writes.clear()

    def add(self, group: KernelGroup) -> None:
        for read in group.reads:
            self._reads.setdefault(read.of, []).append(read)
        for written in group.writes:
            self._writes.setdefault(written.of, []).append(written)

    def is_free_for(self, group: KernelGroup) -> bool:
        """Whether a group reads nothing that is written, and writes nothing that is read or written."""
        if self._writes and any(_meets(self._writes.get(read.of), read) for read in group.reads):
            return False
        return not any(_meets(self._reads.get(w.of), w) or _meets(self._writes.get(w.of), w) for w in group.writes)


def _meets(ranges: list[Range] | None, one: Range) -> bool:
    # As in ggml, a range that ends where another begins counts as meeting it, seen from the first of the two.
    return ranges is not None and any(one.first < other.last and one.last >= other.first for other in ranges)


def graph_optimize(nodes: list[Tensor], use_count: UseCount, _: Keep) -> list[Tensor]:
    """ggml_graph_optimize of the Metal backend: the nodes of a split in the order Metal runs them.

    Nodes that a kernel can fuse stay together.
    """
    return reorder(_groups(nodes, use_count))


def reorder(groups: list[KernelGroup]) -> list[Tensor]:
    """ggml_metal_graph_optimize_reorder: where a group has to wait for one before it, groups further down that need
    not wait are pulled in front of it.
    """
    out: list[Tensor] = []
    used = bytearray(len(groups))
    running, skipped = _Ranges(), _Ranges()
    for i, group in enumerate(groups):
        if used[i]:
            continue
        if not group.is_empty and not running.is_free_for(group):
            skipped.clear()
            skipped.add(group)
            for k in range(i + 1, min(i + _LOOK_AHEAD, len(groups))):
                later = groups[k]
                if used[k]:
                    continue
                if later.nodes[0].op not in _MAY_BE_PASSED:
                    break
                if (later.is_empty or running.is_free_for(later)) and skipped.is_free_for(later):
                    running.add(later)
                    out += later.nodes
                    used[k] = 1
                else:
                    skipped.add(later)
            running.clear()
        running.add(group)
        out += group.nodes
    return out


def _groups(nodes: list[Tensor], use_count: UseCount) -> list[KernelGroup]:
    out = []
    i = 0
    while i < len(nodes):
        n = _fusible(nodes, i, use_count) if nodes[i].op in _STARTS_A_GROUP else 1
        members = nodes[i : i + n]
        reads = [memory_of(s) for node in members for s in node.src if s is not None]
        out.append(KernelGroup(members, reads, [memory_of(members[-1])]))
        i += n
    return out


def _fusible(nodes: list[Tensor], i: int, use_count: UseCount) -> int:
    """How many nodes from `i` on one kernel may compute (ggml_can_fuse over the longest run of such ops)."""
    n = 0
    while i + n < len(nodes) and n < _MAX_FUSE:
        node = nodes[i + n]
        if n and not (node.op in _JOINS_A_GROUP and _hands_on(nodes[i + n - 1], node, use_count)):
            break
        if not node.flags & FLAG_COMPUTE:
            break
        n += 1
    return max(n, 1)


def _hands_on(before: Tensor, node: Tensor, use_count: UseCount) -> bool:
    """Whether nobody but `node` needs the result before it, so that it never has to be written."""
    if before.view_src is not None or before.flags & FLAG_OUTPUT or use_count(before) != 1:
        return False
    return before in node.src[:2] and are_same_shape(node, before)


def memory_of(t: Tensor) -> Range:
    """The memory of a tensor, or of what it is a view of, with all that it takes there."""
    root = t if t.view_src is None else t.view_src
    if root.buffer is None:
        return Range(id(root), 0, 1024)
    return Range(id(root.buffer), root.data, root.data + root.buffer.buft.get_alloc_size(root))


PROFILE = Profile(
    "Metal",
    alignment=32,
    others=False,
    rules=RULES,
    check=hardware_limits,
    alloc_size=alloc_size,
    offload_min_batch=32,
    batch_size=batch_size,
    events=True,
    copies_async=True,
    graph_optimize=graph_optimize,
    extra=EXTRA,
    features=FEATURES,
    has=frozenset(FEATURES),
    caps=frozenset(("async", "buffer_from_host_ptr", "mmap_support")),
    alloc_more="room behind MUL_MAT_ID, FLASH_ATTN_EXT, CUMSUM, ARGSORT and TOP_K for what their kernels need",
    unsupported=aborts("ggml_metal_op_encode_impl", "unsupported op", "refused"),
)
