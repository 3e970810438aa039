"""The engine's events as a tree of calls under ggml's function names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggmltool.ask.answer import Answer
from ggmltool.ask.trace.record import Announcements, Trace
from ggmltool.ask.words import sentence, words
from ggmltool.ggml import events
from ggmltool.ggml.events import Event
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, printable, shortened
from ggmltool.state.story.calls import calls_of as calls_of_release
from ggmltool.state.story.frames import Calls, function_of
from ggmltool.state.story.points import Point

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
