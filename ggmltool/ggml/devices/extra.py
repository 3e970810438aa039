"""Buffer types that a device has besides its default one: for packed weights, pinned host memory, private memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ggmltool.ggml.buffer import AllocSize
from ggmltool.ggml.device import OpRule
from ggmltool.ggml.version import SIZE_MAX, TENSOR_ALIGNMENT

Features = frozenset[str]
"""What a piece of hardware can do, by the names that its profile knows."""


class Memory(NamedTuple):
    """What the size of a tensor in a buffer type may depend on: the type's alignment and row padding, the hardware."""

    alignment: int
    row_padding: int
    features: Features


PINNED = "pinned host memory"
"""The family of host memory that a device has pinned: it is for the CPU, the device itself cannot use it."""


@dataclass(frozen=True, slots=True)
class ExtraBuft:
    """A further buffer type of a device.

    `{device}` in `name` stands for the device's name. `alignment` and `max_size` are bytes (None: those of the
    device's own type), `family` is the kind of memory. `rule` decides, given the device's features, about every op
    that has one of its first four sources in this type (None: no such rule). `alloc_more` says what `alloc_size` does,
    `slack` how many bytes larger than asked for its buffers are.
    """

    name: str
    family: str
    alignment: int | None = TENSOR_ALIGNMENT
    max_size: int | None = SIZE_MAX
    host: bool = False
    rule: Callable[[Features], OpRule] | None = None
    alloc_size: AllocSize | None = None
    alloc_more: str = ""
    slack: int = 0


def pinned(
    name: str, max_size: int | None = SIZE_MAX, alignment: int | None = TENSOR_ALIGNMENT, slack: int = 0
) -> ExtraBuft:
    """A device's pinned host memory."""
    return ExtraBuft(name, PINNED, alignment, max_size, host=True, slack=slack)
