"""What a condition of GGML_ASSERT asks for, read from its text: shapes, types, layouts, numbers.

ggml's ops have hundreds of such assertions, made of few predicates; so the text itself says what must hold.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ROWS = "the elements of each row of {0} must lie side by side (not transposed or permuted in ne[0])"
_CONTIGUOUS = "{0} must be contiguous"
_PREDICATES = {
    "ggml_can_mul_mat": "{0} and {1} must have the same ne[0], and ne[2] and ne[3] of {1} must be multiples of {0}'s",
    "ggml_can_out_prod": "{0} and {1} must have the same ne[1], and ne[2] and ne[3] of {1} must be multiples of {0}'s",
    "ggml_can_repeat": "every ne of {1} must be a multiple of that of {0}",
    "ggml_can_repeat_rows": "{0} and {1} must have the same ne[0], and every other ne of {1} must be a multiple of "
    "that of {0}",
    "ggml_are_same_shape": "{0} and {1} must have the same shape",
    "ggml_are_same_stride": "{0} and {1} must have the same strides (nb)",
    "ggml_are_same_layout": "{0} and {1} must have the same type, ne and nb",
    "ggml_is_contiguous": _CONTIGUOUS,
    "ggml_is_contiguous_0": _CONTIGUOUS,
    "ggml_is_contiguous_1": "{0} must be contiguous from ne[1] on",
    "ggml_is_contiguous_2": "{0} must be contiguous from ne[2] on",
    "ggml_is_contiguous_rows": _ROWS,
    "ggml_is_contiguous_channels": "the channels of {0} must lie side by side",
    "ggml_is_contiguously_allocated": "the bytes of {0} must have no gaps",
    "ggml_is_padded_1d": "{0} may have gaps between rows only",
    "ggml_is_matrix": "{0} must be a matrix: ne[2] and ne[3] are 1",
    "ggml_is_vector": "{0} must be a vector: only ne[0] is more than 1",
    "ggml_is_scalar": "{0} must have one element",
    "ggml_is_3d": "{0} must have three dimensions at most: ne[3] is 1",
    "ggml_is_quantized": "{0} must be quantized",
    "ggml_is_transposed": "{0} must be transposed",
    "ggml_is_permuted": "{0} must be permuted",
    "ggml_is_view": "{0} must be a view",
    "ggml_is_empty": "{0} must be empty",
}
_RELATIONS = {
    "==": "{0} must be equal to {1}",
    "!=": "{0} must differ from {1}",
    "<=": "{0} must be at most {1}",
    ">=": "{0} must be at least {1}",
    "<": "{0} must be less than {1}",
    ">": "{0} must be more than {1}",
}
_COUNTS = {
    "ggml_nelements": "the number of elements of {0}",
    "ggml_nbytes": "the number of bytes of {0}",
    "ggml_nrows": "the number of rows of {0}",
    "ggml_blck_size": "the block size of {0}",
    "ggml_type_size": "the size of {0}",
    "sizeof": "the size of {0}",
    "ggml_n_dims": "the number of dimensions of {0}",
}
_CALL = re.compile(r"(\w+)\s*\(([^()]*)\)")
_MEMBER = re.compile(r"(\w+(?:->src\[\d\])?)->(ne|nb)\[(\w+)\]")
_TYPE = re.compile(r"(\w+)->type")
_LOCAL = re.compile(r"(ne|nb)([01]?)([0-3])")
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:->|\.)\w+|\[\w+\])*")
_TEXT = re.compile(r'"[^"]*"|“[^”]*”')
_SOURCE = {"": "the result", "0": "source 0", "1": "source 1"}


class Required(NamedTuple):
    """What must hold, as a sentence without its end, and which kinds of things it is of."""

    words: str
    kinds: frozenset[str]


def required(condition: str) -> Required | None:
    """What a condition asks for; None where it is nothing that can be read."""
    text = _TEXT.sub("", condition).strip().removesuffix("&&").strip()
    kinds: set[str] = set()
    clauses = []
    for both in _parts(_unwrapped(text), "&&"):
        words = [_clause(_unwrapped(part), kinds) for part in _parts(_unwrapped(both), "||")]
        if None in words:
            return None
        clauses.append(", or ".join(map(str, words)))
    return Required("; ".join(clauses), frozenset(kinds)) if clauses and all(clauses) else None


def _parts(text: str, operator: str) -> list[str]:
    """The text cut at an operator, where that stands in no parentheses."""
    out, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if depth == 0 and text.startswith(operator, i):
            out.append(text[start:i].strip())
            start = i + len(operator)
    return [*out, text[start:].strip()]


def _unwrapped(text: str) -> str:
    """The text without parentheses around all of it."""
    while text.startswith("(") and text.endswith(")") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> int:
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return i
    return -1


def _clause(text: str, kinds: set[str]) -> str | None:
    negated = text.startswith("!") and not text.startswith("!=")
    if negated:
        text = _unwrapped(text[1:].strip())
    call = _CALL.fullmatch(text)
    if call is not None and call[1] in _PREDICATES:
        words = _predicate(call[1], [_operand(part, kinds) for part in _parts(call[2], ",")], kinds)
        return words.replace(" must ", " must not ", 1) if negated and words else words
    if _NAME.fullmatch(text):
        kinds.add("pointer")
        return f"{text} must not be set" if negated else f"{text} must be given"
    bits = _parts(text, "&")
    if len(bits) == 2 and all(map(_NAME.fullmatch, bits)):
        return f"{bits[0]} must {'not ' if negated else ''}have the bit {bits[1]}"
    return None if negated else _relation(text, kinds)


def _predicate(name: str, operands: list[str], kinds: set[str]) -> str | None:
    words = _PREDICATES[name]
    if ("{1}" in words) != (len(operands) == 2):
        return None
    strided = ("contiguous", "transposed", "permuted", "padded", "stride", "layout")
    kinds.add("layout" if any(part in name for part in strided) else "type" if "quantized" in name else "shape")
    return words.format(*operands)


def _relation(text: str, kinds: set[str]) -> str | None:
    found = _operator(text)
    if found is None:
        return None
    at, operator = found
    left, right = text[:at].strip(), text[at + len(operator) :].strip()
    if not left or not right:
        return None
    local = _LOCAL.fullmatch(left)
    if operator == "==" and local is not None and local[1] == "nb" and local[3] == "0":
        kinds.add("layout")
        return _ROWS.format(_SOURCE[local[2]])
    modulo = _parts(left, "%")
    if operator == "==" and right == "0" and len(modulo) == 2:
        return f"{_operand(modulo[0], kinds)} must be a multiple of {_operand(modulo[1], kinds)}"
    one, other = _operand(left, kinds), _operand(right, kinds)
    if operator == "==" and other.startswith("the type "):
        return f"{one} must be {other.removeprefix('the type ')}"
    return _RELATIONS[operator].format(one, other)


def _operator(text: str) -> tuple[int, str] | None:
    """Where the comparison stands that is in no parentheses; None where there is none, or more than one."""
    found = []
    depth = i = 0
    while i < len(text):
        depth += (text[i] in "([") - (text[i] in ")]")
        two = text[i : i + 2]
        if two in ("->", "<<", ">>"):
            i += 2
            continue
        operator = two if two in _RELATIONS else text[i] if text[i] in "<>" else ""
        if depth == 0 and operator:
            found.append((i, operator))
        i += max(len(operator), 1)
    return found[0] if len(found) == 1 else None


def _operand(text: str, kinds: set[str]) -> str:
    """One side of a comparison in words."""
    text = _unwrapped(text.strip())
    member = _MEMBER.fullmatch(text)
    if member is not None:
        kinds.add("shape" if member[2] == "ne" else "layout")
        return f"{member[2]}[{member[3]}] of {member[1]}"
    local = _LOCAL.fullmatch(text)
    if local is not None:
        kinds.add("shape" if local[1] == "ne" else "layout")
        return f"{local[1]}[{local[3]}] of {_SOURCE[local[2]]}"
    if text.startswith("GGML_TYPE_"):
        kinds.add("type")
        return f"the type {text.removeprefix('GGML_TYPE_').lower()}"
    typed = _TYPE.fullmatch(text)
    if typed is not None:
        kinds.add("type")
        return f"{typed[1]}'s type"
    call = _CALL.fullmatch(text)
    if call is not None and call[1] in _COUNTS:
        kinds.add("shape" if call[1] in ("ggml_nelements", "ggml_nbytes", "ggml_nrows") else "type")
        return _COUNTS[call[1]].format(_operand(call[2], kinds))
    return text
