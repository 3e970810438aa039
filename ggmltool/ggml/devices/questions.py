"""What a device is asked about an op, as a value and as text: all that it can see of the tensors.

`mul_mat(q4_0[640, 512] in Vulkan0 weights, f32[640, 4]) -> f32[512, 4]`: the op, parameters that are not all zero in
braces, the sources, the result. Strides stand behind a semicolon where they are not those of a tensor without gaps.
`view` is a view, `in B` says in which buffer type a tensor lies, with the usage of its buffer, `of B` that it is a view
without memory of a tensor that has some.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_NAMES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import EMPTY_OPS, FIRST_GLU_KEY, FIRST_UNARY_KEY, KEY_NAMES, Op, keys_of
from ggmltool.ggml.tensor import MAX_OP_PARAMS, MAX_SRC, Dims, Tensor, contiguous_nb, dims

MAX_QUESTION = 16_000
"""Characters of a question, at most."""
_INT64_MAX = (1 << 63) - 1
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1


class Lies(NamedTuple):
    """Where a tensor lies: the buffer type, the usage of the buffer; `own` false: its root does, and it itself has no
    memory yet."""

    buft: str
    usage: int
    own: bool


class Operand(NamedTuple):
    """What a device sees of a tensor: `type` is a name, `ne` elements, `nb` bytes, `lies` None without memory."""

    type: str
    ne: Dims
    nb: Dims
    view: bool = False
    lies: Lies | None = None


class OpQuestion(NamedTuple):
    """An op by its key, with the words of its parameters (without zeros at the end), its result, its sources."""

    key: int
    params: tuple[int, ...]
    result: Operand
    src: tuple[Operand | None, ...] = ()

    @property
    def text(self) -> str:
        """As it stands in a scenario."""
        if self.key == Op.NONE:
            return _operand_text(self.result)
        said_by_name = 1 if self.key >= FIRST_UNARY_KEY else 0
        told = f"{{{', '.join(map(str, self.params))}}}" if any(self.params[said_by_name:]) else ""
        sources = ", ".join("-" if s is None else _operand_text(s) for s in self.src)
        return f"{KEY_NAMES[self.key]}{told}({sources}) -> {_operand_text(self.result)}"


def question(op: Tensor) -> OpQuestion:
    """What a device is asked about supports and offloads, with the memory as it is now."""
    return OpQuestion(
        op.key,
        _params(op),
        operand_of(op),
        tuple([None if s is None else operand_of(s) for s in op.src]),
    )


def size_question(t: Tensor) -> OpQuestion:
    """What a buffer type is asked about a tensor's bytes: nothing has memory yet, and a copy is like its source."""
    return OpQuestion(
        t.key,
        _params(t),
        Operand(t.type.name, t.ne, t.nb),
        tuple([None if s is None else Operand(s.type.name, s.ne, s.nb) for s in t.src]),
    )


def without_memory(asked: OpQuestion) -> OpQuestion:
    """The same of tensors that are no views and lie nowhere, as sizes are asked."""
    sources = (None if s is None else s._replace(view=False, lies=None) for s in asked.src)
    return asked._replace(result=asked.result._replace(view=False, lies=None), src=tuple(sources))


def _params(t: Tensor) -> tuple[int, ...]:
    """The parameters, but where a view begins."""
    return () if t.op in EMPTY_OPS else trimmed(t.op_params)


def trimmed(words: tuple[int, ...]) -> tuple[int, ...]:
    """Without zeros at the end."""
    n = len(words)
    while n and not words[n - 1]:
        n -= 1
    return words[:n]


def operand_of(t: Tensor) -> Operand:
    """What a device sees of a tensor, with its memory as it is now."""
    root, buffer = t.view_src, t.buffer
    lies = None
    if buffer is not None:
        lies = Lies(buffer.buft.name, buffer.usage, True)
    elif root is not None and root.buffer is not None:
        lies = Lies(root.buffer.buft.name, root.buffer.usage, False)
    return Operand(t.type.name, t.ne, t.nb, root is not None, lies)


def _operand_text(o: Operand) -> str:
    layout = dims(o.ne)
    if o.nb != contiguous_nb(TYPES[o.type], o.ne):
        layout = f"{layout[:-1]}; {', '.join(map(str, o.nb))}]"
    text = o.type + layout + (" view" if o.view else "")
    if o.lies is not None:
        name = o.lies.buft if _PLAIN.fullmatch(o.lies.buft) else json.dumps(o.lies.buft)
        usage = "" if o.lies.usage == USAGE_ANY else f" {USAGE_NAMES[o.lies.usage]}"
        text += f" {'in' if o.lies.own else 'of'} {name}{usage}"
    return text


