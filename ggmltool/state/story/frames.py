"""The call stack of a point: ggml's functions with their arguments, as a debugger's `bt` has them.

Functions that the engine announces are there from their `Entered` to their `Left`; those between them and a decision
follow from what was decided, and who calls whom in the release (`calls.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from ggmltool.ggml import events
from ggmltool.ggml.events import Event
from ggmltool.ggml.why import Why
from ggmltool.state.story.arguments import Argument, Arguments
from ggmltool.state.story.calls import MAIN, CallGraph, calls_of, lasts, own_function
from ggmltool.state.story.points import Announced, AnyHistory, Point, about

_FROM_BUFFER = "ggml_backend_sched_backend_from_buffer"
_FROM_CUR = "ggml_backend_sched_backend_id_from_cur"
_IF_SUPPORTED = "ggml_backend_sched_set_if_supported"
_SPLIT_GRAPH = "ggml_backend_sched_split_graph"
_SUPPORTS_OP = "ggml_backend_device_i.supports_op"
_OFFLOAD = "ggml_backend_device_i.offload_op"


class Innermost(NamedTuple):
    """A function, those on the way out of it that say which of several callers it is, and whose it is: a backend's, or
    a buffer type's."""

    function: str
    via: tuple[str, ...] = ()
    backend: str = ""
    buft: str = ""


_SIMPLE: Mapping[type, str] = {
    events.SplitStarted: _SPLIT_GRAPH,
    events.InputAdded: _SPLIT_GRAPH,
    events.GraphInputCopied: _SPLIT_GRAPH,
    events.IdsChanged: "ggml_backend_sched_alloc_splits",
    events.AllocationStarted: "ggml_gallocr_alloc_graph_impl",
    events.Allocated: "ggml_dyn_tallocr_alloc",
    events.Reused: "ggml_gallocr_allocate_node",
    events.NotReused: "ggml_gallocr_allocate_node",
    events.Kept: "ggml_gallocr_free_node",
}
"""Where events come about that say no more."""
_OF_BACKEND: Mapping[type, str] = {
    events.Reordered: "ggml_backend_i.graph_optimize",
    events.KeptUntil: "ggml_backend_i.graph_optimize",
    events.Synchronized: "ggml_backend_i.synchronize",
    events.Computed: "ggml_backend_i.graph_compute",
}
"""Functions of the backend that an event has."""
_EVENT_CALLS = {
    "record": "ggml_backend_i.event_record",
    "wait": "ggml_backend_i.event_wait",
    "synchronize": "ggml_backend_device_i.event_synchronize",
}


def innermost(event: Event) -> Innermost | None:
    """Where an event comes about in a ggml that reserves; None where that is the function that was announced last."""
    if type(event) in _SIMPLE:
        return Innermost(_SIMPLE[type(event)])
    match event:
        case events.Assigned() | events.PassedOver() | events.Refused():
            return _of_rule(event)
        case (
            events.Reordered(backend)
            | events.KeptUntil(backend)
            | events.Synchronized(backend)
            | events.Computed(_, backend)
        ):
            return Innermost(_OF_BACKEND[type(event)], backend=backend)
        case events.ReallocNeeded(Why.N_NODES | Why.N_LEAFS):
            return Innermost("ggml_gallocr_needs_realloc")
        case events.ReallocNeeded():
            return Innermost("ggml_gallocr_node_needs_realloc")
        case events.Grown(buft):
            return Innermost("ggml_backend_buffer_type_i.alloc_buffer", buft=buft)
        case events.Freed(extra=extra):
            by = "ggml_gallocr_free_extra_space" if extra else "ggml_gallocr_free_node"
            return Innermost("ggml_dyn_tallocr_free_bytes", (by,))
        case events.Logged(_, text):
            return Innermost(text.partition(":")[0])
        case events.UsedAfterFree(node=node) if node:
            return Innermost("ggml_backend_sched_compute_splits")
        case events.EventCall(call, backend):
            return Innermost(_EVENT_CALLS[call], backend=backend)
        case events.TensorCopied(how="async"):
            return Innermost("ggml_backend_i.cpy_tensor_async", buft=event.dst_buft)
        case events.TensorCopied(how="set" | "cpy" as how):
            return Innermost(f"ggml_backend_buffer_i.{how}_tensor", buft=event.dst_buft)
        case events.TensorCopied(how="get"):
            return Innermost("ggml_backend_buffer_i.get_tensor", buft=event.src_buft)
        case events.TensorCopied():
            return Innermost("ggml_backend_tensor_copy")
        case events.TensorWritten(buft=buft, get=get):
            return Innermost(f"ggml_backend_buffer_i.{'get' if get else 'set'}_tensor", buft=buft)
    return None


