"""A history: the points of a run in order, and the state at each of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple, replace

from ggmltool.ggml import events
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.state import HashNodeState
from ggmltool.scenario.run.compiled import collector_paused
from ggmltool.scenario.run.run import values_of
from ggmltool.state.errors import InspectError, NoPoint, WrongArgument
from ggmltool.state.story.calls import lasts
from ggmltool.state.story.changes import Watcher
from ggmltool.state.story.frames import Frame, frame_at, functions_at, key_at, stack_at
from ggmltool.state.story.points import (
    GONE,
    START,
    AnyCells,
    BackendNames,
    Cells,
    Changes,
    Key,
    Labels,
    Point,
    Value,
    entered_at,
)
from ggmltool.state.story.shadow import cells_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ggmltool.ggml.buffer import Buffer
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.scenario import LoadedScenario
    from ggmltool.state.story.points import AnyHistory, Key, Value

TOLD_BEFORE = (
    events.Entered,
    events.Grown,
    events.TensorWritten,
    events.TensorCopied,
    events.Computed,
    events.Synchronized,
    events.EventCall,
)
"""Events that are told before ggml does what they say: their point is the entry of their function."""
_PLACES = ("free", "max_size", "cgraph", "tensor")


def at_entry(history: AnyHistory, at: int, innermost: bool = False) -> Changes:
    """What is otherwise than at point `at` where a call begins in which its event comes about; `innermost`: the call of
    the function that decides."""
    event = history.points[at].event
    if event is None or not at or isinstance(event, TOLD_BEFORE):
        return ()
    keys = [key for key, _ in history.changes[at]]
    index = history.labels(at).get(getattr(event, "tensor", ""), -1)
    now = {key: history.state(at).get(key, GONE) for key in keys}
    before = {key: history.state(at - 1).get(key, GONE) for key in keys}
    out = [(key, before[key]) for key in keys if _wrote(event, key, index)]
    if isinstance(event, events.Allocated | events.Reused | events.Freed):
        # Where the allocator begins, it clears its table.
        cleared = isinstance(begun := history.points[at - 1].event, events.AllocationStarted) and begun.at == -1
        out += _hash_nodes(now, {} if cleared else before)
        if innermost and isinstance(event, events.Allocated):
            out = [(k, replace(v, allocated=True) if k == ("hash_node", index) else v) for k, v in out]
    return tuple(out)


def _wrote(event: object, key: Key, index: int) -> bool:
    """Whether it is the event that wrote a cell that changed."""
    match event:
        case events.Allocated() | events.Reused() | events.Freed():
            return key[0] in _PLACES
        case events.Assigned() | events.PassedOver() | events.Refused():
            return key in (("id", index), ("cause", index))
    return isinstance(event, events.Reordered) and key[0] == "cgraph"


def _hash_nodes(now: dict[Key, Value], before: dict[Key, Value]) -> Iterator[tuple[Key, Value]]:
    """Entries of the allocator's table with the places that they had; children and views are counted before."""
    for key, new in now.items():
        if key[0] == "hash_node" and new is not GONE:
            old = before.get(key, GONE)
            place = (0, 0, 0, False) if old is GONE else astuple(old)[2:]
            yield key, HashNodeState(new.n_children, new.n_views, *place)


MAX_CHECKPOINTS = 24
"""So many whole states are kept of a history."""


class Deltas:
    """The changes of each point of a history, both ways, and checkpoints: whole states, evenly apart."""

    def __init__(self, changes: Sequence[Changes]) -> None:
        self.changes = changes
        self.undo: list[Changes] = []
        self.checkpoints: list[tuple[int, Cells]] = [(-1, {})]
        self.passed = [0]
        apart = sum(map(len, changes)) // MAX_CHECKPOINTS + 1
        cells: Cells = {}
        for at, here in enumerate(changes):
            self.undo.append(tuple([(key, cells.get(key, GONE)) for key, _ in here]))
            apply(cells, here)
            self.passed.append(self.passed[-1] + len(here))
            if self.passed[-1] // apart > self.passed[-2] // apart:
                self.checkpoints.append((at, dict(cells)))

    def cost(self, a: int, b: int) -> int:
        """How many changes and points are between two points."""
        return abs(self.passed[a + 1] - self.passed[b + 1]) + abs(a - b)


