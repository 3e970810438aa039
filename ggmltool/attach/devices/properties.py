"""What backends, devices and buffer types answer when they are asked: names and numbers, by calls in the program.

The functions are those of their interface tables, which ggml's own functions call too; so they are found where a
library exports nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ggmltool.attach.files.loaded import library_function
from ggmltool.attach.gdb.link import FunctionCall, Late, Mappings
from ggmltool.attach.gdb.permission import is_confined
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.state.errors import LinkError
from ggmltool.state.memory import limits
from ggmltool.state.memory.pages import Reads, c_strings
from ggmltool.structs.layout import Layout


class CallsFunctions(Reads, Protocol):
    """Who reads memory and calls functions, as `Link` does."""

    @property
    def pid(self) -> int:
        """The process, if it is one that may be looked at from here; else 0."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer."""

    def call(self, calls: Sequence[FunctionCall]) -> list[int | None]:
        """Call functions in the program, one after the other."""


class Questions:
    """Functions that are to be called, all together; the answers come by the key that each was asked with.

    A pointer that no function can be at is not called. In a dead program functions that do more than read have no
    answer.
    """

    def __init__(self, link: CallsFunctions, mappings: Mappings) -> None:
        self.link = link
        self._mappings = mappings
        self._calls: dict[Any, FunctionCall] = {}
        self.failed: list[str] = []

    @property
    def unanswered(self) -> tuple[str, ...]:
        """What could not be asked, in words."""
        return (f"{len(self.failed)} functions that could not be asked ({self.failed[0]})",) if self.failed else ()

    @property
    def live(self) -> bool:
        """Whether anything can be called at all."""
        return self._mappings.live

    def add(self, key: Any, function: int, result: str, *arguments: int) -> bool:
        """Ask a function; whether it can be asked."""
        if not self._mappings.runs(function):
            return False
        self._calls[key] = FunctionCall(function, result, arguments)
        return True

    def answers(self) -> dict[Any, int | None]:
        """What all of them say; what fails has no answer."""
        asked, self._calls = self._calls, {}
        if not asked:
            return {}
        try:
            return dict(zip(asked, self.link.call(list(asked.values())), strict=True))
        except LinkError:
            out: dict[Any, int | None] = {}
            for key, call in asked.items():
                try:
                    (out[key],) = self.link.call([call])
                except Late as error:
                    self.failed.append(str(error))
                    break
                except LinkError as error:
                    self.failed.append(str(error))
            return out

    def words(self) -> dict[Any, str]:
        """The same of functions that give back a C string."""
        found = {key: address for key, address in self.answers().items() if address}
        read = c_strings(self.link, list(found.values()))
        return {key: text for key, text in zip(found, read, strict=True) if text is not None}


def type_names(questions: Questions, symbols: Mapping[str, int], layout: Layout, used: Iterable[int]) -> dict[int, str]:
    """ggml_type_name of each number; where it cannot be called, by the enum of this ggml."""
    numbers = sorted({n for n in used if 0 <= n < limits.TYPES})
    own = _numbered(layout, "ggml_type")
    ours = {name.lower(): name for name in TYPES}
    names = {n: ours.get(own[n].lower(), own[n].lower()) for n in numbers if n in own}
    return names | _called(questions, symbols, "ggml_type_name", numbers)


def op_names(
    questions: Questions, symbols: Mapping[str, int], layout: Layout, used: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """ggml's name of each op with the first word of its parameters: of UNARY and GLU it is that of the function."""
    pairs = {(op, word) for op, word in used if 0 <= op < limits.TYPES}
    own = _numbered(layout, "ggml_op")
    numbers = sorted({op for op, _ in pairs})
    names = {n: own[n] for n in numbers if n in own} | _called(questions, symbols, "ggml_op_name", numbers)
    functions: dict[tuple[str, int], str] = {}
    for op, enum in (("UNARY", "ggml_unary_op"), ("GLU", "ggml_glu_op")):
        words = sorted({word for n, word in pairs if names.get(n) == op and 0 <= word < limits.TYPES})
        own = _numbered(layout, enum)
        found = {n: own[n] for n in words if n in own} | _called(questions, symbols, f"{enum}_name", words)
        functions |= {(op, n): name for n, name in found.items()}
    return {(op, word): functions.get((names[op], word), names[op]) for op, word in pairs if op in names}


def _called(questions: Questions, symbols: Mapping[str, int], function: str, numbers: Sequence[int]) -> dict[int, str]:
    address = symbols.get(function, 0)
    for n in numbers:
        questions.add(n, address, "unsigned long", n)
    return questions.words()


def _numbered(layout: Layout, enum: str) -> dict[int, str]:
    """The members of an enum by number, without what they all begin with."""
    if enum not in layout.enums:
        return {}
    prefix = {"ggml_backend_dev_type": "GGML_BACKEND_DEVICE_TYPE_"}.get(enum, f"{enum.upper()}_")
    members = layout.enums[enum].members
    return {n: name.removeprefix(prefix) for name, n in members.items() if not name.endswith("_COUNT")}


def device_type(layout: Layout, number: int) -> str:
    """A name of ggml_backend_dev_type in lower case."""
    return _numbered(layout, "ggml_backend_dev_type").get(number, f"type {number}").lower()


_READ_AND_WRITE = 3
_PRIVATE_AND_ANONYMOUS = 0x22


class NoRoom(LinkError):  # noqa: N818 - it says what is the matter
    """The program cannot give memory; the message says why."""


def mapped(link: CallsFunctions, nbytes: int) -> int:
    """Where so many bytes were mapped. Raises NoRoom, LinkError."""
    if is_confined(link.pid):
        raise NoRoom("the program is in a sandbox of its own (seccomp), which may end it for asking the system")
    mmap = _function(link, "mmap")
    if mmap is None:
        raise NoRoom("the program has no mmap")
    how = (0, nbytes, _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, SIZE_MAX, 0)
    (found,) = link.call([FunctionCall(mmap, "unsigned long", how)])
    if not found or found > SIZE_MAX - nbytes:
        raise NoRoom("the program has no memory left")
    return found


def unmapped(link: CallsFunctions, address: int, nbytes: int) -> None:
    """Give them back. Raises LinkError."""
    munmap = _function(link, "munmap")
    if munmap is not None:
        link.call([FunctionCall(munmap, "int", (address, nbytes))])


def _function(link: CallsFunctions, name: str) -> int | None:
    """The address of a function of the C library: gdb takes longer than its file."""
    found = library_function(link.pid, name) if link.pid else None
    if found is not None:
        return found
    try:
        return int(link.ask("evaluate", f"(unsigned long)&{name}"))
    except LinkError:
        return None
