"""What the capturing process writes to the one that asked: values of plain data, each with its length before it.

In Python's own serialization a text that stands in a graph a thousand times, such as a tensor's id, is written once
and read as one object, and names need not be valid Unicode. Both processes run the same Python.
"""

from __future__ import annotations

import gc
import marshal
import struct
from typing import IO, Any

Reply = dict[str, Any]

_LENGTH = struct.Struct("<Q")
_MOST = 1 << 30
"""Bytes of a reply, at most; graphs are of a few MiB."""


def written(reply: Reply) -> bytes:
    """A reply as it goes over the pipe."""
    content = marshal.dumps(reply)
    return _LENGTH.pack(len(content)) + content


def raw_reply(stream: IO[bytes]) -> bytes | None:
    """The next reply, to be `opened`; None if the process ended before it was whole."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    content = stream.read(min(size, _MOST))
    return content if len(content) == size else None


def opened(raw: bytes) -> Reply:
    """A reply as values: many objects, and no garbage to look for meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        reply: Reply = marshal.loads(raw)
    finally:
        if was_enabled:
            gc.enable()
    return reply