class Cursor:
    """A place in a history that moves: `cells` is the state at point `at`, the same mapping wherever it moves."""

    def __init__(self, timeline: Deltas, at: int = 0) -> None:
        self._timeline = timeline
        self._cells: Cells = {}
        self.at = -1
        self._instead: Changes = ()
        self.cells: Mapping[Key, Value] = MappingProxyType(self._cells)
        self.move_to(at)

    def move_to(self, at: int, but: Changes = ()) -> Mapping[Key, Value]:
        """The state at point `at`, `but` for what is otherwise at the moment that is meant. Raises IndexError if there
        is no such point."""
        timeline = self._timeline
        if not 0 <= at < len(timeline.changes):
            raise IndexError(f"the history has {len(timeline.changes)} points")
        apply(self._cells, self._instead)
        before = bisect_right(timeline.checkpoints, at, key=lambda checkpoint: checkpoint[0]) - 1
        start, state = timeline.checkpoints[before]
        # A change takes about eight times as long as a cell of a state that is copied.
        if timeline.cost(start, at) + len(state) // 8 < timeline.cost(self.at, at):
            self._cells.clear()
            self._cells.update(state)
            self.at = start
        for i in range(self.at + 1, at + 1):
            apply(self._cells, timeline.changes[i])
        for i in range(self.at, at, -1):
            apply(self._cells, timeline.undo[i])
        self.at = at
        self._instead = tuple([(key, self._cells.get(key, GONE)) for key, _ in but])
        apply(self._cells, but)
        return self.cells


def apply(cells: Cells, changes: Changes) -> None:
    """Make the changes in a state."""
    for key, value in changes:
        if value is GONE:
            cells.pop(key, None)
        else:
            cells[key] = value


_KEPT_AREAS = 16


