"""What Vulkan of ggml 0.26 runs otherwise than that of 0.20.2, and what it asks of the hardware.

From llama.cpp b11549, ggml/src/ggml-vulkan/ggml-vulkan.cpp: ggml_backend_vk_device_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices import vulkan as before
from ggmltool.ggml.devices.asks import in_turn
from ggmltool.ggml.devices.combinators import (
    Rule,
    all_of,
    among,
    any_of,
    at_most,
    by_op,
    contiguous,
    f32,
    not_types,
    on,
    same_shape,
    types,
    types_of,
)
from ggmltool.ggml.devices.op_rules import takes_rows_of
from ggmltool.ggml.devices.operands import RESULT, name_of
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.dtypes import BF16, I32
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.ggml_0_26.fusing import NO_F32_PRECISION
from ggmltool.ggml.tensor import MAX_SRC, Tensor, nelements, root_of

FEATURES = ("fp16", "subgroup_shuffle", "subgroup_arithmetic", "subgroup_16", "memory_model")
"""What drivers differ in: half-precision arithmetic, what the lanes of a subgroup do together, that a subgroup has 16
of them at least, and Vulkan's memory model.
"""

_TYPES = before.MUL_MAT_TYPES | types("tq1_0")
_INDEXED = (0, 1, 2, 3, RESULT)


def _single(operand: int) -> Rule:
    return on(operand, f"{name_of(operand)} has more than one element", lambda t: nelements(t) == 1)


def _product(batch: int) -> Rule:
    """MUL_MAT or MUL_MAT_ID: what is bf16 multiplies weights in bf16 only."""
    bf16_alone = any_of(types_of(0, BF16), not_types(1, BF16))
    return all_of(before.product(batch, _TYPES), bf16_alone)


def _in_elements(t: Tensor) -> bool:
    """Whether a shader can count a tensor's strides in elements."""
    size = t.type.type_size
    return t.nb[0] == size and all(n % size == 0 for n in t.nb)


_DSV4 = f32(*range(MAX_SRC), RESULT)

RULES: dict[int, Rule] = before.RULES | by_op(
    {
        "MUL_MAT": _product(0),
        "MUL_MAT_ID": all_of(NO_F32_PRECISION, _product(2)),
        "GET_ROWS": takes_rows_of(_TYPES | {I32}),
        "TOP_K": contiguous(0, RESULT),
        "PAD_REFLECT_1D": f32(0),
        "DSV4_HC_COMB": _DSV4,
        "DSV4_HC_PRE": all_of(_DSV4, among(0, "ne1", 4)),
        "DSV4_HC_POST": all_of(_DSV4, among(1, "ne1", 4)),
        "CROSS_ENTROPY_LOSS": all_of(contiguous(0, 1, RESULT), f32(0, 1, RESULT), same_shape(0, 1), _single(RESULT)),
        "CROSS_ENTROPY_LOSS_BACK": all_of(
            contiguous(0, 1, 2, RESULT), f32(0, 1, 2, RESULT), _single(0), same_shape(1, 2, RESULT)
        ),
        "LIGHTNING_INDEXER": all_of(
            types_of(1, before.KV_TYPES),
            among(0, "ne0", 128),
            *(on(i, f"strides of {name_of(i)} are no multiples of an element", _in_elements) for i in _INDEXED),
        ),
    }
)
"""All that Vulkan runs, with a driver that has every feature."""


def _lacks(what: str, op: Op, rule: Rule | None = None) -> OpRule:
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
            at_most(RESULT, "ne0", 1024),
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