def _of_rule(event: events.Assigned | events.PassedOver | events.Refused) -> Innermost:
    backend, cause = event.backend, event.cause
    if event.rule == 0:
        return Innermost("ggml_backend_sched_set_tensor_backend")
    match event:
        case events.Refused(rule=rule):
            asks = {1: _FROM_CUR if cause == "1.off" else _FROM_BUFFER, 2: _IF_SUPPORTED}
            return Innermost(_SUPPORTS_OP, (asks.get(rule, _SPLIT_GRAPH),), backend)
        case events.PassedOver(why=Why.BUFT):
            return Innermost("ggml_backend_device_i.supports_buft", (), backend)
        case events.PassedOver(why=Why.SMALL_BATCH | Why.NEVER_OFFLOADS) | events.Assigned(why=Why.OFFLOAD):
            return Innermost(_OFFLOAD, (), backend)
        case events.Assigned(why=Why.MEMORY | Why.WEIGHT):
            return Innermost(_FROM_BUFFER)
        case events.Assigned(why=Why.NEIGHBOR | Why.FIRST_ABLE):
            return Innermost(_IF_SUPPORTED)
    return Innermost(_FROM_CUR if event.rule == 1 else _SPLIT_GRAPH)


_COPY_INPUT = "ggml_backend_sched_copy_input"
_RESERVE = "ggml_gallocr_reserve"
_SET_ASYNC = "ggml_backend_i.set_tensor_async"


class Frame(NamedTuple):
    """A function on the stack, and its arguments by the names of its parameters."""

    function: str
    arguments: tuple[tuple[str, Argument], ...] = ()


def functions_at(history: Announced, at: int) -> tuple[str, ...]:
    """The functions on the stack of a point, innermost first and main last."""
    return tuple(name for name, _ in _stack(history, at))


def stack_at(history: AnyHistory, at: int, entered: bool = False) -> tuple[Frame, ...]:
    """The frames of a point, innermost first and main last, with the arguments that functions were `entered` with or
    those that they have then. Where ggml aborts, a function that no event tells of has no arguments."""
    framed = _framing(history, at, entered)
    return tuple(framed(name, key) for name, key in _stack(history, at))


def frame_at(history: AnyHistory, at: int, number: int, entered: bool = False) -> Frame | None:
    """One of those frames, None if there are not so many."""
    if number < 0:
        return None
    name, key = next(islice(_stack(history, at), number, None), ("", ""))
    return _framing(history, at, entered)(name, key) if name else None


def key_at(history: Announced, at: int, number: int) -> str:
    """The key in the data of the release of the function of a frame."""
    return next(islice(_stack(history, at), number, None))[1]


def _framing(history: AnyHistory, at: int, entered: bool) -> Callable[[str, str], Frame]:
    """What makes a frame of a point of a function's name and key."""
    parameters = calls_of(history.release).parameters
    if _aborted_in(history, at) is None:
        arguments, known = Arguments(history, at, entered), None
    else:
        arguments, known = Arguments(history, at - 1), (*functions_at(history, at - 1), MAIN)

    def framed(name: str, key: str) -> Frame:
        told = parameters.get(key, ()) if known is None or key in known else ()
        return Frame(name, tuple((p, arguments.of(key, p)) for p in told))

    return framed


