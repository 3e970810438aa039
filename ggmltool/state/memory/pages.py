"""The memory of a program that stands still: read page by page, each once."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from ggmltool.state.errors import AttachError, NoBytes
from ggmltool.state.memory import limits

PAGE = 4096
_RUN = 256
_AT_ONCE = 16
_MOST_PAGES = 2 * limits.BYTES // PAGE
_END = 1 << 56


class Reads(Protocol):
    """Who reads memory, as `Link` does."""

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Memory at several places; empty where there is none."""


class Memory:
    """What the program holds until it goes on. Raises NoBytes where nothing is, AttachError if too much is asked."""

    def __init__(self, link: Reads) -> None:
        self._link = link
        self._pages: dict[int, bytes] = {}
        self.nbytes = 0

    def read(self, address: int, length: int) -> bytes:
        """So many bytes at an address."""
        at = address % PAGE
        known = self._pages.get(address // PAGE)
        if known and 0 < length <= PAGE - at:
            return known[at : at + length]
        if length <= 0:
            return b""
        _check(address, length)
        first, last = address // PAGE, (address + length - 1) // PAGE
        if first == last:
            page = self._pages.get(first)
            if page is None:
                self._take([first])
                page = self._pages[first]
            return page[at : at + length] if page else self._exactly(address, length)
        self.prefetch([(address, length)])
        pages = [self._pages[page] for page in range(first, last + 1)]
        if not all(pages):
            return self._exactly(address, length)
        return b"".join(pages)[at : at + length]

    def prefetch(self, spans: Iterable[tuple[int, int]]) -> None:
        """Read all these places at once, for `read` to find them; what is not there is left."""
        wanted: set[int] = set()
        for address, length in spans:
            if 0 < address < _END and 0 < length <= limits.BYTES:
                first, last = address // PAGE, (address + length - 1) // PAGE
                if first == last:
                    wanted.add(first)
                else:
                    wanted.update(range(first, last + 1))
                if len(wanted) > _MOST_PAGES:
                    raise _too_much()
        missing = [page for page in wanted if page not in self._pages]
        if missing:
            self._take(sorted(missing))

    def numbers(self, address: int, code: str, n: int) -> tuple[int, ...]:
        """An array of n numbers, each of which struct knows as `code`."""
        layout = struct.Struct(f"<{n}{code}")
        return layout.unpack(self.read(address, layout.size))

    def cells(self, address: int, code: str, slots: Iterable[int]) -> list[tuple[Any, ...]]:
        """Some cells of an array, in each of which are numbers that struct knows as `code`."""
        layout = struct.Struct(f"<{code}")
        places = [address + layout.size * slot for slot in slots]
        self.prefetch((at, layout.size) for at in places)
        return [layout.unpack(self.read(at, layout.size)) for at in places]

    def _take(self, missing: Sequence[int]) -> None:
        self.nbytes += len(missing) * PAGE
        if self.nbytes > limits.BYTES:
            raise _too_much()
        runs = list(_runs(missing))
        for i in range(0, len(runs), _AT_ONCE):
            alone: list[int] = []
            some = runs[i : i + _AT_ONCE]
            for (first, n), data in zip(some, self._ask(some), strict=True):
                if len(data) == n * PAGE:
                    for k in range(n):
                        self._pages[first + k] = data[k * PAGE : (k + 1) * PAGE]
                elif n == 1:
                    self._pages[first] = b""
                else:
                    alone += range(first, first + n)
            singles = [(page, 1) for page in alone]
            for page, data in zip(alone, self._ask(singles), strict=True):
                self._pages[page] = data if len(data) == PAGE else b""

    def _ask(self, runs: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._link.read_many([(first * PAGE, n * PAGE) for first, n in runs]) if runs else []

    def _exactly(self, address: int, length: int) -> bytes:
        # A core dump may have a part of a page only, where a section of a file begins or ends.
        (data,) = self._link.read_many([(address, length)])
        if len(data) != length:
            raise NoBytes(address, length)
        return data


class OwnMemory(Memory):
    """What this process holds itself, or what `read` has at hand: nothing has to be fetched, and nothing is checked."""

    def __init__(self, read: Callable[[int, int], bytes] = ctypes.string_at) -> None:
        self.nbytes = 0
        self._bytes_at = read

    def read(self, address: int, length: int) -> bytes:
        if length <= 0:
            return b""
        if not address:
            raise NoBytes(address, length)
        return self._bytes_at(address, length)

    def prefetch(self, spans: Iterable[tuple[int, int]]) -> None:
        return

    def cells(self, address: int, code: str, slots: Iterable[int]) -> list[tuple[Any, ...]]:
        layout = struct.Struct(f"<{code}")
        slots = list(slots)
        if not slots:
            return []
        first, step = min(slots), layout.size
        data = self.read(address + first * step, (max(slots) + 1 - first) * step)
        return [layout.unpack_from(data, (slot - first) * step) for slot in slots]


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pages that follow each other: the first, and how many."""
    first, n = pages[0], 0
    for page in pages:
        if page != first + n or n == _RUN:
            yield first, n
            first, n = page, 0
        n += 1
    yield first, n


def _check(address: int, length: int) -> None:
    if length > limits.BYTES:
        raise _too_much()
    if not 0 < address < _END - length:
        raise NoBytes(address, length)


def _too_much() -> AttachError:
    return AttachError(
        f"what the program holds of ggml is more than {limits.BYTES >> 20} MiB, and ggmltool reads no more; or its "
        "memory is damaged"
    )


def c_string(link: Reads, address: int, most: int = limits.TEXT) -> str:
    """A C string, of which so many bytes are read at most. Raises NoBytes."""
    (found,) = c_strings(link, [address], most)
    if found is None:
        raise NoBytes(address, most)
    return found


def c_strings(link: Reads, addresses: Sequence[int], most: int = limits.TEXT) -> list[str | None]:
    """C strings, read anew: a function that was called may have just written them. None where none can be read."""
    spans = [(a, min(most, PAGE - a % PAGE)) if 0 < a < _END else (0, 0) for a in addresses]
    found = [data if n else b"" for (_, n), data in zip(spans, link.read_many(spans), strict=True)]
    over = [i for i, data in enumerate(found) if data and b"\0" not in data and len(data) < most]
    more = link.read_many([(addresses[i] + len(found[i]), most - len(found[i])) for i in over]) if over else []
    for i, data in zip(over, more, strict=True):
        found[i] += data
    return [data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape") if data else None for data in found]
