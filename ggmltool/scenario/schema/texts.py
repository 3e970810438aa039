"""The patterns of short forms: `f32[4, 3]`, `mul_mat(a, x)`, `alloc main`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import MAX_DIMS
from ggmltool.scenario.kinds import any_case
from ggmltool.scenario.nodes.short_form import HEX, NUMBER

_EXTENT = rf"(?!-0*\.?0*[1-9])(?:{NUMBER.pattern}|{HEX.pattern})"
_WORD = r"""[^\s"'(),=\[\]][^(),=\[\]]*"""
_QUOTED = r'"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"' + r"|'(?:[^'\\]|\\[\s\S])*'"
_ITEM = rf"(?:{_QUOTED}|{_WORD})\s*"
_LIST = rf"\[\s*(?:{_ITEM}(?:,\s*{_ITEM})*)?\]"
_ARGUMENT = rf"\s*(?:(?:{_WORD}=\s*)?(?:{_LIST}|{_ITEM}))\s*"


def type_name() -> str:
    """A ggml type in any case."""
    return any_case(TYPES)


def short_tensor() -> str:
    return rf"^\s*(?:{type_name()})\s*\[\s*{_EXTENT}\s*(?:,\s*{_EXTENT}\s*){{0,{MAX_DIMS - 1}}}\]\s*$"


def call(names: Iterable[str]) -> str:
    """A call of one of these functions."""
    ops = "|".join(re.escape(name) for name in names)
    return rf"^\s*(?:{ops})\s*\((?:\s*|{_ARGUMENT}(?:,{_ARGUMENT})*)\)\s*$"


def plain_step(kinds: Iterable[str]) -> str:
    return rf"^\s*(?:reset\s*|(?:{'|'.join(kinds)}) +\S[\s\S]*)$"
