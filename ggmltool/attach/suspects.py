"""Which tensors an abort is about: the one whose name the message has, else those that the calls have in hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from ggmltool.attach.aborted import Abort, Held, held
from ggmltool.attach.errors import AttachError
from ggmltool.attach.link import Link, LinkError
from ggmltool.attach.reading import Reader
from ggmltool.attach.state import TensorState

MOST = 6
"""Tensors that are told of."""
_LONGEST = 1 << 40
"""Elements of a dimension, of more than memory has."""
How = Literal["message", "named", "argument", "register", "stack"]


class Suspect(NamedTuple):
    """A tensor that an abort may be about, and how that is known: its name's address was printed (`message`), a tensor
    of that name is in the graph (`named`), or a call has it in hand, as `place` says, of the function `holder`."""

    tensor: TensorState
    how: How
    place: str
    holder: str


def suspects(link: Link, reader: Reader, abort: Abort, graph: Iterable[int] = ()) -> list[Suspect]:
    """The tensors, the likeliest first. `graph` are the tensors of the scheduler's graph, where there is one."""
    printed = list(_printed(reader, abort))
    if printed:
        return printed
    named = list(_named(reader, abort, graph))
    if named:
        return named[:MOST]
    return list(_in_hand(link, reader, abort))[:MOST]


def _printed(reader: Reader, abort: Abort) -> Iterator[Suspect]:
    """The name of a tensor lies in it, so that a name that was printed tells the tensor."""
    name = (reader.layout.structs["ggml_tensor"].members or {})["name"].offset
    for value in abort.values:
        if value.conversion == "s" and value.text not in ("?", ""):
            tensor = tensor_at(reader, value.raw - name)
            if tensor is not None and tensor.name.decode("utf-8", "surrogateescape") == value.text:
                yield Suspect(tensor, "message", "", "")


def _named(reader: Reader, abort: Abort, graph: Iterable[int]) -> Iterator[Suspect]:
    """Of a message that was read as a text, by the words in parentheses, where ggml prints names."""
    for address in graph:
        tensor = reader.tensor(address)
        name = tensor.name.decode("utf-8", "surrogateescape")
        if name and f"({name})" in abort.message:
            yield Suspect(tensor, "named", "", "")


def _in_hand(link: Link, reader: Reader, abort: Abort) -> Iterator[Suspect]:
    for word in held(link, abort.frames):
        tensor = tensor_at(reader, word.value)
        if tensor is not None:
            yield Suspect(tensor, word.how, word.name, _holder(abort, word))


def _holder(abort: Abort, word: Held) -> str:
    """The function that has a word in hand. At the entry of ggml_abort the registers are still its caller's."""
    entered = word.how == "register" and word.frame == 0 and not abort.signal
    i = word.frame + 1 if entered and len(abort.frames) > 1 else word.frame
    return abort.frames[i].function


def tensor_at(reader: Reader, address: int) -> TensorState | None:
    """The tensor at an address, if one is there that ggml has made in one of its arenas."""
    objects = reader.tensors.object
    if address % 8 or not 0 < address < 1 << 56:
        return None
    try:
        _, size, _, kind = objects.unpack(reader.memory.read(address - objects.size, objects.size))
        if kind != reader.tensors.is_tensor or size < reader.tensors.record.size:
            return None
        tensor = reader.tensor(address)
    except (LinkError, AttachError):
        return None
    known = tensor.type in _values(reader, "ggml_type") and tensor.op in _values(reader, "ggml_op")
    return tensor if known and all(0 < n < _LONGEST for n in tensor.ne) else None


def _values(reader: Reader, enum: str) -> frozenset[int]:
    return frozenset(reader.layout.enums[enum].members.values())
