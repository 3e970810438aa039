"""What Vulkan of ggml 0.26 runs otherwise than that of 0.20.2, and what it asks of the hardware.

From llama.cpp b11549, ggml/src/ggml-vulkan/ggml-vulkan.cpp: ggml_backend_vk_device_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Keep, OpRule, UseCount
from ggmltool.ggml.devices import combinators as r
from ggmltool.ggml.devices import vulkan as before
from ggmltool.ggml.devices.conditions import RESULT, in_turn, name_of, word
from ggmltool.ggml.devices.op_rules import takes_rows_of
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.devices.vulkan import FOLLOWERS, Ordering, by_first
from ggmltool.ggml.dtypes import BF16, F16, F32, I32
from ggmltool.ggml.op import EMPTY_OPS, Op, UnaryOp
from ggmltool.ggml.releases.ggml_0_26.fusing import NO_F32_PRECISION, can_fuse, keep_until
from ggmltool.ggml.tensor import MAX_SRC, Tensor, can_repeat, is_contiguous_1, nelements, root_of

FEATURES = ("fp16", "subgroup_shuffle", "subgroup_arithmetic", "subgroup_16", "memory_model")
"""What drivers differ in: half-precision arithmetic, what the lanes of a subgroup do together, that a subgroup has 16
of them at least, and Vulkan's memory model.
"""

_TYPES = before.MUL_MAT_TYPES | r.types("tq1_0")
_INDEXED = (0, 1, 2, 3, RESULT)


def _single(operand: int) -> r.Rule:
    return r.on(operand, f"{name_of(operand)} has more than one element", lambda t: nelements(t) == 1)


def _product(batch: int) -> r.Rule:
    """MUL_MAT or MUL_MAT_ID: what is bf16 multiplies weights in bf16 only."""
    bf16_alone = r.any_of(r.types_of(0, BF16), r.not_types(1, BF16))
    return r.all_of(before.product(batch, _TYPES), bf16_alone)


def _in_elements(t: Tensor) -> bool:
    """Whether a shader can count a tensor's strides in elements."""
    size = t.type.type_size
    return t.nb[0] == size and all(n % size == 0 for n in t.nb)


_DSV4 = r.f32(*range(MAX_SRC), RESULT)

RULES: dict[int, r.Rule] = before.RULES | r.by_op(
    {
        "MUL_MAT": _product(0),
        "MUL_MAT_ID": r.all_of(NO_F32_PRECISION, _product(2)),
        "GET_ROWS": takes_rows_of(_TYPES | {I32}),
        "TOP_K": r.contiguous(0, RESULT),
        "PAD_REFLECT_1D": r.f32(0),
        "DSV4_HC_COMB": _DSV4,
        "DSV4_HC_PRE": r.all_of(_DSV4, r.among(0, "ne1", 4)),
        "DSV4_HC_POST": r.all_of(_DSV4, r.among(1, "ne1", 4)),
        "CROSS_ENTROPY_LOSS": r.all_of(
            r.contiguous(0, 1, RESULT), r.f32(0, 1, RESULT), r.same_shape(0, 1), _single(RESULT)
        ),
        "CROSS_ENTROPY_LOSS_BACK": r.all_of(
            r.contiguous(0, 1, 2, RESULT), r.f32(0, 1, 2, RESULT), _single(0), r.same_shape(1, 2, RESULT)
        ),
        "LIGHTNING_INDEXER": r.all_of(
            r.types_of(1, before.KV_TYPES),
            r.among(0, "ne0", 128),
            *(r.on(i, f"strides of {name_of(i)} are no multiples of an element", _in_elements) for i in _INDEXED),
        ),
    }
)
"""All that Vulkan runs, with a driver that has every feature."""


def _lacks(what: str, op: Op, rule: r.Rule | None = None) -> OpRule:
    """What a driver asks of an op that lacks something: that it is another op, or meets a rule."""
    ask = None if rule is None else rule.ask
    return lambda t: None if t.op != op or (ask is not None and ask(t) is None) else what


