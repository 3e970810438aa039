"""The Vulkan device with a current driver on a discrete GPU: its ops and their conditions, and the
order in which it runs a split.

From ggml 0.20.2, src/ggml-vulkan/ggml-vulkan.cpp: ggml_backend_vk_device_supports_op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Keep, OpRule
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import op_rules as o
from ggmltool.ggml.devices.conditions import RESULT, source, word
from ggmltool.ggml.devices.profile import Hardware, Profile, pinned
from ggmltool.ggml.devices.unsupported import passes_over
from ggmltool.ggml.dtypes import BF16, F16, F32, I32, DType
from ggmltool.ggml.op import EMPTY_OPS, Op
from ggmltool.ggml.tensor import MAX_SRC, Tensor

BLOCK_SIZE = 1 << 30
"""GGML_VK_SUBALLOCATION_BLOCK_SIZE: the largest buffer in bytes, where the driver allows as much."""

MAX_TENSOR_SIZE = (1 << 32) - 1
"""maxStorageBufferRange of nearly every driver."""

_SHARED_MEMORY = 32 << 10
_WORKGROUP = 1024

MUL_MAT_TYPES = r.types(
    "f32 f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs "
    "iq3_s iq4_xs iq4_nl mxfp4 nvfp4 tq2_0"
)
"""Weights that it multiplies."""

KV_TYPES = r.types("f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl")
"""Keys and values that attention reads."""

_COPY_TYPES = r.types("f16 bf16 q1_0 q2_0 q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl")
_COPIES = dict.fromkeys(_COPY_TYPES, r.types("f32")) | {
    F32: _COPY_TYPES | {F32, I32},
    F16: r.F32_OR_F16,
    I32: r.types("f32"),
}
_SET_ROWS = dict.fromkeys(r.F32_OR_F16, _COPY_TYPES | {F32})
_ADD1 = {F32: r.types("f32"), F16: r.F32_OR_F16}
_BY_SIZE = {
    type: frozenset(other for other in r.ALL_TYPES if other.type_size == type.type_size)
    for type in r.ALL_TYPES
    if type.type_size in (2, 4)
}
_EVEN = frozenset(type for type in r.ALL_TYPES if type.type_size % 2 == 0)


def _has_dense_rows(t: Tensor) -> bool:
    """ggml_vk_dim01_contiguous."""
    nb0, nb1, nb2, nb3 = t.nb
    dense = nb0 == t.type.type_size and nb1 == nb0 * t.ne[0] // t.type.block_size
    return dense and (t.ne[3] == 1 or nb3 == nb2 * t.ne[2])


def _dense_rows(i: int) -> r.Rule:
    return r.on(i, f"rows of source {i} have gaps", _has_dense_rows)


def product(batch: int, weights: frozenset[DType] = MUL_MAT_TYPES) -> r.Rule:
    """MUL_MAT or MUL_MAT_ID by weights of these types; ne[3] of source `batch` is that of source 1."""
    return r.all_of(
        o.multiplies_by(dict.fromkeys(weights, r.ALL_TYPES) | {BF16: r.ALL_TYPES - {F16}}),
        o.same_ne(3, batch, 1),
        r.unless(r.floats(0), _dense_rows(0)),
        r.unless(r.f32_or_f16(1), _dense_rows(1)),
    )


def _convolution(of: int, made: int) -> r.Rule:
    """The kernel's channels are those of the result and of source 1; dimensions of the kernel."""

    def test(op: Tensor) -> bool:
        kernel = source(op, 0)
        return kernel.ne[made] == op.ne[2] and kernel.ne[of] == source(op, 1).ne[2]

    channels = r.holds("the kernel's channels are not those of source 1 and the result", test)
    return r.all_of(_CONVOLVED, channels, _ALL_WHOLE)


def _fits_into_shared_memory(op: Tensor) -> bool:
    return 4 * (source(op, 0).ne[0] + source(op, 1).ne[0]) <= _SHARED_MEMORY


def _smooths_bilinear_only(op: Tensor) -> bool:
    mode = word(op, 0)
    return not mode & 512 or mode & 255 == 1


