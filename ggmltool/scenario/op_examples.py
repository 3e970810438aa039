"""For every op a scenario as small as it can be."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from ggmltool.data import load
from ggmltool.ggml.op import GluOp, UnaryOp

RESULT = "y"
"""The id of an example's node."""

_ONE_SOURCE = "x: f32[8, 4]"


class _File(Struct, forbid_unknown_fields=True):
    """`examples` has the tensors that an op needs, each as it stands in a context, and at the end its node."""

    examples: dict[str, tuple[str, ...]]
    notes: dict[str, str]


@cache
def _file() -> _File:
    return load("op_examples.toml", _File)


def op_note(name: str) -> str:
    """What else is to be said of an op, "" for nothing."""
    return _file().notes.get(name, "")


def op_example(name: str) -> str | None:
    """A whole scenario with a node of the op, unary or GLU function `name` (lower case), as YAML.

    Of none, which is no node's op, it shows a tensor.
    None for the one op that ggml itself refuses to build (flash_attn_back).
    """
    lines = _file().examples.get(name)
    if lines is None and (name.upper() in UnaryOp.__members__ or name.upper() in GluOp.__members__):
        lines = (_ONE_SOURCE, f"{name}(x)")
    if lines is None:
        return None
    *tensors, node = lines
    text = ["ggmltool: 1", "backends: [CPU]"]
    if tensors:
        text += ["contexts:", "  inputs:", "    tensors:", *(f"      {line}" for line in tensors)]
    return "\n".join([*text, "graphs:", "  main:", "    nodes:", f"      {RESULT}: {node}", ""])
