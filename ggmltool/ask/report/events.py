"""The engine's events as rows of numbers, and how each kind of them is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ggmltool.ask.report.document import KindRow, ResetRow
from ggmltool.ask.report.tables import NONE, ReportNumbers, ReportTensors, Texts, names_in, trimmed
from ggmltool.ask.words import Reasoned
from ggmltool.ggml import events as ev

_SAYS: Mapping[type, str] = {
    ev.Entered: "{function}({detail})",
    ev.Left: "{function} is done",
    ev.Assigned: "{tensor} goes to {backend} ({cause}): {text}",
    ev.PassedOver: "{cause} does not settle {tensor}: {text}",
    ev.Refused: "{tensor} not on {backend}: {text}",
    ev.SplitStarted: "split {split} on {backend} begins at node {at}, {tensor}: {text}",
    ev.InputAdded: "{tensor} is copied to {backend} before split {split}, for {node}",
    ev.GraphInputCopied: "pipeline copies of the input {tensor} on {backend}",
    ev.Reordered: "{backend} puts the nodes from {at} on into an order of its own",
    ev.KeptUntil: "{tensor} keeps its memory until {until}: {backend} asks for it",
    ev.AllocationStarted: "the allocator turns to {tensor}",
    ev.Allocated: "{tensor} gets {size} at {offset} of {buffer}, chunk {chunk}",
    ev.Reused: "{tensor} is computed in the memory of {by}, at {offset} of {buffer}, chunk {chunk}",
    ev.NotReused: "{tensor} is not computed in the memory of {by}: {text}",
    ev.Freed: "{tensor} gives back {size} at {offset} of {buffer}, chunk {chunk}",
    ev.Kept: "{tensor} stays: it is an output",
    ev.Grown: "the compute buffer {buffer} grows from {old_size} to {new_size}",
    ev.ReallocNeeded: "the reserved plan does not serve: {text} {tensor}",
    ev.IdsChanged: "{tensor} moved from {old_place} to {new_place}",
    ev.UsedAfterFree: "use after free: {tensor}; step {step} freed it when {buffer} grew from {old_size} to {new_size}",
    ev.Logged: "{level}: {line}",
    ev.Synchronized: "the host waits for {backend}",
    ev.EventCall: "ggml_backend_event_{call} of {backend}, copy {copy}",
    ev.TensorCopied: "{nbytes} are copied from {src} to {dst} ({how})",
    ev.TensorWritten: "{nbytes} are written to {tensor} at {offset} of {buffer}",
    ev.Computed: "{backend} computes split {split}",
}

_RENAMED = {
    "buft": "buffer", "src_buft": "src_buffer", "dst_buft": "dst_buffer", "parent": "by",
    "old_backend": "old_place", "new_backend": "new_place",
}  # fmt: skip
_OF_NODE = (ev.SplitStarted, ev.AllocationStarted)
"""Events whose own tensor is called node."""
_PLACED = (ev.Allocated, ev.Freed, ev.Reused)
"""Events that say where their tensors lie."""

_TENSORS = {"tensor", "by", "node", "until", "src", "dst"}
_LISTS = {"copies", "nodes"}
_STRINGS = {"function", "detail", "cause", "call", "how", "level", "line", "old_place", "new_place"}


def _fields(event: type) -> list[tuple[str, str]]:
    """The fields of a kind in the document, with those of the event."""
    out = []
    for name in event._fields:  # type: ignore[attr-defined]
        if name in ("why", "condition"):
            out.append(("text", name))
        elif name == "facts":
            out.append(("other", name))
        elif name == "text":
            out.append(("line", name))
        elif name == "node" and event in _OF_NODE:
            out.append(("tensor", name))
        elif name != "lacks":
            out.append((_RENAMED.get(name, name), name))
    return out


_KINDS: tuple[type, ...] = get_args(ev.Event)
_FIELDS = {kind: _fields(kind) for kind in _KINDS}


def kind_rows() -> list[KindRow]:
    """What each kind of event is, in the order of their numbers."""
    return [KindRow(kind.__name__, [name for name, _ in _FIELDS[kind]], _parts(_SAYS[kind])) for kind in _KINDS]


def _parts(says: str) -> list[str]:
    return says.replace("{", "\n").replace("}", "\n").split("\n")


@dataclass(frozen=True, slots=True)
class ReportTables:
    """What rows refer to."""

    strings: ReportNumbers
    texts: Texts
    tensors: ReportTensors
    backends: Mapping[str, int]
    buffer: Callable[[str], int]
    memory: Callable[[str, str], int]


def event_rows(events: Iterable[ev.Event], tables: ReportTables) -> Iterator[list[Any]]:
    """A row for each event: the number of its kind, and its fields."""
    coders = {kind: _coder(number, kind, tables) for number, kind in enumerate(_KINDS)}
    for event in events:
        yield coders[type(event)](event)


def _coder(number: int, kind: type, tables: ReportTables) -> Callable[[Any], list[Any]]:
    codes = [_code(name, tables) for name, _ in _FIELDS[kind]]
    of = [field for _, field in _FIELDS[kind]]
    is_placed, is_reasoned = kind in _PLACED, kind in get_args(Reasoned)

    def row(event: Any) -> list[Any]:
        out = [number]
        for field, code in zip(of, codes, strict=True):
            if field in ("why", "condition") and is_reasoned:
                out.append(tables.texts.of_event(event))
            elif field == "facts":
                out.append(tables.tensors[names_in(event)[2]])
            elif field in ("tensor", "parent") and is_placed:
                out.append(tables.tensors.at(getattr(event, field), event.chunk, event.offset))
            else:
                out.append(code(getattr(event, field)))
        return trimmed(out)

    return row


def _code(name: str, tables: ReportTables) -> Callable[[Any], Any]:
    if name in _TENSORS:
        return tables.tensors.__getitem__
    if name in _LISTS:
        return tables.tensors.all
    if name in _STRINGS:
        return tables.strings.__getitem__
    if name == "backend":
        return lambda backend: tables.backends.get(backend, NONE)
    if name in ("buffer", "src_buffer", "dst_buffer"):
        return tables.buffer
    return lambda value: int(value) if isinstance(value, bool) else value


def reset_rows(events: Iterable[ev.Event]) -> Iterator[ResetRow]:
    """Where the state begins anew: a new split forgets the splits before, the first word after it the assignments."""
    is_split = False
    for number, event in enumerate(events):
        match event:
            case ev.Entered(function) if function in ev.SPLIT_GRAPH:
                yield ResetRow(number, 1)
            case ev.Left(function) if function in ev.SPLIT_GRAPH:
                is_split = True
            case ev.Assigned() | ev.PassedOver() | ev.Refused() if is_split:
                yield ResetRow(number, 0)
                is_split = False
            case ev.AllocationStarted(at=-1):
                yield ResetRow(number, 2)
            case _:
                pass
