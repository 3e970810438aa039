"""What the random scenarios are made of: tensors and nodes as they write them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from ggmltool.ggml.dtypes import TYPES as DTYPES

TYPES = {name: (t.block_size, t.type_size) for name, t in DTYPES.items()}
"""Elements and bytes of a block."""

Ne = tuple[int, ...]


def bits(value: float) -> int:
    """The int32 word of a float."""
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


def contiguous(type: str, ne: Ne) -> Ne:
    block, size = TYPES[type]
    nb1 = size * (ne[0] // block)
    return (size, nb1, nb1 * ne[1], nb1 * ne[1] * ne[2])


@dataclass
class T:
    """A tensor: `root` and `offset` where it is a view, `short` whether its id can stand in a short form.

    `room` are the bytes of the root, or its own.
    """

    id: str
    type: str
    ne: Ne
    nb: Ne
    root: str | None = None
    offset: int = 0
    short: bool = True
    room: int = 0

    def __post_init__(self) -> None:
        if not self.room:
            block, size = TYPES[self.type]
            first = self.ne[0] * self.nb[0] // block if block > 1 else size + (self.ne[0] - 1) * self.nb[0]
            more = sum((n - 1) * b for n, b in zip(self.ne[1:], self.nb[1:], strict=True))
            self.room = first + more if self.elements else 0

    @property
    def is_contiguous(self) -> bool:
        return self.nb == contiguous(self.type, self.ne)

    @property
    def elements(self) -> int:
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]


@dataclass
class Node:
    """A node to be: `words` are its op_params, `short` its short form or None."""

    op: str
    src: list[T | None]
    type: str
    ne: Ne
    nb: Ne | None = None
    words: list[int] = field(default_factory=list)
    root: str | None = None
    offset: int = 0
    short: str | None = None
    self_source: bool = False
    room: int = 0


class Maker(Protocol):
    """What the op functions need of the scenario in the making.

    With `values` it is one to be computed: only ops whose results follow smoothly from their sources; if it is `even`,
    rare ops, types and strides are no rarer in it than others. `below` limits the integers of an input.
    """

    rng: Random
    values: bool
    even: bool

    def pick(self, accept: Callable[[T], bool]) -> T | None: ...
    def input(self, type: str, ne: Ne, below: int = 64) -> T: ...
    def weight(self, type: str, ne: Ne) -> T: ...
    def cache(self, type: str, ne: Ne) -> T: ...
    def parameter(self, ne: Ne) -> T: ...