@dataclass(eq=False)
class History:
    """The `points` of a run of a scenario, with `compute` all its steps, else those that plan. `backends` are in their
    order. `error` is what ggml refused in the last step, None if nothing."""

    scenario: LoadedScenario
    points: Sequence[Point]
    changes: Sequence[Changes]
    compute: bool
    backends: Sequence[BackendNames] = ()
    error: Mapping[str, str | None] | None = None
    _stopped: tuple[int, Sequence[Buffer]] | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Its fields: what was made to find answers is made again."""
        return {f.name: None if f.name == "_stopped" else getattr(self, f.name) for f in fields(self)}

    def _check(self, *points: int) -> None:
        """Raises NoPoint if one of these is none of its points."""
        for at in points:
            if at.__class__ is not int or not 0 <= at < len(self.points):
                raise NoPoint(f"there is no point {at}; the history has {len(self.points)} points, from 0 on")

    @property
    def release(self) -> str:
        """The name of the release that decides."""
        return self.scenario.model.release.name

    @cached_property
    def entered(self) -> Sequence[tuple[str, ...]]:
        """Of each point the functions that were announced to be entered and not left, innermost first."""
        return entered_at(self.points)

    def cells(self, at: int, phase: int = 0) -> Cells:
        """The state at a moment of point `at`."""
        self._check(at)
        return dict(self._cursor.move_to(*self.seen(at, phase)))

    def graph(self, at: int) -> str:
        """The graph that the step of point `at` is about, "" if none."""
        self._check(at)
        step = self.points[at].step
        return (self.scenario.model.steps[step].graph or "") if step >= 0 else ""

    def labels(self, at: int) -> Mapping[str, int]:
        """The tensors of point `at` by what events call them; of several those of that graph."""
        self._check(at)
        return self._labels.at(at, self._cursor.move_to(at), self.graph(at))

    @cached_property
    def _labels(self) -> Labels:
        return Labels(self.changes)

    def seen(self, at: int, phase: int) -> tuple[int, Changes]:
        """The point whose state is that of a moment of point `at`, and what is otherwise than there.

        Before `phase` 0, which is the point itself, calls that begin there are entered: -1 is the innermost one, -2 its
        caller. Behind it they return: 1 is where the innermost one has.
        """
        self._check(at)
        _check_number("phase", phase)
        if phase < 0:
            return at, at_entry(self, at, phase == -1)
        try:
            # A call that returns at a point may do more than that point's event, of which nothing tells.
            told_before = isinstance(self.points[at].event, TOLD_BEFORE)
            lasting = phase and at + 1 < len(self.points)
            if lasting and (told_before or lasts(self.release, key_at(self, at, phase - 1))):
                return at + 1, at_entry(self, at + 1)
        except StopIteration:
            raise NoPoint(f"point {at} has no phase {phase}") from None
        return at, ()

    def state(self, at: int) -> AnyCells:
        """The same without a copy: it holds until the next question to the history."""
        self._check(at)
        return self._cursor.move_to(at)

    def since(self, areas: frozenset[str], at: int) -> int:
        """The last point up to `at` at which a cell of some areas changed, -1 if none did: where it is the same for
        two points, so are those cells."""
        self._check(at)
        if not isinstance(areas, frozenset):
            raise WrongArgument(f"areas must be a frozenset, not {type(areas).__name__}")
        points = self._changing(areas)
        place = bisect_right(points, at)
        return points[place - 1] if place else -1

    @cached_property
    def _changing(self) -> Callable[[frozenset[str]], Sequence[int]]:
        """The points at which cells of some areas change."""
        return lru_cache(maxsize=_KEPT_AREAS)(
            lambda areas: [at for at, here in enumerate(self.changes) if any(key[0] in areas for key, _ in here)]
        )

    def cursor(self, at: int = 0) -> Cursor:
        """A place that moves through the history, with the state there: a step takes microseconds."""
        self._check(at)
        return Cursor(self._timeline, at)

    @cached_property
    def _timeline(self) -> Deltas:
        return Deltas(self.changes)

    @cached_property
    def _cursor(self) -> Cursor:
        return self.cursor()

    def stack(self, at: int, entered: bool = False) -> tuple[Frame, ...]:
        """The call stack of point `at`, innermost first and main last, in ggml's words of the release.

        It is that of the moment at which the decision was made, down to the function of the backend that was asked;
        who stops in a function shows the stack from it on. Arguments are those that a function has then, or those
        that it was `entered` with.
        """
        self._check(at)
        return stack_at(self, at, entered)

    def frame(self, at: int, number: int, entered: bool = False) -> Frame | None:
        """One frame of it, None if there are not so many."""
        self._check(at)
        _check_number("number", number)
        return frame_at(self, at, number, entered)

    def values(self, at: int, tensor: str) -> NDArray[Any]:
        """The values of a tensor at point `at`, found by computing up to it in a run of its own: shape `ne` reversed,
        float32 unless the type is an integer.

        Raises InspectError in a history whose steps were not computed, ScenarioError for a tensor that is not there,
        GgmlError for one without memory.
        """
        self._check(at)
        found: list[NDArray[Any]] = []
        if not self.compute:
            raise InspectError("the history has no values: its steps were not computed; record it with compute")

        from ggmltool.ggml.sched.unchecked import no_result

        def read(run: Run) -> None:
            t = run.tensor(tensor, "get")
            freed = run.rests_on(t)
            if freed is not None:
                raise no_result(t, freed)
            found.append(values_of(t))

        _stop_at(self.scenario, at, True, read)
        return found[0]

    def bytes_at(self, at: int, address: int, n: int) -> bytes:
        """Up to `n` bytes at an address in a buffer at point `at`, found by computing up to it; none where no buffer
        is, and in a history whose steps were not computed.
        """
        self._check(at)
        for buffer in self._buffers(at) if self.compute else ():
            start = address - buffer.base
            if buffer.base and 0 <= start < buffer.size:
                for first, content in buffer.mapped.items():
                    if 0 <= address - first < content.size:
                        return content[address - first :][:n].tobytes()
                return buffer.memory[start : start + n].tobytes()
        return b""

    def _buffers(self, at: int) -> Sequence[Buffer]:
        """The buffers of a run that was stopped at point `at`; those of the last such question are kept."""
        if self._stopped is None or self._stopped[0] != at:
            found: list[Buffer] = []

            def look(run: Run) -> None:
                found.extend(run.buffers)
                if run.sched is not None:
                    found.extend(run.sched.compute_buffers())

            _stop_at(self.scenario, at, True, look)
            self._stopped = at, found
        return self._stopped[1]

    def functions(self, at: int) -> tuple[str, ...]:
        """The functions of that stack, which need no state to be found."""
        self._check(at)
        return functions_at(self, at)

    def diff(self, a: int, b: int) -> set[Key]:
        """The keys of what is not the same at points `a` and `b`, or only there at one of them."""
        self._check(a, b)
        keys = {key for i in range(min(a, b) + 1, max(a, b) + 1) for key, _ in self.changes[i]}
        one = self.cells(a)
        other = self._cursor.move_to(b)
        return {key for key in keys if one.get(key, GONE) != other.get(key, GONE)}

    def changed(self, at: int) -> set[Key]:
        """The keys of what changed since the point before `at`."""
        self._check(at)
        return {key for key, _ in self.changes[at]}


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int):
        raise WrongArgument(f"{name} must be int, not {type(value).__name__}")


class _Stop(BaseException):
    """The point that was asked for is reached."""


def record_history(scenario: LoadedScenario, compute: bool = False) -> History:
    """The history of the scenario's own steps, up to one that fails."""
    points: list[Point] = []
    changes: list[Changes] = []
    watched: list[Watcher] = []

    def visit(run: Run, point: Point) -> None:
        if not watched:
            watched.append(Watcher(run))
        points.append(point)
        changes.append(watched[0].look(point))

    with collector_paused():
        error = visit_points(scenario, compute, visit)
    return History(scenario, points, changes, compute, backend_names(watched[0].run), error)


