"""What the screen shows of a history: the graph of a step in program order, and the state of all of it at a point."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.debugger.screen.timeline import Place, Planning, SchedulerWork, TensorSpan, Timeline
from ggmltool.debugger.walk import Stop, StopReason, Walker
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import SPLIT_GRAPH, Said
from ggmltool.ggml.tensor import Tensor, dims
from ggmltool.show.text import count
from ggmltool.state.story.arguments import ArgumentPointer
from ggmltool.state.story.calls import MAIN
from ggmltool.state.story.history import START
from ggmltool.state.story.points import ENDLESS, said_until

if TYPE_CHECKING:
    from ggmltool.ggml.device import Backend
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.state import SplitState, TensorState
    from ggmltool.inspect.opened import Opened
    from ggmltool.state.story.arguments import Argument
    from ggmltool.state.story.history import History, Point
    from ggmltool.state.story.points import Cells

Asked = Mapping[str, Sequence[tuple[int, Said]]]
"""What was said of each tensor, with the point of each."""

_KEPT_STATES = 64
_MOST_MARKS = 200
"""Points of a breakpoint that are marked."""


@dataclass(frozen=True, slots=True)
class SceneTensor:
    """A tensor of a graph: its `number` among the nodes (or leafs), its index in the cells, how it is called."""

    number: int
    index: int
    label: str
    op: str
    shape: str
    is_leaf: bool


class ProgramOrder(NamedTuple):
    """A graph in program order, nodes before leafs; `at` finds a tensor among the members."""

    graph: str
    members: Sequence[SceneTensor]
    at: dict[str, int]
    n_nodes: int

    def numbered(self, name: str) -> str:
        """A node with its number in the graph; a copy of the scheduler's has none."""
        at = self.at.get(name)
        return name if at is None or self.members[at].is_leaf else f"{self.members[at].number} {name}"


NO_PROGRAM = ProgramOrder("", (), {}, 0)


class SceneChunk(NamedTuple):
    """A chunk of a compute buffer as the planner has it: what lies there in order of offsets, the free blocks between,
    the highest byte ever used, and the bytes that the whole plan needs."""

    place: Place
    backends: tuple[str, ...]
    spans: tuple[TensorSpan, ...]
    free: tuple[tuple[int, int], ...]
    max_size: int
    extent: int


@dataclass(frozen=True)
class Now:
    """The state at point `at`."""

    scene: Scene
    at: int
    cells: Cells

    @property
    def point(self) -> Point:
        """The point itself."""
        return self.scene.history.points[self.at]

    @cached_property
    def program(self) -> ProgramOrder:
        """The graph that the step works on."""
        return self.scene.program(self.at)

    @cached_property
    def planning(self) -> Planning | None:
        """The allocator's newest walk."""
        return self.scene.timeline.planning(self.at)

    def backend(self, index: int) -> str:
        """The backend of a tensor now, "" if it has none."""
        number = self.cells.get(("id", index), -1)
        return self.scene.backends[number] if 0 <= number < len(self.scene.backends) else ""

    def cause(self, index: int) -> str:
        """ggml's label of the rule that gave a tensor its backend."""
        return self.cells.get(("cause", index)) or "" if self.backend(index) else ""

    def label(self, index: int) -> str:
        """How a tensor of the cells is called."""
        cell = self.cells.get(("tensor", index))
        return f"#{index}" if cell is None else cell.label

    @cached_property
    def splits(self) -> tuple[SplitState, ...]:
        """The splits there are now."""
        n = self.cells.get(("sched", "n_splits"), 0)
        found = (self.cells.get(("split", i)) for i in range(n))
        return tuple(s for s in found if s is not None)

    def span(self, label: str) -> TensorSpan | None:
        """Where a tensor lies now, else where it lay last or will lie first in this plan."""
        if self.planning is None:
            return None
        spans = self.planning.by_tensor.get(label, ())
        begun = [s for s in spans if s.first <= self.at]
        return next((s for s in spans if s.alive(self.at)), begun[-1] if begun else spans[0] if spans else None)

    @cached_property
    def chunks(self) -> tuple[SceneChunk, ...]:
        """The chunks of all compute buffers, those that backends share once."""
        return tuple(self._chunks())

    def _chunks(self) -> Iterator[SceneChunk]:
        plan = self.planning
        alive = [] if plan is None else [s for s in plan.spans if s.alive(self.at)]
        for buft in dict.fromkeys(self.scene.bufts):
            b = self.scene.bufts.index(buft)
            backends = tuple(n for n, t in zip(self.scene.backends, self.scene.bufts, strict=True) if t == buft)
            planned = [] if plan is None else [c for name, c in plan.extent if name == buft]
            c = 0
            while ("max_size", b, c) in self.cells or c in planned or c == 0:
                place = (buft, c)
                max_size = self.cells.get(("max_size", b, c), 0)
                extent = max(max_size, 0 if plan is None else plan.extent.get(place, 0))
                free = tuple(
                    (offset, min(nbytes, max(max_size - offset, 0)) if nbytes >= ENDLESS else nbytes)
                    for offset, nbytes in self.cells.get(("free", b, c), ())
                )
                there = [s for s in alive if s.place == place and not _is_inside(s, self.cells.get(("free", b, c), ()))]
                there.sort(key=lambda s: s.offset)
                yield SceneChunk(place, backends, tuple(there), tuple(f for f in free if f[1] > 0), max_size, extent)
                c += 1