_WITHOUT: dict[str, tuple[OpRule, ...]] = {
    "fp16": (_lacks("{op} needs half-precision arithmetic, which this driver has not", Op.LIGHTNING_INDEXER),),
    "subgroup_shuffle": (
        _lacks("{op} shuffles the lanes of a subgroup, which this driver cannot", Op.FLASH_ATTN_EXT),
        _lacks("{op} shuffles the lanes of a subgroup, which this driver cannot", Op.DSV4_HC_COMB),
    ),
    "subgroup_arithmetic": (_lacks("{op} adds up the lanes of a subgroup, which this driver cannot", Op.CUMSUM),),
    "subgroup_16": (_lacks("{op} needs subgroups of 16 lanes, which this driver has not", Op.DSV4_HC_COMB),),
    "memory_model": (
        _lacks(
            "without Vulkan's memory model it sorts 1024 elements at most, not {ne[0]}",
            Op.ARGSORT,
            r.at_most(RESULT, "ne0", 1024),
        ),
    ),
}
"""What a driver without a feature asks of an op."""


def _misplaced(alignment: int) -> OpRule:
    """LIGHTNING_INDEXER takes no view that begins amid an aligned block."""
    reason = f"an operand of {{op}} begins at no multiple of {alignment} bytes"

    def check(op: Tensor) -> str | None:
        if op.op != Op.LIGHTNING_INDEXER:
            return None
        for t in (op, *op.src[:4]):
            if t is not None and (root_of(t).data + t.view_offs) % alignment:
                return reason
        return None

    return check


def limits(buft: BufferType, hardware: Hardware) -> OpRule:
    """What the hardware asks of every op: sizes, where operands begin, and features that it lacks."""
    seen = before.within(hardware.max_tensor_size)
    reached = before.within(max(hardware.max_tensor_size, before.MAX_TENSOR_SIZE))
    missing = [rule for name, rules in _WITHOUT.items() if name not in hardware.features for rule in rules]

    def sizes(op: Tensor) -> str | None:
        return reached(op) if op.op in before.BY_ADDRESS else seen(op)

    return in_turn([sizes, _misplaced(buft.alignment), *missing])


_O = Op
_CHOICE = (_O.GET_ROWS, _O.PERMUTE, _O.CONT, _O.CPY, _O.RESHAPE, _O.ADD, _O.TOP_K)
"""The choice of keys that sparse attention reads."""

_GATE = (_O.SCALE, _O.UNARY, _O.SCALE, _O.DSV4_HC_POST)
"""The gate of a hyper-connection."""

_SNAKE = before.KEPT[-1]
_EXPERTS = before.KEPT[:-1]
"""The choices of experts."""

_KEPT: tuple[tuple[int, ...], ...] = (
    *_EXPERTS,
    _SNAKE,
    _CHOICE,
    (_O.RMS_NORM, _O.MUL, _O.ADD, _O.MUL),
    (_O.RMS_NORM, _O.MUL, _O.ADD),
    (_O.RMS_NORM, _O.MUL, _O.ROPE, _O.VIEW, _O.SET_ROWS),
    (_O.RMS_NORM, _O.VIEW, _O.SET_ROWS),
    (_O.ROPE, _O.VIEW, _O.SET_ROWS),
    _GATE,
)
"""Runs of ops that one shader computes: they are never taken apart."""

_SIDE_BY_SIDE = before.FUSED - {(Op.RMS_NORM, Op.MUL)}
_WITH_PLACED_BETWEEN = frozenset(((Op.RMS_NORM, Op.MUL), (Op.UNARY, Op.MUL)))
"""Ops that one shader computes although views, or what has its place already, stand between them."""

_GATES = frozenset((UnaryOp.GELU, UnaryOp.SIGMOID, UnaryOp.SILU, UnaryOp.SOFTPLUS))
"""Functions that a shader computes together with a product of their result."""


def graph_optimize(nodes: list[Tensor], use_count: UseCount, keep: Keep) -> list[Tensor]:
    """ggml_vk_graph_optimize: the nodes of a split in the order Vulkan runs them.

    What the shader of a choice of experts, or of a gate, reads is kept until its last node.
    """
    return _Ordering(nodes, use_count, keep).run()