_AS_IT_IS = r.all_of(
    r.types_of(0, _EVEN, "of an odd number of bytes"), r.unless(r.not_types(0, r.QUANTIZED), r.contiguous(0, RESULT))
)
_F32_WHOLE = r.all_of(r.contiguous(0), r.f32(0))
_CONVOLVED = r.all_of(r.f32_or_f16(0), r.f32(1, RESULT))
_ALL_WHOLE = r.contiguous(0, 1, RESULT)
_SAME_HALF_OR_FULL = r.all_of(r.f32_or_f16(RESULT), r.same_type(0, RESULT))
_FLASH_ATTN = r.all_of(
    r.multiple((1, 2), "ne0", 8),
    r.f32(4, 0, RESULT),
    r.types_of(3, F16),
    r.types_of((1, 2), KV_TYPES, o.NO_KERNEL),
    r.any_of(r.types_of((1, 2), BF16), r.not_types((1, 2), BF16)),
)

RULES: dict[int, r.Rule] = r.by_op(
    {
        "UNARY": _SAME_HALF_OR_FULL,
        "GLU": r.all_of(r.same_type(0, 1), _SAME_HALF_OR_FULL),
        "MUL_MAT": product(0),
        "MUL_MAT_ID": product(2),
        "FLASH_ATTN_EXT": _FLASH_ATTN,
        "GET_ROWS": o.takes_rows_of(MUL_MAT_TYPES | {I32}),
        "GET_ROWS_BACK REPEAT_BACK NORM L2_NORM": r.f32(0, RESULT),
        "SET_ROWS": r.all_of(o.writes_rows(_SET_ROWS), o.ROW_NUMBERS),
        "CPY DUP CONT": r.all_of(
            r.any_of(o.copies(_COPIES, to=1), r.all_of(r.same_type(0, 1), _AS_IT_IS)), r.unless(r.present(1), _AS_IT_IS)
        ),
        "REPEAT": r.type_pairs(0, RESULT, _BY_SIZE, "it repeats elements of 2 or 4 bytes, no {type0} to {type}"),
        "ROPE": r.contiguous_rows(0, RESULT),
        "GROUP_NORM": r.contiguous(0),
        "ADD SUB MUL DIV": r.f32_or_f16(0, 1, RESULT),
        "ADD_ID": r.all_of(r.f32(0, 1, RESULT), r.types_of(2, I32)),
        "SILU_BACK RMS_NORM_BACK OPT_STEP_ADAMW OPT_STEP_SGD SCALE DIAG_MASK_INF ARGMAX POOL_1D POOL_2D": _F32_WHOLE,
        "SQR SQRT SIN COS CLAMP LEAKY_RELU LOG TRI DIAG": r.all_of(r.f32_or_f16(0), r.same_type(0, RESULT)),
        "OUT_PROD": r.all_of(r.contiguous(0, 1), r.f32(0, 1, RESULT)),
        "ARGSORT": r.contiguous(0, RESULT),
        "TOP_K": r.all_of(
            r.contiguous(0, RESULT),
            r.saying("it finds the first 1023 at most, not {ne[0]}", r.at_most(RESULT, "ne0", 1023)),
        ),
        "UPSCALE": r.all_of(r.holds("it smooths only bilinear scaling", _smooths_bilinear_only), r.f32(0)),
        "ACC": r.f32(0, 1, RESULT),
        "SET": r.all_of(r.types_of(0, (F32, I32)), r.same_type(0, 1, RESULT)),
        "CONCAT": r.all_of(
            r.same_type(0, 1, RESULT),
            r.unless(r.not_types(0, r.QUANTIZED), r.contiguous_rows(0, 1, RESULT)),
        ),
        "ADD1": r.type_pairs(0, 1, _ADD1, "it adds no {type1} to {type0}"),
        "ARANGE": r.f32(RESULT),
        "FILL": r.f32_or_f16(RESULT),
        "PAD ROLL TIMESTEP_EMBEDDING SSM_CONV": r.f32(0),
        "SOFT_MAX": r.all_of(_F32_WHOLE, r.f32_or_f16(1)),
        "SOFT_MAX_BACK": r.all_of(r.contiguous(0, 1), r.f32(0, 1)),
        "SUM SUM_ROWS MEAN CUMSUM": r.all_of(r.f32(0), r.contiguous_rows(0)),
        "SOLVE_TRI": r.all_of(
            r.f32(0, RESULT),
            r.at_most(1, "ne0", _WORKGROUP),
            r.holds("a matrix of {ne0[0]} does not fit into shared memory", _fits_into_shared_memory),
        ),
        "COUNT_EQUAL": r.all_of(r.contiguous(0, 1), r.types_of((0, 1), I32)),
        "IM2COL": r.all_of(r.contiguous(1), r.f32(1), r.f32_or_f16(RESULT)),
        "IM2COL_3D": r.all_of(r.f32(1), r.f32_or_f16(RESULT)),
        "CONV_2D_DW": r.all_of(r.f32_or_f16(0), r.f32(1)),
        "GATED_LINEAR_ATTN": r.all_of(r.f32(0, RESULT), r.among(0, "ne0", 64)),
        "GATED_DELTA_NET": r.all_of(
            r.among(2, "ne0", 16, 32, 64, 128), r.present(0, 1, 2, 3, 4, 5), r.f32(0, 1, 2, 3, 4, 5, RESULT)
        ),
        "SSM_SCAN": r.all_of(
            r.f32(0, RESULT),
            r.not_types((1, 2, 3, 4, 5), r.QUANTIZED),
            r.types_of(6, I32),
            r.present(3),
            r.among(3, "nb1", 4),
            o.MAMBA_2_STATE,
        ),
        "CONV_TRANSPOSE_1D": r.f32(0, 1),
        "COL2IM_1D": o.COL2IM_1D,
        "CONV_2D": _convolution(of=2, made=3),
        "CONV_TRANSPOSE_2D": _convolution(of=3, made=2),
        "CONV_3D": r.all_of(_CONVOLVED, _ALL_WHOLE),
        "ROPE_BACK RMS_NORM RWKV_WKV6 RWKV_WKV7": r.ALWAYS,
    }
)
"""All that Vulkan runs."""

