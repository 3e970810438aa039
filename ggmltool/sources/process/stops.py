"""Which calls of a program are stopped at: those that reserve, allocate or compute a graph, each counted once."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

from ggmltool.layouts.layout import layout
from ggmltool.sources.process.errors import AttachError, Dies
from ggmltool.sources.process.instance import Instance
from ggmltool.sources.process.session import Session
from ggmltool.sources.process.state import Function

At = Literal["reserve", "alloc", "compute", "any"]

RESERVE: tuple[Function, ...] = ("ggml_backend_sched_reserve",)
ALLOC: tuple[Function, ...] = ("ggml_backend_sched_alloc_graph",)
COMPUTE: tuple[Function, ...] = ("ggml_backend_sched_graph_compute_async", "ggml_backend_sched_graph_compute")
FUNCTIONS: dict[At | None, tuple[Function, ...]] = {
    "reserve": RESERVE,
    "alloc": ALLOC,
    "compute": COMPUTE,
    "any": RESERVE + ALLOC + COMPUTE,
    None: ALLOC + COMPUTE,
}
"""By what was asked for; None: a graph that is computed, when the program lets it be allocated."""


class Called(NamedTuple):
    """A call that the program has just entered: with which scheduler and graph. `number` is which of those that are
    counted it is, from 1; `allocated`: the graph was allocated before, so nothing is decided any more."""

    function: Function
    sched: int
    graph: int
    number: int
    allocated: bool


def calls(session: Session, at: At | None, seconds: float | None = None) -> Iterator[Called]:
    """The calls that count, one after the other; the program stands at the entry of each. A call that ggml makes itself
    within another that counts is not counted again. `seconds`: how long each may be waited for. Raises AttachError
    where none comes any more."""
    functions = FUNCTIONS[at]
    number = 0
    allocating: set[int] = set()
    skipped: set[int] = set()
    while True:
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            try:
                session.stop_at(functions, None if until is None else max(0.1, until - time.monotonic()))
            except Dies:
                raise
            except AttachError as error:
                raise AttachError(f"{error}{_after(number)}", error.refused) from None
            function = _function(session)
            sched, graph = session.link.arguments()[:2]
            session.entered = sched, graph
            if within(session, functions):
                continue
            allocated = function in COMPUTE and _is_allocated(session, sched)
            if at is None and function in ALLOC:
                allocating.add(sched)
            elif at is None and allocated and (sched in allocating or sched not in skipped):
                # Its graph was counted when it was allocated, or is allocated anew the next time, as far as we know.
                skipped.add(sched)
                continue
            break
        number += 1
        yield Called(function, sched, graph, number, allocated)


def within(session: Session, functions: tuple[str, ...]) -> bool:
    """Whether one of these functions called the one that the program has just entered."""
    back = session.link.ask("entered")[1]
    return function_at(session.instance, back) in functions


def function_at(instance: Instance, address: int) -> str:
    """The function whose code lies at an address, as far as symbols tell: the last that begins before it."""
    ordered = sorted((at, name) for name, at in instance.symbols.items())
    n = bisect_right(ordered, (address, "\x7f"))
    return ordered[n - 1][1] if n else ""


def _after(number: int) -> str:
    return f"; {number} such {'call' if number == 1 else 'calls'} came before" if number else ""


def _function(session: Session) -> Function:
    for function in FUNCTIONS["any"]:
        if session.function() == function:
            return function
    raise AttachError("the program does not stand at the beginning of a function")


def _is_allocated(session: Session, sched: int) -> bool:
    fields = layout(session.instance.structs).struct("ggml_backend_sched").members or {}
    found = fields.get("is_alloc")
    return found is not None and session.link.read(sched + found.offset, 1) != b"\0"