def _stack(history: Announced, at: int) -> Iterator[tuple[str, str]]:
    """The functions on the stack, each by its name and by its key in the data of the release."""
    calls = calls_of(history.release)
    aborted = _aborted_in(history, at)
    outer = (*history.entered[at if aborted is None else at - 1], MAIN)
    if aborted and aborted in calls.callers and aborted != outer[0]:
        yield from ((key, key) for key in _between(calls, [aborted], outer[0]))
    event = history.points[at].event
    most = None if event is None else innermost(event)
    if event is not None and most is not None:
        whose = most._replace(function=calls.called(most.function))
        whose = _set_at_once(history, calls, event, whose)
        whose = _asked_last(history, calls, event, whose)
        stations = [whose.function, *(calls.called(f) for f in (*most.via, *_copying(history, at)))]
        # What the program writes is its own call, wherever in a step it does.
        around = MAIN if isinstance(event, events.TensorWritten) else outer[0]
        yield from _named(history, whose, _between(calls, [f for f in stations if f in calls.callers], around))
    for inner, around in pairwise(outer):
        via = [_RESERVE] if _reserves_itself(history, at, inner, around) else []
        yield from ((key, key) for key in _between(calls, [inner, *via], around))
    yield MAIN, MAIN


def _aborted_in(history: Announced, at: int) -> str | None:
    """The function in which ggml refuses to go on, if it is at this point that it does; None elsewhere."""
    if not at or history.error is None or at != len(history.points) - 1:
        return None
    return history.error.get("function") or ""


def _between(calls: CallGraph, stations: Sequence[str], outer: str) -> Iterator[str]:
    """The functions from the first station, by way of the others, to the one that `outer` calls; of what `outer` does
    itself, as where it logs, there are none."""
    if not stations:
        return
    for inner, around in zip(stations, (*stations[1:], outer), strict=True):
        yield from calls.path(inner, around)


