"""Text that is not UTF-8: PowerShell writes UTF-16, some editors UTF-32; both are read as if they were UTF-8."""

from __future__ import annotations

import codecs
from typing import Protocol

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LANES = {
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}
"""Which of every four bytes are 0 where the text is mostly ASCII."""

_LOOKED_AT = 256
_CHUNK = 1 << 20


class _Readable(Protocol):
    def read(self, n: int, /) -> bytes: ...


def wide_codec(head: bytes) -> str | None:
    """The codec of a text that begins so, where that is UTF-16 or UTF-32, with a byte order mark or without one."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return codec
    lanes = [head[i:_LOOKED_AT:4] for i in range(4)]
    if min(map(len, lanes)) == 0:
        return None
    zeros = [lane.count(0) / len(lane) for lane in lanes]
    if any(0.1 < part < 0.9 for part in zeros):
        return None
    return _LANES.get((zeros[0] > 0.5, zeros[1] > 0.5, zeros[2] > 0.5, zeros[3] > 0.5))


def decoded(raw: bytes) -> str:
    """The text of bytes in any of these encodings, or in UTF-8; raises UnicodeDecodeError for what is in none."""
    return raw.decode(wide_codec(raw) or "utf-8-sig")


class Recoded:
    """A stream in UTF-16 or UTF-32 as one in UTF-8; what cannot be decoded comes out as U+FFFD."""

    def __init__(self, stream: _Readable, codec: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(codec)("replace")
        self._ready = b""
        self._ended = False

    def read(self, n: int = -1, /) -> bytes:
        """Up to `n` bytes, fewer only at the end; all of them for -1."""
        parts = [self._ready]
        have = len(self._ready)
        while not self._ended and (n < 0 or have < n):
            raw = self._stream.read(_CHUNK)
            self._ended = not raw
            parts.append(self._decoder.decode(raw, final=not raw).encode("utf-8", "replace"))
            have += len(parts[-1])
        whole = b"".join(parts)
        end = len(whole) if n < 0 else n
        self._ready = whole[end:]
        return whole[:end]
