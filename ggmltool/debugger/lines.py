"""The line of a point: what ggml decided there and why, where another debugger shows a line of source."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.ask.words import sentence, words
from ggmltool.ggml import events
from ggmltool.ggml.events import Event
from ggmltool.show.text import count, printable, shortened
from ggmltool.state.story.history import History
from ggmltool.state.story.points import START

_NODES = 4
"""Nodes named in a line before the rest are counted."""


def line_of(history: History, at: int) -> str:
    """What happened at point `at`, in one line without its number."""
    point = history.points[at]
    if point.event is not None:
        return printable(event_line(point.event))
    if point.step == START:
        return "devices, contexts and the scheduler " + ("are made" if point.ends else "will be made")
    return printable(f"{step_name(history, point.step)} {'ends' if point.ends else 'begins'}")


def step_name(history: History, step: int) -> str:
    """A step as `run` numbers it, from 1: `step 2, alloc main`."""
    if step == START:
        return "the start"
    return f"step {step + 1}, {history.scenario.model.steps[step]}"


def event_line(event: Event) -> str:
    """An event in one line: the decision first, then its reason."""
    if said := sentence(event):
        return said
    match event:
        case events.Entered(function, detail):
            return f"{function}({detail}) is entered"
        case events.Left(function):
            return f"{function} returns"
        case events.PassedOver(tensor, _, cause, _, backend):
            where = f" on {backend}" if backend else ""
            return f"{tensor} not decided{where} ({cause}): {words(event)}"
        case events.Refused(tensor, backend, _, cause, condition, lacks):
            why = "it has no such op" if lacks else f"its op is not supported: {condition}"
            return f"{tensor} not on {backend} ({cause}): {why}"
        case events.SplitStarted(split, backend, at, node):
            return f"split {split} begins on {backend} at node {at}, {node}: {words(event)}"
        case events.InputAdded(split, backend, tensor, node, copies):
            return f"split {split} gets input {tensor}: {node} reads it on {backend}, as {shortened(copies, _NODES)}"
        case events.GraphInputCopied(tensor, backend, copies):
            return f"graph input {tensor} gets pipeline copies on {backend}: {shortened(copies, _NODES)}"
        case events.Reordered(backend, at, nodes):
            return f"{backend} orders the nodes from {at} on: {shortened(nodes, _NODES)}"
        case events.AllocationStarted(-1):
            return "allocate leafs and inputs"
        case events.AllocationStarted(_, node):
            return f"turn to {node}"
        case events.Allocated(tensor, buft, chunk, offset, size):
            return f"allocate {tensor}: {count(size, 'byte')} at {_place(buft, chunk, offset)}"
        case events.Reused(tensor, parent, buft, chunk, offset):
            return f"compute {tensor} in the memory of {parent}, at {_place(buft, chunk, offset)}"
        case events.Freed(tensor, buft, chunk, offset, size, extra):
            what = f"the tail of {tensor}" if extra else tensor
            return f"free {what}: {count(size, 'byte')} at {_place(buft, chunk, offset)}"
        case events.Grown(buft, old, new):
            was = f", was {old}" if old else ""
            return f"buffer {buft} gets {count(new, 'byte')}{was}"
        case events.Synchronized(backend):
            return f"wait for {backend}"
        case events.EventCall(call, backend, copy):
            return f"event {call} on {backend}, copy {copy}"
        case events.TensorCopied(src, dst, nbytes, how):
            return f"copy {src} → {dst}: {count(nbytes, 'byte')} ({_HOW.get(how, how)})"
        case events.TensorWritten(tensor, buft, offset, nbytes, get):
            what = f"{count(nbytes, 'byte')} at offset {offset}"
            return f"read {tensor}: {what} from {buft}" if get else f"write {tensor}: {what} into {buft}"
        case events.Computed(split, backend, nodes):
            of = f"split {split}: " if split >= 0 else ""
            return f"{backend} computes {of}{shortened(nodes, _NODES)}"
    return type(event).__name__


def _place(buft: str, chunk: int, offset: int) -> str:
    return f"{buft} {offset:#x}" + (f" of chunk {chunk}" if chunk else "")


_HOW: Mapping[str, str] = {
    "set": "from host memory",
    "get": "to host memory",
    "cpy": "by the device",
    "async": "by the device, without waiting",
    "bounce": "through host memory",
}
