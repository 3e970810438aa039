"""The engine's events as a tree of calls under ggml's function names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.events import (
    Allocated,
    AllocationStarted,
    Assigned,
    Computed,
    Entered,
    Event,
    EventCall,
    Freed,
    Grown,
    IdsChanged,
    InputAdded,
    Kept,
    KeptUntil,
    Left,
    Logged,
    NotReused,
    PassedOver,
    ReallocNeeded,
    Refused,
    Reordered,
    Reused,
    SplitStarted,
    Synchronized,
    TensorCopied,
    TensorWritten,
)
from ggmltool.inspect.trace import TracedStep
from ggmltool.views.explain.sentences import sentence
from ggmltool.views.explain.words import words
from ggmltool.views.palette import term_colors
from ggmltool.views.table import Style, heading, render_lines
from ggmltool.views.text import count, printable, shortened

_NODES = 4
"""Nodes named in a line before the rest are counted."""


class Call(NamedTuple):
    """A line of the tree: a call with what it is called with, or (`is_note`) what was found out during one."""

    depth: int
    text: str
    is_note: bool = False


def calls_of(events: Iterable[Event], families: Mapping[str, str], decisions: bool = False) -> list[Call]:
    """The calls in order. `families` says what kind of memory a buffer type is: what it is written by follows.

    With `decisions` every decision is there, those of the scheduler's passes and of the allocator too.
    """
    out: list[Call] = []
    depth = 0
    for event in events:
        if isinstance(event, Left):
            depth = max(depth - 1, 0)
            continue
        if isinstance(event, PassedOver):  # what was not decided
            continue
        if isinstance(event, Entered):
            out.append(Call(depth, f"{event.function}({event.detail})"))
            depth += 1
            continue
        lines = _lines(event, families)
        if not lines and decisions:
            lines = [Call(0, _decision(event), True)]
        out += [line._replace(depth=line.depth + depth) for line in lines]
    return out


def _lines(event: Event, families: Mapping[str, str]) -> list[Call]:
    match event:
        case Synchronized(backend):
            return [Call(0, f"ggml_backend_synchronize({backend})")]
        case EventCall(call, backend, copy):
            return [Call(0, f"ggml_backend_event_{call}({backend}, copy {copy})")]
        case Computed(split, backend, nodes):
            what = f"split {split}: {shortened(nodes, _NODES)}" if split >= 0 else shortened(nodes, _NODES)
            return [Call(0, f"ggml_backend_graph_compute_async({backend})  {what}")]
        case TensorWritten(tensor, buft, offset, nbytes, get):
            return _access(0, get, tensor, buft, offset, nbytes, families)
        case TensorCopied():
            return _copy(event, families)
        case SplitStarted(split, backend, at, node):
            return [Call(0, f"split {split} on {backend} from node {at}, {node}: {words(event)}", True)]
        case InputAdded(split, backend, tensor, node, _):
            return [Call(0, f"{tensor} is copied to {backend} before split {split}, for {node}", True)]
        case Reordered(backend, at, nodes):
            what = f"nodes from {at} on: {shortened(nodes, _NODES)}"
            return [Call(0, f"ggml_backend_graph_optimize({backend})  {what}")]
        case KeptUntil() | ReallocNeeded() | IdsChanged() | Logged():
            return [Call(0, sentence(event), True)]
        case Grown(buft, old, new):
            return [Call(0, f"ggml_backend_buft_alloc_buffer({buft}, {new})" + (f"  was {old}" if old else ""))]
    return []


def _decision(event: Event) -> str:
    """A decision of the scheduler's passes or of the allocator in a line."""
    match event:
        case Assigned() | NotReused() | Kept():
            return sentence(event)
        case Refused(tensor, backend, rule, _, condition):
            return f"{tensor} not on {backend} in pass {rule}: {condition}"
        case AllocationStarted(-1):
            return "the allocator: leafs and inputs"
        case AllocationStarted(_, node):
            return f"the allocator: {node}"
        case Allocated(tensor, buft, chunk, offset, size):
            return f"allocate {tensor}: {size} bytes at {offset} of {buft}, chunk {chunk}"
        case Reused(tensor, parent):
            return f"compute {tensor} in the memory of {parent}"
        case Freed(tensor, buft, chunk, offset, size):
            return f"free {tensor}: {size} bytes at {offset} of {buft}, chunk {chunk}"
        case _:
            fields = ", ".join(f"{name} {value}" for name, value in event._asdict().items())
            return f"{type(event).__name__}: {fields}"


