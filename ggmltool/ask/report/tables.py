"""The tables of a report's document: what is said often is said once, and named by its number."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ggmltool.ask.words import Reasoned, reason_sentence, reason_text, words
from ggmltool.ggml.events import NotReused, ReallocNeeded, Refused, SplitStarted

if TYPE_CHECKING:
    from ggmltool.ask.report.document import Text
    from ggmltool.inspect.decisions import Reason

NONE = -1
"""The number of nothing."""

_MARK = "\ue000"
_FIELDS = ("tensor", "by", "other")


class ReportNumbers:
    """Things by the number that they got when they were first asked for."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._number: dict[Hashable, int] = {}

    def __getitem__(self, item: Any) -> int:
        """The number of an item; NONE for None."""
        if item is None:
            return NONE
        found = self._number.get(item)
        if found is None:
            found = self._number[item] = len(self.items)
            self.items.append(item)
        return found


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
        return [list(text) for text in self._texts.items]

    def plain(self, text: str | None) -> int:
        """The number of a text without fields; NONE for None."""
        return NONE if text is None else self._texts[(text,)]

    def of_event(self, event: Reasoned) -> int:
        """The number of an event's words."""
        masked = _masked(event)
        found = self._known.get(masked)
        if found is None:
            found = self._known[masked] = self._texts[_parts(words(masked), words(event))]
        return found

    def of_reason(self, reason: Reason) -> int:
        """The number of the words for why a tensor is on its backend."""
        settled = reason.settled
        masked = reason._replace(
            tensor=_field(0),
            settled=None if settled is None else _masked(settled),
            passed_over=tuple(map(_masked, reason.passed_over)),
        )
        found = self._known.get(masked)
        if found is None:
            say = reason_sentence if settled is None else reason_text
            found = self._known[masked] = self._texts[_parts(say(masked), say(reason))]
        return found


def _field(number: int) -> str:
    return f"{_MARK}{_FIELDS[number]}{_MARK}"


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