_PLAIN = re.compile(r'[^\s,()"]+')
_INTS = r"-?\d{1,19}(?:, ?-?\d{1,19})*"
_HEAD = re.compile(rf"([a-z][a-z0-9_]*)(?:\{{({_INTS})\}})?\(")
_OPERAND = re.compile(
    rf"(\w+)\[(\d{{1,19}}(?:, ?\d{{1,19}}){{0,3}})(?:; ?({_INTS}))?\]( view)?"
    rf'(?: (in|of) ((?:"(?:[^"\\]|\\.)*")|{_PLAIN.pattern})(?: (weights|compute))?)?'
)


class NotAQuestion(ValueError):  # noqa: N818 - it says what is the matter
    """A text is none; `offset` is where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def parsed(text: str) -> OpQuestion:
    """The question that a text says. Raises NotAQuestion."""
    if len(text) > MAX_QUESTION:
        raise NotAQuestion(f"it has {len(text)} characters, and {MAX_QUESTION} are the most", 0)
    head = _HEAD.match(text)
    if head is None:
        result, end = _operand(text, 0)
        _at_end(text, end)
        return OpQuestion(int(Op.NONE), (), result)
    try:
        key = keys_of(head.group(1))[0]
    except KeyError:
        raise NotAQuestion(f"there is no op {head.group(1)[:64]}", 0) from None
    params = _numbers(head, 2, _INT32_MIN, _INT32_MAX)
    if len(params) > MAX_OP_PARAMS:
        raise NotAQuestion(f"there are {len(params)} parameters, and {MAX_OP_PARAMS} are the most", head.start(2))
    src, end = _sources(text, head.end())
    if not text.startswith(" -> ", end):
        raise NotAQuestion("a result is missing: ` -> f32[640, 4]`", end)
    result, end = _operand(text, end + len(" -> "))
    _at_end(text, end)
    if key >= FIRST_UNARY_KEY:
        # The number of the function of UNARY or GLU stands in the first word.
        params = (key - (FIRST_GLU_KEY if key >= FIRST_GLU_KEY else FIRST_UNARY_KEY), *params[1:])
    return OpQuestion(key, trimmed(params), result, src)


def _sources(text: str, at: int) -> tuple[tuple[Operand | None, ...], int]:
    out: list[Operand | None] = []
    while not text.startswith(")", at):
        if out:
            if not text.startswith(", ", at):
                raise NotAQuestion("`, ` or `)` belongs here", at)
            at += 2
        if text.startswith("-", at):
            out.append(None)
            at += 1
        else:
            source, at = _operand(text, at)
            out.append(source)
        if len(out) > MAX_SRC:
            raise NotAQuestion(f"an op has {MAX_SRC} sources at most", at)
    return tuple(out), at + 1


def _operand(text: str, at: int) -> tuple[Operand, int]:
    match = _OPERAND.match(text, at)
    if match is None:
        raise NotAQuestion("a tensor is written as `f32[640, 4]`", at)
    type, _, _, view, where, buft, usage = match.groups()
    if type not in TYPES:
        raise NotAQuestion(f"there is no type {type[:64]}", at)
    ne = _dims(_numbers(match, 2, 0, _INT64_MAX), 1)
    nb = _numbers(match, 3, 0, _INT64_MAX)
    if nb and len(nb) != 4:
        raise NotAQuestion("four strides belong behind the semicolon", match.start(3))
    if where == "of" and not view:
        raise NotAQuestion("only a view is of another tensor's memory", match.start(5))
    lies = None
    if where:
        try:
            name = str(json.loads(buft)) if buft.startswith('"') else buft
        except ValueError:
            raise NotAQuestion("this is no text", match.start(6)) from None
        lies = Lies(name, USAGE_NAMES.index(usage or "any"), where == "in")
    strides = _dims(nb, 0) if nb else contiguous_nb(TYPES[type], ne)
    return Operand(type, ne, strides, view is not None, lies), match.end()


def _numbers(match: re.Match[str], group: int, low: int, high: int) -> tuple[int, ...]:
    text = match.group(group)
    out = tuple(int(n) for n in text.split(",")) if text else ()
    if any(not low <= n <= high for n in out):
        raise NotAQuestion(f"a number from {low} to {high} belongs here", match.start(group))
    return out


def _dims(numbers: tuple[int, ...], rest: int) -> Dims:
    a, b, c, d = (*numbers, rest, rest, rest)[:4]
    return (a, b, c, d)


def _at_end(text: str, at: int) -> None:
    if at < len(text):
        raise NotAQuestion("the question ends before", at)
