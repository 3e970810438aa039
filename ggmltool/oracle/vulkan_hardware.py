"""What this machine's Vulkan device has of what drivers differ in, found out by asking it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ggmltool.ggml.context import Context
from ggmltool.ggml.devices.profile import Hardware
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor
from ggmltool.oracle.vulkan import Vulkan

_LARGEST = 1 << 42


@cache
def hardware_of(vulkan: Vulkan) -> Hardware:
    """The features of the device, by the names that Vulkan's profile has for them, and its largest tensor in bytes."""
    asked = {name: op() for name, op in ASKED.items()}
    answers = dict(zip(asked, vulkan.answers(list(asked.values())), strict=True))
    return Hardware(frozenset(name for name, answer in answers.items() if answer.runs), _largest(vulkan))


def _largest(vulkan: Vulkan) -> int:
    """The most bytes that a tensor may have, a multiple of four."""
    low, high = 0, _LARGEST // 4
    while low < high:
        middle = (low + high + 1) // 2
        if vulkan.answers([_node(Op.SCALE, [middle], [middle])])[0].runs:
            low = middle
        else:
            high = middle - 1
    return 4 * low


def _node(op: Op, *shapes: Sequence[int], types: Mapping[int, str] | None = None) -> Tensor:
    """A node and its sources, of these shapes; all are f32 but those with a type of their own (0: the node)."""
    ctx = Context()
    node, *sources = [ctx.new_tensor(TYPES[(types or {}).get(i, "f32")], ne) for i, ne in enumerate(shapes)]
    node.set_op(op, (0,) * 16, *sources)
    return node


def _attention() -> Tensor:
    return _node(Op.FLASH_ATTN_EXT, [64, 1, 1], [64, 1, 1], [64, 256, 1], [64, 256, 1], types={2: "f16", 3: "f16"})


def _indexer() -> Tensor:
    return _node(
        Op.LIGHTNING_INDEXER, [256, 1], [128, 64, 1], [128, 1, 256], [64, 1], [256, 1], types={2: "f16", 4: "f16"}
    )


ASKED: dict[str, Callable[[], Tensor]] = {
    "fp16": _indexer,
    "subgroup_shuffle": _attention,
    "subgroup_arithmetic": lambda: _node(Op.CUMSUM, [64], [64]),
    "subgroup_16": lambda: _node(Op.DSV4_HC_COMB, [4, 4], [24], [24], [3]),
    "memory_model": lambda: _node(Op.ARGSORT, [2048], [2048], types={0: "i32"}),
}
"""For each feature an op that the device runs only if it has it."""
