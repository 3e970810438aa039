"""A graph that a program computes, stopped at after each node: by the scheduler's eval callback.

ggml asks a callback about every node before it computes it, and tells it when that is done. Ours is a function of the
program itself that answers yes to everything, with a breakpoint; afterwards the old one is put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from ggmltool.attach.gdb.link import Dies, FunctionCall, GdbLink, ProgramStop
from ggmltool.attach.session import AttachSession
from ggmltool.state.errors import AttachError, LinkError
from ggmltool.state.memory.fields import StructFields
from ggmltool.structs.layout import layout

_LENGTH = 32
"""Bytes of code that are looked at: the longest of these functions has fewer."""

_X86 = (
    rb"(?:\xf3\x0f\x1e\xfa)?"  # endbr64
    rb"(?:\x55\x48\x89\xe5)?"  # push rbp; mov rbp, rsp
    rb"(?:\x48\x89\x7d[\x80-\xff])?(?:\x48\x89\x75[\x80-\xff])?"  # arguments put below the frame, never looked at
    rb"(?:%s)"
    rb"(?:\x5d)?"  # pop rbp
    rb"\xc3"  # ret
)
_ARM = (
    rb"(?:\x5f\x24\x03\xd5)?"  # bti c
    rb"(?:%s)"
    rb"\xc0\x03\x5f\xd6"  # ret
)
_CODES = (_X86 % rb"\xb8\x01\x00\x00\x00", _ARM % rb"\x20\x00\x80[\x52\xd2]")
"""What a function has to be, on x86-64 and arm64: the number 1 as its result, and nothing else."""

_LIKELY = re.compile(r"ggml_cpu_has_|ggml_backend_.*_(?:get_)?device_count|ggml_backend_.*is_host")


def constant_function(link: GdbLink, symbols: Mapping[str, int]) -> int | None:
    """The address of a function that takes no notice of its arguments and answers 1 (None: there is none). `symbols`
    are ggml's. It is one of ggml_cpu_has_…, which say at compile time what the CPU can do, or another whose code is as
    plain."""
    likely = [at for name, at in sorted(symbols.items()) if _LIKELY.match(name)]
    return _first(link, likely) or _first(link, symbols.values())


def _first(link: GdbLink, addresses: Iterable[int]) -> int | None:
    wanted = list(dict.fromkeys(addresses))
    codes = link.read_many([(address, _LENGTH) for address in wanted])
    for address, code in zip(wanted, codes, strict=True):
        if any(re.match(pattern, code, re.DOTALL) for pattern in _CODES):
            return address
    return None


_ALL_BITS = (1 << 64) - 1
_BYTE = 0xFF
_WORD = 8
_TO_THE_END = 60.0
"""How long the rest of a graph may take when we are to let go, in seconds."""
_SET = "ggml_backend_sched_set_eval_callback"


class EvalCallback:
    """The eval callback of a scheduler whose compute function the program has just entered."""

    def __init__(self, session: AttachSession, sched: int) -> None:
        self.session = session
        self.link = session.link
        self.sched = sched
        names = ("callback_eval", "callback_eval_user_data")
        fields = StructFields(layout(session.instance.structs), "ggml_backend_sched", names)
        self._old, self._old_user = fields.unpack(self.link.read(sched, fields.size))
        self._function, self._user = self._old, self._old_user
        self._back: tuple[int, int] = (0, 0)

    @property
    def own(self) -> bool:
        """Whether the program has an eval callback of its own: then it stays, and decides which nodes it sees."""
        return bool(self._old)

    def watch(self, nodes: Collection[int], first: Callable[[], None], computed: Callable[[int], None]) -> None:
        """Let the program compute its graph, up to where the compute function returns. `first` is called before the
        first node is computed, `computed` after each of these `nodes`, with its address. Whatever happens, the old
        callback is back when it ends. Raises AttachError, and what the two raise."""
        self._back = self.link.ask("entered")
        self.session.pass_by()
        thread = self.session.stopped.thread if self.session.stopped else None
        points = self.link.ask("break", [self._back[1]], thread)
        inside = True
        try:
            if not self.own:
                plain = constant_function(self.link, self.session.instance.symbols)
                if plain is None:
                    raise AttachError("the program has no function that could serve as an eval callback")
                self._set(plain, self.sched)
            user = [2, _ALL_BITS, [self._user]]
            points.append(self.link.ask("break_if", self._function, [user]))
            inside = self._goes_on(points[-1]) is not None
            if inside:
                first()
                self.link.ask("delete", [points.pop()])
                done = [[1, _BYTE, [0]], [0, _ALL_BITS, sorted(nodes)], user]
                points.append(self.link.ask("break_if", self._function, done))
                while stop := self._goes_on(points[-1]):
                    computed(stop.arguments[0])
                inside = False
            self._put_back()
        except Dies:
            # It goes nowhere from here but out: nothing asks a callback any more.
            with suppress(LinkError, AttachError):
                self._put_back()
            raise
        except BaseException:
            self._leave(inside, points)
            raise
        finally:
            with suppress(LinkError):
                self.link.ask("delete", points)

    def _set(self, function: int, user: int) -> None:
        self.link.call([FunctionCall(self.session.instance.address(_SET), "void", (self.sched, function, user))])
        self._function, self._user = function, user

    def _put_back(self) -> None:
        if self._function != self._old:
            self._set(self._old, self._old_user)

    def _goes_on(self, point: int) -> ProgramStop | None:
        """Go on to the next call of the callback that stops at its breakpoint, or to the end of computing (None)."""
        while True:
            stop = self.session.go()
            if point in stop.numbers:
                return stop
            if self._returned(stop):
                return None

    def _returned(self, stop: ProgramStop) -> bool:
        stack, back = self._back
        return stop.pc == back and 0 <= stop.sp - stack <= _WORD

    def _leave(self, inside: bool, points: list[int]) -> None:
        """Put the old callback back after all. While nodes are computed one by one it cannot be taken away, for then
        ggml would call nothing: that comes to its end first."""
        if self.link.guard is not None:
            self.link.guard.leave()
        with suppress(LinkError, AttachError):
            self.link.ask("delete", points[1:])
            while inside and self._function != self._old:
                inside = not self._returned(self.session.go(_TO_THE_END))
            self._put_back()
