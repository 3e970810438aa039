"""The tables of a report's document: what is said often is said once, and events are rows of the numbers of that."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace

from ggmltool.ask.report.document import KindRow, ResetRow
from ggmltool.ask.words import Reasoned, reason_sentence, reason_text, words
from ggmltool.ggml import events as ev
from ggmltool.ggml.events import NotReused, ReallocNeeded, Refused, SplitStarted

if TYPE_CHECKING:
    from ggmltool.ask.report.document import Text
    from ggmltool.inspect.decisions import Reason

NONE = -1
"""The number of nothing."""

_MARK = "\ue000"
_NAMED = ("tensor", "by", "other")


class ReportNumbers(dict[Any, int]):
    """Things, with the number that each got when it was first asked for; NONE is that of None."""

    def __missing__(self, item: Any) -> int:
        if item is None:
            return NONE
        self[item] = number = len(self)
        return number


class Texts:
    """Reasons with the names of tensors taken out: a text for all that differ in these only.

    A text is a tuple of parts, literals at even places, names of fields at odd ones.
    """

    def __init__(self) -> None:
        self._texts = ReportNumbers()
        self._known: dict[Hashable, int] = {}

    @property
    def all(self) -> list[Text]:
        """The texts by their numbers."""
        return [list(text) for text in self._texts]

    def plain(self, text: str | None) -> int:
        """The number of a text without fields; NONE for None."""
        return NONE if text is None else self._texts[(text,)]

    def of_event(self, event: Reasoned) -> int:
        """The number of an event's words."""
        return self._said(event, _masked(event), words)

    def of_reason(self, reason: Reason) -> int:
        """The number of the words for why a tensor is on its backend."""
        settled = reason.settled
        masked = reason._replace(
            tensor=_field(0),
            settled=None if settled is None else _masked(settled),
            passed_over=tuple(map(_masked, reason.passed_over)),
        )
        return self._said(reason, masked, reason_sentence if settled is None else reason_text)

    def _said(self, of: Any, masked: Any, say: Callable[[Any], str]) -> int:
        found = self._known.get(masked)
        if found is None:
            found = self._known[masked] = self._texts[_parts(say(masked), say(of))]
        return found


def _field(number: int) -> str:
    return f"{_MARK}{_NAMED[number]}{_MARK}"


def names_in(event: Any) -> tuple[str, str, str]:
    """The tensors that an event speaks of: its own, the one that settled it, and that of its facts; "" for none."""
    tensor = event.node if isinstance(event, SplitStarted) else event.tensor
    by = event.parent if isinstance(event, NotReused) else getattr(event, "by", "")
    facts = getattr(event, "facts", None)
    return tensor, by, "" if facts is None else facts.tensor or ""


def _masked(event: Any) -> Any:
    """The event with the fields in place of the names of tensors, and without what is not said."""
    tensor, by, other = names_in(event)
    by_field = _field(0 if by == tensor else 1)
    given: dict[str, object] = {"rule": 0, "cause": ""} if hasattr(event, "rule") else {}
    match event:
        case SplitStarted():
            given = {"split": 0, "at": 0, "node": _field(0)}
        case NotReused():
            given = {"tensor": _field(0), "parent": by_field}
        case ReallocNeeded(slot=slot):
            given = {"tensor": "", "node": "", "old_size": None, "new_size": None, "slot": None if slot is None else 0}
        case Refused():
            given["tensor"] = _field(0)
        case _:
            given |= {"tensor": _field(0)} | ({"by": by_field} if by else {})
    if other:
        given["facts"] = replace(event.facts, tensor=_field(2))
    return event._replace(**given)


def _parts(masked: str, plain: str) -> tuple[str, ...]:
    """The parts of a text with fields; a text that has the mark itself is left as it is."""
    if plain.count(_MARK):
        return (plain,)
    return tuple(masked.split(_MARK))


class ReportTensors:
    """The numbers of tensors by the names that events call them: ids of nodes and leafs, names of copies.

    Copies of tensors with one name have one name, too: then the place of the copy tells.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self.names = list(ids)
        self._number = {id: i for i, id in enumerate(self.names)}
        self._placed: dict[tuple[str, int, int], int] = {}

    def add(self, name: str, place: tuple[int, int] | None = None) -> int:
        """A further tensor, and its chunk and offset where it is known."""
        number = len(self.names)
        self.names.append(name)
        self._number.setdefault(name, number)
        if place is not None:
            self._placed.setdefault((name, *place), number)
        return number

    def __contains__(self, name: str) -> bool:
        return name in self._number

    def __getitem__(self, name: str | None) -> int:
        """The number of a name, which may be new; NONE for none."""
        if not name:
            return NONE
        found = self._number.get(name)
        return self.add(name) if found is None else found

    def at(self, name: str, chunk: int, offset: int) -> int:
        """The number of what has this name and lies there."""
        found = self._placed.get((name, chunk, offset))
        return self[name] if found is None else found

    def all(self, names: Iterable[str | None]) -> list[int]:
        """The numbers of names."""
        return [self[name] for name in names]


def trimmed(row: Sequence[Any]) -> list[Any]:
    """A row without what is not there at its end."""
    end = len(row)
    while end and row[end - 1] == NONE:
        end -= 1
    return list(row[:end])


def numbered(names: Iterable[str]) -> Mapping[str, int]:
    """Names with their numbers."""
    return {name: i for i, name in enumerate(names)}


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
    "buft": "buffer", "src_buft": "src_buffer", "dst_buft": "dst_buffer", "parent": "by", "old_backend": "old_place",
    "new_backend": "new_place", "why": "text", "condition": "text", "facts": "other", "text": "line",
}  # fmt: skip
_OF_NODE = (ev.SplitStarted, ev.AllocationStarted)
"""Events whose own tensor is called node."""
_PLACED = (ev.Allocated, ev.Freed, ev.Reused)
"""Events that say where their tensors lie."""

_TENSORS = {"tensor", "by", "node", "until", "src", "dst"}
_LISTS = {"copies", "nodes"}
_STRINGS = {"function", "detail", "cause", "call", "how", "level", "line", "old_place", "new_place"}


def _fields_of(event: type) -> list[tuple[str, str]]:
    """The fields of a kind in the document, with those of the event."""
    own = "node" if event in _OF_NODE else ""
    names: tuple[str, ...] = event._fields  # type: ignore[attr-defined]
    return [("tensor" if name == own else _RENAMED.get(name, name), name) for name in names if name != "lacks"]


_KINDS: tuple[type, ...] = get_args(ev.Event)
_FIELDS = {kind: _fields_of(kind) for kind in _KINDS}


def kind_rows() -> list[KindRow]:
    """What each kind of event is, in the order of their numbers."""
    return [KindRow(kind.__name__, [name for name, _ in _FIELDS[kind]], _said_parts(_SAYS[kind])) for kind in _KINDS]


def _said_parts(says: str) -> list[str]:
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
