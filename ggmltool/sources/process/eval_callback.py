"""A graph that a program computes, stopped at after each node: by the scheduler's eval callback.

ggml asks a callback about every node before it computes it, and tells it when that is done. Ours is a function of the
program itself that answers yes to everything, with a breakpoint; afterwards the old one is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from ggmltool.layouts.layout import layout
from ggmltool.sources.process.constants import constant_function
from ggmltool.sources.process.errors import AttachError
from ggmltool.sources.process.fields import Record
from ggmltool.sources.process.link import Call, LinkError, LinkLost, Stop
from ggmltool.sources.process.session import Session

_ALL_BITS = (1 << 64) - 1
_BYTE = 0xFF
_SET = "ggml_backend_sched_set_eval_callback"


@dataclass(slots=True)
class Watched:
    """What came of it: nodes that were computed and stopped at, by address, and whether it was by the program's own
    eval callback, which decides which nodes those are."""

    nodes: list[int]
    own: bool


class EvalCallback:
    """The eval callback of a scheduler whose compute function the program has just entered."""

    def __init__(self, session: Session, sched: int) -> None:
        self.session = session
        self.link = session.link
        self.sched = sched
        fields = Record(layout(session.instance.structs), "ggml_backend_sched", ("callback_eval", "callback_eval_user_data"))
        self._old, self._old_user = fields.unpack(self.link.read(sched, fields.size))
        self._function, self._user = self._old, self._old_user
        self._points: list[int] = []

    @property
    def own(self) -> bool:
        """Whether the program has an eval callback of its own: then it stays, and decides which nodes it sees."""
        return bool(self._old)

    def watch(self, nodes: Collection[int], first: Callable[[], None], computed: Callable[[int], None]) -> Watched:
        """Let the program compute its graph. `first` is called before its first node is computed, `computed` after each
        of these `nodes` (their addresses). It returns where the compute function has returned; so it does if one of
        them raises. Raises AttachError.
        """
        stack, back = self.link.ask("entered")
        thread = self.session.stopped.thread if self.session.stopped else None
        out = Watched([], self.own)
        if not self.own:
            self._set(self._plain(), self.sched)
        inside = True
        try:
            (end,) = self.link.ask("break", [back], thread)
            self._points.append(end)
            inside = self._run(stack, back, [[2, _ALL_BITS, [self._user]]])
            if inside:
                first()
                tests = [[0, _ALL_BITS, sorted(nodes)], [1, _BYTE, [0]], [2, _ALL_BITS, [self._user]]]
                while inside := self._run(stack, back, tests):
                    node = self.link.arguments()[0]
                    computed(node)
                    out.nodes.append(node)
        finally:
            self._leave(inside, stack, back)
        return out

    def _plain(self) -> int:
        found = constant_function(self.link, self.session.instance.symbols, True)
        if found is None:
            raise AttachError("the program has no function that could serve as an eval callback")
        return found

    def _set(self, function: int, user: int) -> None:
        self.link.call([Call(self.session.instance.address(_SET), "void", (self.sched, function, user))])
        self._function, self._user = function, user

    def _run(self, stack: int, back: int, tests: list[list[object]]) -> bool:
        """Go on to the next call of the callback that passes the tests (True), or to the end of computing."""
        (point,) = [self.link.ask("break_if", self._function, tests)]
        self._points.append(point)
        try:
            while True:
                stop = self.link.go()
                if stop.reason == "breakpoint" and point in stop.numbers:
                    return True
                if self._returned(stop, stack, back):
                    self.session.stopped = stop
                    return False
                if stop.reason != "breakpoint":
                    raise AttachError(f"the program stopped while it computed: {stop.signal or stop.reason}", True)
        finally:
            with suppress(LinkError):
                self.link.ask("delete", [point])
            self._points.remove(point)

    def _returned(self, stop: Stop, stack: int, back: int) -> bool:
        return stop.reason == "breakpoint" and stop.pc == back and stop.sp >= stack

    def _leave(self, inside: bool, stack: int, back: int) -> None:
        """Have the old callback back. While nodes are computed one by one it cannot be taken away: that comes first."""
        with suppress(LinkLost):
            if inside and not self.own:
                with suppress(LinkError):
                    while not self._returned(stop := self.link.go(), stack, back):
                        if stop.reason != "breakpoint":
                            return
                    self.session.stopped = stop
            if not self.own:
                with suppress(LinkError):
                    self._set(self._old, self._old_user)
            self.link.ask("delete", self._points)
            self._points.clear()
