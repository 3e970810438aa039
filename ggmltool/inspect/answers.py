"""What a device says to a node before anything is scheduled: whether it runs it, and which memory stands in the way."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.tensor import Tensor
from ggmltool.show.document import Row


class MissingSource(Row):
    """A source in memory that the device cannot use, so that it would have to be copied before, and why."""

    slot: int
    id: str
    why: str


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """A device's answers for one node; a reason that is None is a yes.

    `op` is the answer of supports_op, `lacks` whether it has no such op at all, `memory` the answer of supports_buft
    for the memory the node has already (that of its root, for a view), `copies` the sources whose memory the device
    cannot use.
    """

    op: str | None
    memory: str | None
    copies: tuple[MissingSource, ...]
    lacks: bool = False

    @property
    def runs(self) -> bool:
        """Whether the scheduler may give it the node: ggml copies sources, but never a node's own memory."""
        return self.op is None and self.memory is None

    @property
    def why_not(self) -> str | None:
        """The reason of a no: the op's rule before the memory, as a device that lacks the op needs no memory for it."""
        return self.op if self.op is not None else self.memory


def answer(device: Device, node: Tensor) -> DeviceAnswer:
    """Ask a device about a node and the memory that node and sources have now; views have that of their roots."""
    own = _memory(node)
    memory = None if own is None else device.why_not_buft(own)
    copies = []
    for slot, source in enumerate(node.src):
        buft = _memory(source) if source is not None else None
        why = device.why_not_buft(buft) if buft is not None else None
        if source is not None and why is not None:
            copies.append(MissingSource(slot, source.id, why))
    why_memory = f"it is pre-allocated: {memory}" if memory is not None else None
    refusal = device.refusal(node)
    text, lacks = (None, False) if refusal is None else refusal
    return DeviceAnswer(text, why_memory, tuple(copies), lacks)


def _memory(t: Tensor) -> BufferType | None:
    buffer = t.view_src.buffer if t.view_src is not None else t.buffer
    return buffer.buft if buffer is not None else None
