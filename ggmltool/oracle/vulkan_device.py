"""The real Vulkan device in the place of a simulated one: it answers for ops, sizes and the order of nodes."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.device import YES, Device, GraphOrder, Keep
from ggmltool.ggml.op import N_OP_KEYS
from ggmltool.ggml.tensor import Tensor
from ggmltool.oracle.vulkan import Vulkan, vulkan

FAMILY = "Vulkan"
"""The kind of memory by which a simulated device is known as one of Vulkan's."""

_NOT_SUPPORTED = "the real device does not support {op}"


def answered_by_vulkan(device: Device) -> None:
    """Let this machine's Vulkan device answer for a device, if that is one of Vulkan's. Raises VulkanUnavailable.

    From which batch size on it offloads stays as the scenario has it.
    """
    if device.buft.family != FAMILY:
        return
    real = vulkan()
    device.table = bytearray([YES]) * N_OP_KEYS
    device.check = lambda op: None if real.answers([op])[0].runs else _NOT_SUPPORTED
    device.buft.alloc_size = lambda t: real.answers([t])[0].size
    if device.graph_optimize is not None:
        device.graph_optimize = _order_of(real)


def _order_of(real: Vulkan) -> GraphOrder:
    def order(nodes: list[Tensor], use_count: Callable[[Tensor], int], keep: Keep) -> list[Tensor]:
        ordered, kept = real.order(nodes, use_count)
        for tensor, until in kept:
            keep(tensor, until)
        return ordered

    return order
