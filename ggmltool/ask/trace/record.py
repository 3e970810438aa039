"""Everything that the engine announces while the steps of a scenario are done, and as text: a tree of calls under
ggml's function names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ask.events import EventRow, event_row
from ggmltool.ask.words import sentence, words
from ggmltool.ggml import events
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Computed, Event, UsedAfterFree
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Advance, Opened
from ggmltool.inspect.ready import computed_graphs, tell_of_undone
from ggmltool.show.colors import term_colors
from ggmltool.show.document import Error, ReleaseDocument, Row
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, printable, shortened
from ggmltool.state.story.calls import calls_of as calls_of_release
from ggmltool.state.story.frames import Calls, function_of
from ggmltool.state.story.history import backend_names
from ggmltool.state.story.points import BackendNames, Point, entered_at


class TracedStep(NamedTuple):
    """A step of the scenario, what the engine announced meanwhile, and ggml's own text where it failed."""

    step: str
    events: Sequence[Event]
    error: str = ""


class TraceStep(Row):
    """A step of the scenario: all that the engine announced meanwhile, and ggml's text where it failed."""

    step: str
    error: str | None
    events: list[EventRow]


class TraceDocument(ReleaseDocument, kw_only=True):
    """`trace --json`: the calls that ggml makes, step by step, in order; `Entered` and `Left` make them a tree."""

    main_table = "steps.events"
    kind: Literal["trace"] = "trace"
    ok: bool
    steps: list[TraceStep]
    error: Error | UnsetType = UNSET


@dataclass(frozen=True)
class Trace:
    """The steps up to one that fails, the backends, the name of the release, and ggml's error; with `decisions` those
    of the passes and of the allocator are shown, too."""

    view = "record:trace"
    steps: list[TracedStep]
    backends: Sequence[BackendNames]
    release: str
    error: Mapping[str, str | None] | None = None
    decisions: bool = False

    def document(self) -> TraceDocument:
        """What each step announced."""
        return TraceDocument(
            ggml=self.release,
            ok=self.error is None,
            steps=[TraceStep(s.step, s.error or None, [event_row(e) for e in s.events]) for s in self.steps],
            error=UNSET if self.error is None else Error(**self.error),
        )

    @property
    def uses_freed(self) -> bool:
        """Whether a step used memory that was freed."""
        return any(isinstance(event, UsedAfterFree) for step in self.steps for event in step.events)


@dataclass(eq=False)
class Announcements:
    """What the steps of a trace announced, as points whose calls can be asked for."""

    points: Sequence[Point]
    backends: Sequence[BackendNames]
    release: str
    error: Mapping[str, str | None] | None = None

    @cached_property
    def entered(self) -> Sequence[tuple[str, ...]]:
        """Of each point the functions that were announced to be entered and not left, innermost first."""
        return entered_at(self.points)


def trace_steps(opened: Opened, compute: bool, decisions: bool = False) -> Trace:
    """Do the scenario's steps, without `compute` only those that plan; with `decisions` they are shown, too."""
    graphs = opened.model.graphs
    total = sum(len(graphs[name].nodes) for name in computed_graphs(opened.model)) if compute else 0
    with opened.work.progress("tracing", total, "nodes") as advance:
        return replace(_traced(opened, compute, advance), decisions=decisions)


def _traced(opened: Opened, compute: bool, advance: Advance) -> Trace:
    scenario = opened.scenario
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        if isinstance(event, Computed):
            advance(len(event.nodes))

    run = scenario.start(hear, values=compute)
    release = scenario.model.release.name
    out: list[TracedStep] = []
    try:
        run.start()
    except GgmlError as refused:
        error = refused.as_dict()
        return Trace([TracedStep("start", events, error["message"] or "ggml failed")], (), release, error)
    if events:
        out.append(TracedStep("start", list(events)))
    for number, step in enumerate(scenario.model.steps, 1):
        if not compute and step.kind not in ("reserve", "alloc", "reset"):
            continue
        events.clear()
        done = run.step(step, number)
        tell_of_undone(run, step, opened.work)
        if isinstance(done, Plan) and done.error is not None:
            error = dict(done.error)
            out.append(TracedStep(str(step), list(events), error.get("message") or "ggml failed"))
            return Trace(out, backend_names(run), release, error)
        out.append(TracedStep(str(step), list(events)))
    return Trace(out, backend_names(run), release)