class Scene:
    """A history and what the screen knows of it beforehand. `walker` is where one is in it, `error` ggml's
    message where the run was refused."""

    def __init__(self, opened: Opened, history: History, walker: Walker | None = None) -> None:
        self.opened = opened
        self.history = history
        self.timeline = Timeline(history.points)
        self.walker = Walker(history) if walker is None else walker
        self.error = "" if history.error is None else history.error.get("message") or "ggml failed"
        self._fresh = opened.scenario.start()
        self.backends: list[str] = []
        self.bufts: list[str] = []
        try:
            sched = self._fresh.start()
            self.backends = list(sched.names)
            self.bufts = [b.name for b in sched.gallocr.bufts]
        except GgmlError:
            self.backends = [b.name for b in opened.model.backends]
        self.now = lru_cache(_KEPT_STATES)(lambda at: Now(self, at, history.cells(at)))
        self.built = lru_cache(None)(self._built)
        self.readers = lru_cache(None)(self._readers)
        self._said = lru_cache(None)(self._asked)
        self._programs: dict[int, ProgramOrder] = {}

    @property
    def last(self) -> int:
        """The last point."""
        return len(self.history.points) - 1

    def frames(self, at: int) -> list[str]:
        """The functions of ggml that a point is inside of, the innermost first."""
        return [name for name in self.history.functions(at) if name != MAIN]

    def programs(self) -> list[ProgramOrder]:
        """The graphs of all steps."""
        return [self.program(mark) for mark in self.timeline.step_marks]

    def calls(self, at: int) -> list[tuple[str, str]]:
        """Those functions with their arguments."""
        now = self.now(at)
        return [
            (frame.function, ", ".join(f"{name}={_argument(now, value)}" for name, value in frame.arguments))
            for frame in self.history.stack(at)
            if frame.function != MAIN
        ]

    def depth(self, at: int) -> int:
        """How many of ggml's functions that are announced a point is inside of."""
        return len(self.history.entered[at])

    def asked(self, at: int) -> Asked:
        """What was said of each tensor while the graph was split that a point belongs to, with the points: the newest
        split of the step up to there, else the first of it."""
        first, last = self.step_of(at)
        splits = [w for w in self.timeline.work if w.function in SPLIT_GRAPH and first <= w.first <= last]
        begun = [w for w in splits if w.first <= at]
        work = begun[-1] if begun else splits[0] if splits else None
        return {} if work is None else self._said(work)

    def _asked(self, work: SchedulerWork) -> Asked:
        out: dict[str, list[tuple[int, Said]]] = {}
        for at, said in reversed(list(said_until(self.history.points, work.last))):
            out.setdefault(said.tensor, []).append((at, said))
        return out

    def step_title(self, step: int) -> str:
        """A step as people call it."""
        steps = self.opened.model.steps
        return "start" if step == START else str(steps[step]) if step < len(steps) else f"step {step + 1}"

    def step_of(self, at: int) -> tuple[int, int]:
        """The first and the last point of the step that a point is in."""
        marks = self.timeline.step_marks
        place = max(bisect_right(marks, at) - 1, 0)
        return marks[place], (marks[place + 1] if place + 1 < len(marks) else self.last + 1) - 1

    def program(self, at: int) -> ProgramOrder:
        """The graph of the step that a point is in; of a step that has none, that of the one before, or of the next."""
        first, last = self.step_of(at)
        if first not in self._programs:
            steps = self.opened.model.steps[: self.history.points[first].step + 1]
            graph = next((s.graph for s in reversed(steps) if s.graph is not None), "")
            found = self._program(graph, last) if graph else NO_PROGRAM
            if not found.members and last < self.last:
                found = self.program(last + 1)
            self._programs[first] = found
        return self._programs[first]

    def _program(self, graph: str, at: int) -> ProgramOrder:
        cells = self.now(at).cells
        members = []
        for kind, is_leaf in (("nodes", False), ("leafs", True)):
            for number, index in enumerate(cells.get(("cgraph", graph, kind), ())):
                cell: TensorState = cells["tensor", index]
                op = cell.op_desc if cell.op != "NONE" else ""
                members.append(SceneTensor(number, index, cell.label, op, f"{cell.type}{dims(cell.ne)}", is_leaf))
        n_nodes = sum(not m.is_leaf for m in members)
        return ProgramOrder(graph, members, {m.label: i for i, m in enumerate(members)}, n_nodes)

    def _built(self, graph: str) -> dict[str, Tensor]:
        """The tensors of a graph before anything is planned, by id: what backends are asked about."""
        try:
            built: CGraph = self._fresh.build(graph)
        except GgmlError:
            return {}
        return {t.id: t for t in (*built.leafs, *built.nodes)}

    def _readers(self, graph: str) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for t in self.built(graph).values():
            for src in dict.fromkeys(s.label for s in t.src if s is not None):
                out.setdefault(src, []).append(t.label)
        return out

    @property
    def marked(self) -> list[int]:
        """The points of breakpoints, of each the first ones."""
        return [at for one in self.walker.breakpoints.enabled for at in one.places[:_MOST_MARKS]]

    def stops_at(self, at: int) -> bool:
        """Whether a breakpoint stands at a point."""
        return any(is_in(one.places, at) for one in self.walker.breakpoints.enabled)

    def toggle(self, what: str, places: Sequence[int]) -> str:
        """Set a breakpoint, or delete the one that stands there; what was done."""
        breakpoints = self.walker.breakpoints
        there = next((one for one in breakpoints.values() if one.what == what), None)
        if there is not None:
            del breakpoints[there.number]
            return f"Deleted breakpoint {there.number} at {what}"
        if not places:
            return f"Nothing happens to {what or 'nothing'}: no breakpoint."
        made = breakpoints.add(what, places)
        return f"Breakpoint {made.number} at {what}: {count(len(places), 'event')}. c and r go there."

    def stop_text(self, stop: Stop) -> str:
        """Why it stopped."""
        if stop.hits:
            return "; ".join(f"Breakpoint {hit.breakpoint.number}, {hit.breakpoint.what}" for hit in stop.hits)
        if stop.reason is StopReason.ABORTED:
            return f"The end: ggml refused to go on: {self.error}"
        without = "" if len(self.walker.breakpoints) else " b sets a breakpoint at the selected tensor."
        where = (
            "The beginning: no breakpoint before."
            if stop.reason is StopReason.START
            else "The end: no breakpoint behind."
        )
        return f"{where}{without}"

    @property
    def devices(self) -> Sequence[Backend]:
        """The backends, to be asked what they support."""
        return self._fresh.backends


def is_in(points: Sequence[int], at: int) -> bool:
    """Whether a point is one of these, which are in order."""
    place = bisect_left(points, at)
    return place < len(points) and points[place] == at


def _is_inside(span: TensorSpan, free: Sequence[tuple[int, int]]) -> bool:
    """Whether a tensor's memory was free all the same: an allocator that is reset forgets what lies there."""
    return any(offset <= span.offset < offset + nbytes for offset, nbytes in free)


def _argument(now: Now, value: Argument) -> str:
    """An argument as people call it: a tensor and a backend by their names, the rest by kind and number."""
    if not isinstance(value, ArgumentPointer):
        return str(value)
    if isinstance(value.index, str):
        return value.index or value.kind
    if value.kind == "tensor":
        return now.label(value.index)
    if value.kind == "backend" and value.index < len(now.scene.backends):
        return now.scene.backends[value.index]
    return f"{value.kind} {value.index}" if value.index or value.kind in ("split", "id") else value.kind