BY_ADDRESS = r.ops("IM2COL IM2COL_3D")
"""Ops that get addresses, which reach all of a buffer."""

_TOO_LARGE = tuple(f"source {i} is larger than the largest buffer that a shader can see" for i in range(MAX_SRC))


def within(limit: int) -> OpRule:
    """No tensor of an op is larger than so many bytes."""

    def check(op: Tensor) -> str | None:
        for s in op.src:
            if s is not None and s.nbytes > limit:
                return _TOO_LARGE[op.src.index(s)]
        return "the result is larger than the largest buffer that a shader can see" if op.nbytes > limit else None

    return check


def size_limits(_: BufferType, hardware: Hardware) -> OpRule:
    """A shader sees buffers up to a size; no tensor of an op may be larger."""
    fits = within(hardware.max_tensor_size)
    return lambda op: None if op.op in BY_ADDRESS else fits(op)


_LOOK_AHEAD = 20
FOLLOWERS = 15
"""How far from a node those are looked for that continue it."""

_ROPE_FOLLOWERS = 10

_O = Op
KEPT: tuple[tuple[int, ...], ...] = (
    (
        _O.SOFT_MAX, _O.RESHAPE, _O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SUM_ROWS, _O.CLAMP, _O.DIV,
        _O.RESHAPE,
    ),
    (
        _O.UNARY, _O.RESHAPE, _O.ADD, _O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SUM_ROWS, _O.CLAMP, _O.DIV,
        _O.RESHAPE,
    ),
    (
        _O.UNARY, _O.SQRT, _O.RESHAPE, _O.ADD, _O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SUM_ROWS, _O.CLAMP,
        _O.DIV, _O.RESHAPE,
    ),
    (_O.SOFT_MAX, _O.RESHAPE, _O.ARGSORT, _O.VIEW, _O.GET_ROWS),
    (_O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SOFT_MAX, _O.RESHAPE),
    (_O.MUL, _O.SIN, _O.SQR, _O.MUL, _O.ADD),
)  # fmt: skip
"""Runs of ops that one shader computes (a choice of experts, the snake activation): they are never taken apart."""


def by_first(patterns: Iterable[tuple[int, ...]]) -> dict[int, list[tuple[int, ...]]]:
    """Runs of ops by the op that they begin with."""
    out: dict[int, list[tuple[int, ...]]] = {}
    for pattern in patterns:
        out.setdefault(pattern[0], []).append(pattern)
    return out