class _Ordering(Ordering):
    """As in 0.20.2, but nodes wait for what reads or writes their memory through any view."""

    kept = by_first(_KEPT)
    fused = _SIDE_BY_SIDE
    stored = frozenset((int(Op.ROPE), int(Op.RMS_NORM)))

    def __init__(self, nodes: list[Tensor], use_count: UseCount, keep: Keep) -> None:
        super().__init__(nodes)
        self._use_count = use_count
        self._keep = keep
        self._empty = [node.op in EMPTY_OPS for node in nodes]
        self._read = [frozenset(id(s.view_src or s) for s in node.src if s is not None) for node in nodes]

    def place_whole(self, pattern: tuple[int, ...]) -> None:
        last = self.first + len(pattern) - 1
        run = self.nodes[self.first : last + 1]
        if pattern in _EXPERTS:
            # The shader may scale the weights of the experts, too.
            scaled = last + 1 < self.n and self.nodes[last + 1].op == Op.SCALE
            keep_until(run, self.nodes[last + scaled], self._keep)
        elif pattern == _GATE:
            keep_until(run, self.nodes[last], self._keep)
        super().place_whole(pattern)

    def is_kept(self, j: int) -> bool:
        return bool(self.kept_at(j)) or any(
            self.matches(_CHOICE, start) for start in range(max(0, j - len(_CHOICE) + 1), j + 1)
        )

    def needs(self, j: int, c: int) -> bool:
        if super().needs(j, c):
            return True
        if self._empty[j] or self._empty[c]:
            return False
        return self.roots[c] in self._read[j] or self.roots[j] in self._read[c]

    def fusible(self, j: int, taken: list[int]) -> int:
        c = taken[-1]
        pair = (self.nodes[c].op, self.nodes[j].op)
        if pair in _WITH_PLACED_BETWEEN:
            return c if all(self.used[i] or self._empty[i] for i in range(c + 1, j)) else -1
        return super().fusible(j, taken)

    def take_followers(self, j: int, taken: list[int]) -> None:
        super().take_followers(j, taken)
        if self.nodes[j].op == Op.UNARY:
            self.take(self._gated(j), taken, j)

    def take_set_rows(self, made: int, taken: list[int]) -> None:
        view = stored = -1
        for k in range(made + 1, min(made + FOLLOWERS, self.n)):
            node = self.nodes[k]
            if self.used[k]:
                continue
            if view < 0:
                if node.op == Op.VIEW and node.src[0] is self.nodes[made]:
                    view = k
            elif node.op == Op.SET_ROWS and node.src[0] is self.nodes[view]:
                stored = k
                break
        if stored >= 0 and self._can_store(made, view, stored):
            self.take(view, taken, made)
            self.take(stored, taken, made)

    def _can_store(self, made: int, view: int, stored: int) -> bool:
        """Whether one shader computes a node and sets the rows to it, and these wait for nothing between."""
        three = [self.nodes[i] for i in (made, view, stored)]
        between = (c for c in range(made + 1, stored) if not self.used[c] and c != view and not self._empty[c])
        return can_fuse(three, three[2:], self._use_count) and not any(self.needs(stored, c) for c in between)

    def _gated(self, j: int) -> int | None:
        """The product of what a function makes with something that is there already."""
        for k in range(j + 1, min(j + FOLLOWERS, self.n)):
            node = self.nodes[k]
            if node.op != Op.MUL or all(s is not self.nodes[j] for s in node.src[:2]):
                continue
            other = node.src[1] if node.src[0] is self.nodes[j] else node.src[0]
            there = other is not None and (other.op == Op.NONE or id(other) in self.done)
            if there and _is_gate(self.nodes[j], node):
                return k
        return None


def _is_gate(function: Tensor, product: Tensor) -> bool:
    """ggml_vk_can_fuse_unary_mul."""
    one, two, of = product.src[0], product.src[1], function.src[0]
    other = two if one is function else one
    if one is None or other is None or of is None:
        return False
    alike = function.type in (F32, F16) and product.type is function.type and other.type is function.type
    if word(function, 0) not in _GATES or not alike:
        return False
    small, large = (other, function) if one is function else (function, one)
    return is_contiguous_1(other) and is_contiguous_1(of) and can_repeat(small, large)