def _named(history: Announced, most: Innermost, keys: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The functions with their names: those in the tables of a backend have the backend's, if it has them."""
    for key in keys:
        name = own_function(_profile(history, most), history.release, key) if "." in key else key
        if name is not None:
            yield name, key


def function_of(history: Announced, buft: str, key: str) -> str | None:
    """What the device of a buffer type calls a function of its tables, None if it has none."""
    return own_function(_profile(history, Innermost("", buft=buft)), history.release, key)


def _profile(history: Announced, most: Innermost) -> str:
    """The kind of device that an innermost function belongs to, "" if there is none."""
    for backend in history.backends:
        if most.backend == backend.name or (most.buft and most.buft in (backend.memory, backend.buft)):
            return backend.profile
    return ""


def _set_at_once(history: Announced, calls: CallGraph, event: Event, most: Innermost) -> Innermost:
    """Where ggml_backend_tensor_set_async is between, a backend that has such a function is asked, not its buffer."""
    of_async = "ggml_backend_tensor_set_async" in calls.callers.get("ggml_backend_tensor_set", ())
    is_set = isinstance(event, events.TensorCopied) and event.how == "set"
    if of_async and is_set and own_function(_profile(history, most), history.release, _SET_ASYNC) is not None:
        return most._replace(function=_SET_ASYNC)
    return most


def _asked_last(history: Announced, calls: CallGraph, event: Event, most: Innermost) -> Innermost:
    """A backend that cannot use a buffer type of another kind of device has asked a function of its own for that."""
    if not isinstance(event, events.PassedOver) or event.why is not Why.BUFT:
        return most
    profile = _profile(history, most)
    if event.facts is not None and _profile(history, Innermost("", buft=event.facts.buft or "")) == profile:
        return most
    return most._replace(function=calls.asked_last(profile, most.function))


def _copying(history: Announced, at: int) -> Iterator[str]:
    """Whether an input of a split is being copied: what is waited for is waited for before a copy."""
    points = history.points
    if history.entered[at][:1] != ("ggml_backend_sched_compute_splits",):
        return
    while isinstance(event := points[at].event, events.Synchronized) or (
        isinstance(event, events.EventCall) and event.call != "record"
    ):
        at += 1
        if at == len(points):
            return
    if isinstance(points[at].event, events.TensorCopied):
        yield _COPY_INPUT


def _reserves_itself(history: Announced, at: int, inner: str, around: str) -> bool:
    """Whether ggml_gallocr_alloc_graph reserves, which it does if there is one buffer."""
    if (inner, around) != ("ggml_gallocr_reserve_n", "ggml_backend_sched_alloc_graph"):
        return False
    points = history.points
    while points[at].event != events.Entered(inner):
        at -= 1
    at -= 1
    while isinstance(points[at].event, events.Logged):
        at -= 1
    return isinstance(points[at].event, events.ReallocNeeded)


class Call(NamedTuple):
    """A call of `function`, which goes on from point `first` to `last`, both included. `caller` is the number of the
    call that made it, -1 for that of `main`; `depth` how many calls it is inside of."""

    function: str
    caller: int
    depth: int
    first: int
    last: int


class Calls:
    """All calls of a history by their numbers, in the order in which they begin. Number 0 is `main`."""

    def __init__(self, history: Announced) -> None:
        self._made: list[Call] = []
        self.innermost: list[int] = []
        """For each point the number of the call in which it is."""
        self._read(history)
        self._by_function: dict[str, list[int]] = {}
        for number, call in enumerate(self._made):
            self._by_function.setdefault(call.function, []).append(number)

    def __getitem__(self, number: int) -> Call:
        return self._made[number]

    def __len__(self) -> int:
        return len(self._made)

    @property
    def functions(self) -> Sequence[str]:
        """The functions that are called, in the order of their first calls."""
        return list(self._by_function)

    def starts(self, function: str) -> list[int]:
        """The points at which the function is entered."""
        return [self._made[number].first for number in self._by_function.get(function, ())]

    def at(self, point: int) -> list[int]:
        """The calls that a point is inside of, the innermost first, `main` last."""
        return list(self.outward(self.innermost[point]))

    def outward(self, number: int) -> Iterator[int]:
        """A call, and those it was made from."""
        while number >= 0:
            yield number
            number = self._made[number].caller

    def inside(self, number: int, outer: int) -> int | None:
        """The call made by `outer` itself that `number` is, or is inside of; None if it is not inside `outer`."""
        depth = self._made[outer].depth + 1
        for one in self.outward(number):
            if self._made[one].depth == depth:
                return one if self._made[one].caller == outer else None
        return None

    def _read(self, history: Announced) -> None:
        open_calls: list[int] = []
        keys: list[object] = []
        last = len(history.points) - 1
        for at, frames in enumerate(_stacks(history)):
            same = 0
            while same < min(len(frames), len(keys)) and keys[same] == frames[same]:
                same += 1
            for number in open_calls[same:]:
                self._made[number] = self._made[number]._replace(last=at - 1)
            del open_calls[same:], keys[same:]
            for frame in frames[same:]:
                caller = open_calls[-1] if open_calls else -1
                open_calls.append(len(self._made))
                keys.append(frame)
                self._made.append(Call(frame[0], caller, len(open_calls) - 1, at, last))
            self.innermost.append(open_calls[-1])


_ON_BACKEND = {"backend", "backend_src", "backend_dst", "dev", "device", "buft", "event"}
"""Parameters of functions that are asked of one backend or buffer type after the other."""

_Key = tuple[str, *tuple[object, ...]]


def _stacks(history: Announced) -> Iterator[list[_Key]]:
    """The functions that each point is inside of, the outermost first, each with what tells its call from the next.

    Functions that are announced are one call from their beginning to their end. Others are those of one decision: what
    is called for another tensor or backend is another call.
    """
    parameters = {name: frozenset(of) for name, of in calls_of(history.release).parameters.items()}
    copied = _copies_to_come(history.points)
    for at, point in enumerate(history.points):
        entered = history.entered[at]
        event = point.event
        tensor = "" if event is None else next(iter(about(event)), "")
        backend = getattr(event, "backend", ""), getattr(event, "buft", "")
        stack: list[_Key] = []
        for function in reversed(functions_at(history, at)):
            of = parameters.get(function, frozenset())
            if function == MAIN or function in entered or lasts(history.release, function):
                stack.append((function,))
            elif "input" in of:
                stack.append((function, copied[at]))
            else:
                stack.append((function, tensor, *(backend if of & _ON_BACKEND else ())))
        yield stack


def _copies_to_come(points: Sequence[Point]) -> list[int]:
    """For each point that of the next copy, itself included."""
    out: list[int] = []
    for at in range(len(points) - 1, -1, -1):
        copies = isinstance(points[at].event, events.TensorCopied)
        out.append(at if copies or not out else out[-1])
    return out[::-1]
