"""The engine's events as rows of documents: a struct for each, with its fields, told apart by `event`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union, get_args, get_type_hints

import msgspec
from msgspec.structs import astuple

from ggmltool.ask.words import Reasoned, words
from ggmltool.ggml.events import Event
from ggmltool.inspect.memory import AllocEvent, AllocStep
from ggmltool.show.document import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REASONED = get_args(Reasoned)
_After = list[tuple[int, int]] | None


def _rows(events: Any, more: Iterable[tuple[str, Any]] = ()) -> dict[type, type[msgspec.Struct]]:
    """A struct for each of these events, with `more` fields."""
    return {event: _row(event, more) for event in get_args(events)}


def _row(event: type, more: Iterable[tuple[str, Any]]) -> type[msgspec.Struct]:
    name, fields = event.__name__, [*_fields(event), *more]
    about = {"__doc__": event.__doc__, "__reduce__": lambda row: (_again, (event, bool(more), astuple(row)))}
    return msgspec.defstruct(name, fields, bases=(Row,), tag_field="event", tag=name, namespace=about)


def _again(event: type, of_allocator: bool, values: tuple[Any, ...]) -> msgspec.Struct:
    """A row, from what it was pickled as: its class is made here, and no module has it by name."""
    return (_ALLOC_EVENTS if of_allocator else _EVENTS)[event](*values)


def _fields(event: type) -> Iterator[tuple[str, Any]]:
    """The fields of an event, and where it has a reason, that in words."""
    for name, hint in get_type_hints(event).items():
        yield "reason" if name == "condition" else name, hint
        if name == "why" and event in _REASONED:
            yield "reason", str


def _values(event: Event) -> Iterator[Any]:
    for name, value in zip(event._fields, event, strict=True):
        yield value
        if name == "why" and isinstance(event, Reasoned):
            yield words(event)


_EVENTS = _rows(Event)
_ALLOC_EVENTS = _rows(AllocEvent, (("free_blocks", _After), ("max_size", int | None)))

if TYPE_CHECKING:
    EventRow = Any
    AllocEventRow = Any
else:
    EventRow = Union[tuple(_EVENTS.values())]  # noqa: UP007
    AllocEventRow = Union[tuple(_ALLOC_EVENTS.values())]  # noqa: UP007


def event_row(event: Event) -> EventRow:
    """An event as a row."""
    return _EVENTS[type(event)](*_values(event))


def alloc_event_row(step: AllocStep) -> AllocEventRow:
    """What the allocator did, with the free blocks of the chunk and its size after that."""
    chunk = step.chunk
    free = None if chunk is None else list(chunk.free_blocks)
    return _ALLOC_EVENTS[type(step.event)](*_values(step.event), free, None if chunk is None else chunk.max_size)