_NODES = 4
"""Nodes named in a line before the rest are counted."""


class TraceLine(NamedTuple):
    """A line of the tree: a call with what it is called with, or (`is_note`) what was found out during one."""

    depth: int
    text: str
    is_note: bool = False


_CALLS = (
    events.Synchronized,
    events.EventCall,
    events.Computed,
    events.TensorWritten,
    events.TensorCopied,
    events.Grown,
    events.Reordered,
)
"""Events that are calls, with all functions on the way to them."""


def calls_of(found: Trace, decisions: bool = False) -> list[list[TraceLine]]:
    """The calls of each step in order: the stacks that the debugger shows, as a tree.

    With `decisions` every decision is there, those of the scheduler's passes and of the allocator too.
    """
    points: list[Point] = []
    for number, step in enumerate(found.steps):
        shown = (
            e for e in step.events if decisions or isinstance(e, (events.Entered, events.Left, *_CALLS)) or _note(e)
        )
        points += [Point(number), *(Point(number, event) for event in shown)]
    told = Announcements(points, found.backends, found.release, None)
    tree = _Tree(told)
    out: list[list[TraceLine]] = [[] for _ in found.steps]
    for at, point in enumerate(points):
        out[point.step] += tree.lines(at, decisions)
    return out


class _Tree:
    """The calls of a trace, each of which is a line where it begins."""

    def __init__(self, told: Announcements) -> None:
        self.told = told
        self.points = told.points
        self.calls = Calls(told)
        self.release = calls_of_release(told.release)
        self._shown: dict[int, int] = {}

    def lines(self, at: int, decisions: bool) -> Iterator[TraceLine]:
        """The lines of a point."""
        event = self.points[at].event
        if event is None or isinstance(event, events.Left | events.PassedOver):
            return
        if isinstance(event, (events.Entered, *_CALLS)):
            yield from self._entered(at, event)
            return
        note = _note(event) or (_decision(event) if decisions else "")
        if note:
            shown = (self._shown[number] + 1 for number in self.calls.at(at) if number in self._shown)
            yield TraceLine(next(shown, 0), note, True)

    def _entered(self, at: int, event: Event) -> Iterator[TraceLine]:
        """The calls that begin at a point."""
        depth = -1
        for number in self.calls.at(at)[-2::-1]:
            depth = self._shown.get(number, depth + 1)
            if number not in self._shown:
                self._shown[number] = depth
                call = self.calls[number]
                yield TraceLine(depth, f"{call.function}({self._detail(call.function, at, event)}")
        for inner, text in self._inside(event, self.calls[self.calls.innermost[at]].function):
            yield TraceLine(depth + 1 + inner, text)

    def _detail(self, function: str, at: int, event: Event) -> str:
        """What a call is called with, as people write it."""
        if isinstance(event, events.Entered):
            return f"{event.detail})" if event.function == function else ")"
        names = set(self.release.parameters.get(function, ()))
        match event:
            case _ if "input" in names:
                following = (p.event for p in self.points[at:])
                return f"{next((e.src for e in following if isinstance(e, events.TensorCopied)), '')})"
            case events.TensorCopied(src, dst, nbytes, how) if names:
                if {"src", "dst"} <= names:
                    return f"{src} → {dst}, {count(nbytes, 'byte')})"
                if "tensor" in names:
                    return f"{src if how == 'get' else dst}, offset 0, {count(nbytes, 'byte')})"
            case events.TensorCopied(how=how):
                return f"{event.src_buft if how == 'get' else event.dst_buft})"
            case events.TensorWritten(tensor, _, offset, nbytes) if "tensor" in names:
                return f"{tensor}, offset {offset}, {count(nbytes, 'byte')})"
            case events.Grown(buft, old, new) if "size" in names:
                return f"{buft}, {new})" + (f"  was {old}" if old else "")
            case events.EventCall(_, backend, copy):
                return f"{backend}, copy {copy})"
            case events.Computed(split, backend, nodes) if "cgraph" in names:
                which = f"split {split}: " if split >= 0 else ""
                return f"{backend})  {which}{shortened(nodes, _NODES)}"
            case events.Reordered(backend, first, nodes) if "cgraph" in names:
                return f"{backend})  nodes from {first} on: {shortened(nodes, _NODES)}"
        of = getattr(event, "backend", "") or getattr(event, "buft", "")
        return f"{of})" if not names or names & {"backend", "buft", "buffer"} else ")"

    def _inside(self, event: Event, function: str) -> Iterator[tuple[int, str]]:
        """What the innermost function of a call calls itself: of the system, or to take a copy over the host."""
        if isinstance(event, events.TensorCopied) and event.how == "bounce":
            size = count(event.nbytes, "byte")
            for verb, t, buft in (("get", event.src, event.src_buft), ("set", event.dst, event.dst_buft)):
                yield 0, f"ggml_backend_tensor_{verb}({t}, offset 0, {size})"
                own = function_of(self.told, buft, f"ggml_backend_buffer_i.{verb}_tensor")
                if own:
                    yield 1, f"{own}({buft})"
                    yield from ((2, text) for text in self.release.inside.get(own, ()))
        yield from ((0, text) for text in self.release.inside.get(function, ()))