def _copy(event: TensorCopied, families: Mapping[str, str]) -> list[Call]:
    between = f"{event.src} → {event.dst}, {count(event.nbytes, 'byte')}"
    if event.how == "async":
        return [Call(0, f"ggml_backend_tensor_copy_async({between})"), *_device(1, "async", event.dst_buft, families)]
    out = [Call(0, f"ggml_backend_tensor_copy({between})")]
    if event.how == "cpy":
        out.append(Call(1, f"ggml_backend_buffer_copy_tensor({event.src}, {event.dst})"))
        out += _device(2, "copy", event.dst_buft, families)
    if event.how in ("get", "bounce"):
        out += _access(1, True, event.src, event.src_buft, 0, event.nbytes, families)
    if event.how in ("set", "bounce"):
        out += _access(1, False, event.dst, event.dst_buft, 0, event.nbytes, families)
    return out


def _access(
    depth: int, get: bool, tensor: str, buft: str, offset: int, nbytes: int, families: Mapping[str, str]
) -> list[Call]:
    verb = "get" if get else "set"
    call = Call(depth, f"ggml_backend_tensor_{verb}({tensor}, offset {offset}, {count(nbytes, 'byte')})")
    return [call, *_device(depth + 1, verb, buft, families)]


def _device(depth: int, verb: str, buft: str, families: Mapping[str, str]) -> list[Call]:
    """What a device does to its memory, as far as its backend is known."""
    match families.get(buft, ""), verb:
        case "CUDA", "set" | "get":
            return [
                Call(depth, f"ggml_backend_cuda_buffer_{verb}_tensor({buft})"),
                Call(depth + 1, "cudaMemcpyAsync"),
                Call(depth + 1, "cudaStreamSynchronize"),
            ]
        case "CUDA", "async":
            return [Call(depth, f"ggml_backend_cuda_cpy_tensor_async({buft})")]
        case "CUDA", _:
            return [Call(depth, f"ggml_backend_cuda_buffer_cpy_tensor({buft})")]
        case "CPU", "set" | "get":
            return [Call(depth, f"ggml_backend_cpu_buffer_{verb}_tensor({buft})"), Call(depth + 1, "memcpy")]
    return []


def trace_view(
    steps: Sequence[TracedStep], families: Mapping[str, str], title: str, style: Style, decisions: bool = False
) -> str:
    """Each step with the calls made in it, indented below the call that makes them."""
    from rich.text import Text

    inks = term_colors(_backends(steps)) if style.colors else {}
    names = re.compile("|".join(rf"(?<![\w#]){re.escape(name)}(?![\w#])" for name in inks) or "(?!)")
    lines: list[Text | str] = []
    for traced in steps:
        lines += ["", Text(printable(traced.step), "bold")]
        calls = calls_of(traced.events, families, decisions)
        for bars, call in zip(_bars([c.depth for c in calls]), calls, strict=True):
            line = Text.assemble((bars, "dim"), (printable(call.text), "italic" if call.is_note else ""))
            for match in names.finditer(line.plain):
                line.stylize(inks[match[0]], *match.span())
            line.truncate(style.width, overflow="ellipsis")
            lines.append(line)
        if traced.error:
            lines.append(Text("  " + printable(traced.error), "red"))
    facts = [count(len(steps), "step")]
    return heading(title, facts, style) + render_lines(lines, style)


def _backends(steps: Iterable[TracedStep]) -> set[str]:
    """The backends that compute or are waited for, whose names have their colors."""
    events = (event for traced in steps for event in traced.events)
    return {event.backend for event in events if isinstance(event, Synchronized | EventCall | Computed)}


def _bars(depths: Sequence[int]) -> list[str]:
    """The lines of the tree in front of each call: ├ where a sibling follows, └ for the last one."""
    out = []
    open_levels: set[int] = set()
    for depth in reversed(depths):
        branch = "├─ " if depth in open_levels else "└─ "
        out.append("  " + "".join("│  " if d in open_levels else "   " for d in range(depth)) + branch)
        open_levels = {d for d in open_levels if d < depth} | {depth}
    return out[::-1]