def backend_names(run: Run) -> Sequence[BackendNames]:
    """What the backends of a run are called."""
    memory = run.sched.memory_names if run.sched is not None else [b.device.buft.name for b in run.backends]
    profiles = [spec.family for spec in run.model.backends]
    names = zip(run.backends, memory, profiles, strict=False)
    return [BackendNames(b.name, b.device.buft.name, m, profile) for b, m, profile in names]


def walk_to(scenario: LoadedScenario, at: int, compute: bool = False) -> Cells:
    """The state of a fresh run that is stopped at point `at`."""
    found: list[Cells] = []
    _stop_at(scenario, at, compute, lambda run: found.append(cells_of(run)))
    return found[0]


def _stop_at(scenario: LoadedScenario, at: int, compute: bool, look: Callable[[Run], object]) -> None:
    """Look at a fresh run that is stopped at point `at`."""
    n = -1

    def stop(run: Run, point: Point) -> None:
        nonlocal n
        n += 1
        if n == at:
            look(run)
            raise _Stop

    try:
        visit_points(scenario, compute, stop)
    except _Stop:
        return
    raise IndexError(f"the history has {n + 1} points")


def visit_points(
    scenario: LoadedScenario, compute: bool, visit: Callable[[Run, Point], None]
) -> Mapping[str, str | None] | None:
    """Do the steps and visit every point; what ggml refused."""
    step = START
    run: Run = scenario.start(lambda event: visit(run, Point(step, event)), values=compute)
    visit(run, Point(step))
    try:
        run.start()
    except GgmlError as refused:
        return refused.as_dict()
    visit(run, Point(step, ends=True))
    for step, spec in enumerate(scenario.model.steps):
        if not compute and spec.kind not in (*run.plan_steps, "reset"):
            continue
        visit(run, Point(step))
        done = run.step(spec, step + 1)
        visit(run, Point(step, ends=True))
        if isinstance(done, Plan) and done.error is not None:
            return dict(done.error)
    return None


__all__ = ["START", "BackendNames", "Frame", "History", "Point", "record_history", "visit_points", "walk_to"]