_KEPT_BY_FIRST = by_first(KEPT)

FUSED: frozenset[tuple[int, int]] = frozenset(
    (
        (Op.RMS_NORM, Op.MUL),
        (Op.MUL_MAT, Op.ADD),
        (Op.MUL_MAT_ID, Op.ADD_ID),
        (Op.MUL_MAT_ID, Op.MUL),
        (Op.ADD, Op.ADD),
        (Op.SSM_CONV, Op.ADD),
        (Op.SSM_CONV, Op.UNARY),
    )
)
"""Ops that one shader computes if they stand side by side, though the second needs the first."""


def graph_optimize(nodes: list[Tensor], _: Callable[[Tensor], int], __: Keep) -> list[Tensor]:
    """ggml_vk_graph_optimize: the nodes of a split in the order Vulkan runs them."""
    return Ordering(nodes).run()


class Ordering:
    """The nodes, which of them have their place already (`used`), and the order so far (`out`).

    `kept` are the runs that are never taken apart, `fused` the pairs that stand side by side, `stored` the ops whose
    results a shader also sets rows to. `ids` tell the nodes apart, `roots` the tensors whose memory they have,
    `sources` are the ids of what they need.
    """

    kept: Mapping[int, Sequence[tuple[int, ...]]] = _KEPT_BY_FIRST
    fused: frozenset[tuple[int, int]] = FUSED
    stored: frozenset[int] = frozenset((int(Op.ROPE),))

    def __init__(self, nodes: list[Tensor]) -> None:
        self.nodes = nodes
        self.n = len(nodes)
        self.used = bytearray(self.n)
        self.ids = [id(node) for node in nodes]
        self.roots = [id(node if node.view_src is None else node.view_src) for node in nodes]
        self.sources = [frozenset(id(s) for s in node.src if s is not None) for node in nodes]
        self.done: set[int] = set()
        self.out: list[Tensor] = []
        self.first = 0

    def run(self) -> list[Tensor]:
        while self.first < self.n:
            pattern = self.kept_at(self.first)
            if pattern:
                self.place_whole(pattern)
                continue
            taken = self._real_nodes()
            if self.nodes[taken[-1]].op != Op.ADD:
                # After an addition may come what is fused with it: no view may stand between.
                taken += self._views(taken)
            self._place(taken)
        return self.out[: self.n]

    def _place(self, indices: range | list[int]) -> None:
        for i in indices:
            self.out.append(self.nodes[i])
            self.done.add(id(self.nodes[i]))
            self.used[i] = 1
        while self.first < self.n and self.used[self.first]:
            self.first += 1

    def place_whole(self, pattern: tuple[int, ...]) -> None:
        """Place the run of ops with which the first node that is left begins."""
        self._place(range(self.first, self.first + len(pattern)))

    def kept_at(self, start: int) -> tuple[int, ...]:
        """The run of ops from `start` on that is not to be taken apart; () if there is none."""
        for pattern in self.kept.get(self.nodes[start].op, ()):
            if self.matches(pattern, start):
                return pattern
        return ()

    def matches(self, pattern: tuple[int, ...], start: int) -> bool:
        """Whether the nodes from `start` on are a run of these ops, none of which has its place."""
        n = len(pattern)
        if self.n - start < n or any(self.used[start : start + n]):
            return False
        return all(self.nodes[start + k].op == op for k, op in enumerate(pattern))

    def _window(self) -> range:
        return range(self.first + 1, min(self.first + _LOOK_AHEAD, self.n))

    def _real_nodes(self) -> list[int]:
        """The first node that is left, and those soon after it that need not wait for any node that is left."""
        nodes = self.nodes
        taken = [self.first]
        for j in self._window():
            if self.used[j] or nodes[j].op in EMPTY_OPS or self.is_kept(j):
                continue
            if self._waits(j, taken):
                continue
            taken.append(j)
            self.take_followers(j, taken)
        return taken

    def is_kept(self, j: int) -> bool:
        """Whether node `j` waits, since it belongs to what is not taken apart."""
        return bool(self.kept_at(j))

    def _waits(self, j: int, taken: list[int]) -> bool:
        """Whether node `j` needs one that is left and that it cannot be fused with."""
        fusible = self.fusible(j, taken)
        return any(c != fusible and self.needs(j, c) for c in range(self.first, j) if not self.used[c])

    def fusible(self, j: int, taken: list[int]) -> int:
        """The node before `j` with which it can be fused, -1 if that is none."""
        c = j - 1
        return c if c == taken[-1] and (self.nodes[c].op, self.nodes[j].op) in self.fused else -1

    def needs(self, j: int, c: int) -> bool:
        """Whether a node has another as a source, or both are in the memory of one tensor."""
        return self.ids[c] in self.sources[j] or self.roots[c] == self.roots[j]

    def _views(self, taken: list[int]) -> list[int]:
        """The views soon after the first node whose sources have their place, or get it now."""
        out: list[int] = []
        have = set(taken)
        for j in self._window():
            if self.used[j] or self.nodes[j].op not in EMPTY_OPS:
                continue
            left = (c for c in range(self.first, j) if not self.used[c] and c not in have)
            if not any(self.needs(j, c) for c in left):
                out.append(j)
                have.add(j)
        return out

    def take_followers(self, j: int, taken: list[int]) -> None:
        """Take what is fused with node `j` although other nodes stand between."""
        op, before = self.nodes[j].op, self.nodes[j - 1].op
        last = j
        if op == Op.MUL and before == Op.RMS_NORM:
            last = self.take(self.rope_of(j), taken, j)
        if self.nodes[last].op in self.stored:
            self.take_set_rows(last, taken)
        if (op == Op.ADD_ID and before == Op.MUL_MAT_ID) or (op == Op.ADD and before == Op.MUL_MAT):
            self.take(self.follower(j, Op.MUL if op == Op.ADD_ID else Op.ADD, True), taken, j)
        if op == Op.ADD and before == Op.SSM_CONV:
            self.take(self.follower(j, Op.UNARY, False), taken, j)

    def take(self, k: int | None, taken: list[int], otherwise: int) -> int:
        """Take node `k`, if there is one, else stay with another."""
        if k is None:
            return otherwise
        taken.append(k)
        self.used[k] = 1
        return k

    def follower(self, j: int, op: int, needs_other: bool) -> int | None:
        """A node of this op that continues `j`; its other source is there already, where it has to be."""
        for k in range(j + 1, min(j + FOLLOWERS, self.n)):
            node = self.nodes[k]
            if node.op == op and node.src[0] is self.nodes[j]:
                other = node.src[1] if needs_other else None
                if other is None or other.op == Op.NONE or id(other) in self.done:
                    return k
        return None

    def rope_of(self, j: int) -> int | None:
        """The rotation of what node `j` makes."""
        for k in range(j + 1, min(j + FOLLOWERS, self.n)):
            node = self.nodes[k]
            if node.op == Op.ROPE and node.src[0] is self.nodes[j]:
                others = [s for s in node.src[1:3] if s is not None]
                if all(s.op == Op.NONE for s in others):
                    return k
        return None

    def take_set_rows(self, made: int, taken: list[int]) -> None:
        """Take the view of what a node makes and the rows that are set to it, which one shader computes with it."""
        view: int | None = None
        for k in range(made + 1, min(made + _ROPE_FOLLOWERS, self.n)):
            node = self.nodes[k]
            if view is None:
                if node.op == Op.VIEW and node.src[0] is self.nodes[made]:
                    view = k
            elif node.op == Op.SET_ROWS and node.src[0] is self.nodes[view]:
                for i in (view, k):
                    taken.append(i)
                    self.used[i] = 1
                return


PROFILE = Profile(
    "Vulkan",
    alignment=64,
    max_size=BLOCK_SIZE,
    others=False,
    rules=RULES,
    check=size_limits,
    offload_min_batch=32,
    events=True,
    sets_async=True,
    graph_optimize=graph_optimize,
    extra=(pinned("Vulkan_Host", max_size=None, alignment=64, slack=32),),
    max_tensor_size=MAX_TENSOR_SIZE,
    caps=frozenset(("async", "host_buffer", "mmap_support")),
    unsupported=passes_over("ggml_vk_build_graph"),
)
