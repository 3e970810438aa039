"""Rules on ops as data, such as a scenario has: conditions on the type, shape and strides of the result and sources.

A device supports an op that has rules where the conditions of one of them hold; the reason of a no is that of the rule
that came furthest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ggmltool.ggml.devices.cases import SupportCases
from ggmltool.ggml.dtypes import DType

Contiguity = Literal["all", "from 1", "from 2", "rows"]
Number = Literal["ne0", "ne1", "ne2", "ne3", "nb0", "nb1", "nb2", "nb3", "rows", "bytes"]
"""Numbers of a tensor: elements and strides by dimension, ggml_nrows, ggml_nbytes."""


class Bounds(NamedTuple):
    """What a number has to be; None if that does not matter."""

    low: int | None = None
    high: int | None = None
    multiple: int | None = None
    among: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is asked of one operand. All but `present` hold for a source that is not there."""

    types: tuple[DType, ...] | None = None
    contiguous: Contiguity | None = None
    present: bool | None = None
    numbers: tuple[tuple[Number, Bounds], ...] = ()


@dataclass(frozen=True, slots=True)
class SupportRule:
    """A rule for the ops of these keys (None: for every op, besides their own rules).

    `operands` are source numbers, RESULT or EVERY_SOURCE with their conditions; `same_type` and `same_shape` list
    operands that have to be alike.
    """

    keys: frozenset[int] | None
    operands: tuple[tuple[int, Conditions], ...] = ()
    same_type: tuple[int, ...] = ()
    same_shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Supports:
    """What ops a device of one's own has: all but `keys` (`exclude`), or only `keys`, op keys of `ggmltool.ggml.op`.

    `rules` are conditions on some of them. `profile`: ops without rules are as the profile has them, and `keys` say
    nothing. `cases` are the answers of a real device, which decide where no rule does.
    """

    keys: frozenset[int]
    exclude: bool
    rules: tuple[SupportRule, ...] = ()
    profile: bool = False
    cases: SupportCases | None = None