_NOTES = (events.KeptUntil, events.ReallocNeeded, events.IdsChanged, events.UsedAfterFree, events.Logged)


def _note(event: Event) -> str:
    """What was found out, in a line; "" of other events."""
    match event:
        case events.SplitStarted(split, backend, at, node):
            return f"split {split} on {backend} from node {at}, {node}: {words(event)}"
        case events.InputAdded(split, backend, tensor, node, _):
            return f"{tensor} is copied to {backend} before split {split}, for {node}"
        case (
            events.KeptUntil() | events.ReallocNeeded() | events.IdsChanged() | events.UsedAfterFree() | events.Logged()
        ):
            return sentence(event)
    return ""


def _decision(event: Event) -> str:
    """A decision of the scheduler's passes or of the allocator in a line."""
    match event:
        case events.Assigned() | events.NotReused() | events.Kept():
            return sentence(event)
        case events.Refused(tensor, backend, rule, _, condition):
            return f"{tensor} not on {backend} in pass {rule}: {condition}"
        case events.AllocationStarted(-1):
            return "the allocator: leafs and inputs"
        case events.AllocationStarted(_, node):
            return f"the allocator: {node}"
        case events.Allocated(tensor, buft, chunk, offset, size):
            return f"allocate {tensor}: {size} bytes at {offset} of {buft}, chunk {chunk}"
        case events.Reused(tensor, parent):
            return f"compute {tensor} in the memory of {parent}"
        case events.Freed(tensor, buft, chunk, offset, size):
            return f"free {tensor}: {size} bytes at {offset} of {buft}, chunk {chunk}"
        case _:
            fields = ", ".join(f"{name} {value}" for name, value in event._asdict().items())
            return f"{type(event).__name__}: {fields}"


def trace(answer: Answer[Trace], style: Style) -> str:
    """Each step with the calls made in it, indented below the call that makes them."""
    from rich.text import Text

    found = answer.facts
    steps = found.steps
    said = (event for traced in steps for event in traced.events)
    timed = {
        event.backend for event in said if isinstance(event, events.Synchronized | events.EventCall | events.Computed)
    }
    inks = term_colors(timed) if style.colors else {}
    names = re.compile("|".join(rf"(?<![\w#]){re.escape(name)}(?![\w#])" for name in inks) or "(?!)")
    lines: list[Text | str] = []
    for traced, calls in zip(steps, calls_of(found, found.decisions), strict=True):
        lines += ["", Text(printable(traced.step), "bold")]
        for bars, call in zip(_bars([c.depth for c in calls]), calls, strict=True):
            line = Text.assemble((bars, "dim"), (printable(call.text), "italic" if call.is_note else ""))
            for match in names.finditer(line.plain):
                line.stylize(inks[match[0]], *match.span())
            line.truncate(style.width, overflow="ellipsis")
            lines.append(line)
        if traced.error:
            lines.append(Text("  " + printable(traced.error), "red"))
    facts = [count(len(steps), "step")]
    return heading(answer.title, facts, style) + render_lines(lines, style)


def _bars(depths: Sequence[int]) -> list[str]:
    """The lines of the tree in front of each call: ├ where a sibling follows, └ for the last one."""
    out = []
    open_levels: set[int] = set()
    for depth in reversed(depths):
        branch = "├─ " if depth in open_levels else "└─ "
        out.append("  " + "".join("│  " if d in open_levels else "   " for d in range(depth)) + branch)
        open_levels = {d for d in open_levels if d < depth} | {depth}
    return out[::-1]
