"""YAML, read event by event: no tags, no recursion, doubled keys refused, aliases bounded, every value with its place.

Plain scalars follow YAML 1.2's core schema, in which `1e-6` is a number and `on`, `no` and `010` are what they look
like. Keys are always text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ggmltool.scenario.errors import Mistake, Place, quoted

MAX_DEPTH = 50
MAX_VALUES = 2_000_000
"""Values that a scenario's YAML may have, every use of an alias counted with all that it stands for."""

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INF = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_WORDS: dict[str, object] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
}  # fmt: skip
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}
_MAX_DIGITS = 1000
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class Map(dict[str, Any]):
    """A mapping with the places of its keys and values."""

    __slots__ = ("place", "places", "weight")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.places: dict[str, tuple[Place, Place]] = {}
        self.weight = 1


class Seq(list[Any]):
    """A sequence with the places of its items."""

    __slots__ = ("place", "places", "weight")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.places: list[Place] = []
        self.weight = 1


def find_in_yaml(value: object, path: Sequence[str | int], on_key: bool) -> Place:
    """The place of the value at `path`, or of its key; of the innermost one that exists, if that does not."""
    place = value.place if isinstance(value, Map | Seq) else Place(1, 1)
    for n, part in enumerate(path):
        if isinstance(value, Map) and isinstance(part, str) and part in value.places:
            key, place = value.places[part]
            if on_key and n == len(path) - 1:
                return key
            value = value[part]
        elif isinstance(value, Seq) and isinstance(part, int) and part < len(value):
            place = value.places[part]
            value = value[part]
        else:
            break
    return place


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that is being read; `key` is the key whose value comes next."""

    value: Map | Seq
    anchor: str | None
    key: str | None = None
    key_place: Place | None = None
    merged: list[Map] = field(default_factory=list)


def compose_yaml(text: str) -> object:
    """The value of a YAML text. Raises Mistake, with the offset in the text, for what is none."""
    composer = _Composer(text)
    for event in _events(text):
        composer.take(event)
    return composer.root


def _events(text: str) -> Iterator[Any]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        offset = _offset(text, mark.line, mark.column) if mark is not None else 0
        if text[offset : offset + 1] == "\t":
            raise Mistake("tabs cannot indent YAML", "use spaces", offset=offset) from None
        context = f" ({e.context})" if e.context else ""
        raise Mistake(f"this is not YAML: {e.problem}{context}", offset=offset) from None
    except yaml.reader.ReaderError as e:
        at = next((i for i, c in enumerate(text) if not (c.isprintable() or c in "\t\n\r\x85")), 0)
        raise Mistake(f"this is not YAML: {e.reason}", offset=at) from None
    except UnicodeEncodeError as e:
        raise Mistake("this is not YAML: half a character (a lone surrogate)", offset=e.start) from None
    except RecursionError:
        raise Mistake("this is nested too deeply", f"at most {MAX_DEPTH} levels", offset=0) from None


def _offset(text: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line):
        match = _LINE_BREAK.search(text, start)
        if match is None:
            return len(text)
        start = match.end()
    return min(start + column, len(text))


def _resolved(text: str) -> object:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MAX_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INF.fullmatch(text):
        return float("-inf") if text[0] == "-" else float("inf")
    return text


class _Composer:
    """Builds the value from events."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: object = None
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[object, int]] = {}
        self.documents = 0
        self.count = 0

    def take(self, event: Any) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS and tag != "!":
            raise self._mistake(event, f"the tag {quoted(tag)} is not allowed", "a scenario needs no tags")
        match type(event).__name__:
            case "ScalarEvent":
                self._scalar(event)
            case "MappingStartEvent":
                self._open(event, Map(self._place(event)))
            case "SequenceStartEvent":
                self._open(event, Seq(self._place(event)))
            case "MappingEndEvent" | "SequenceEndEvent":
                self._close()
            case "AliasEvent":
                self._alias(event)
            case "DocumentStartEvent":
                self.documents += 1
                if self.documents > 1:
                    raise self._mistake(event, "a second document starts here", "a file holds one scenario")

    def _place(self, event: Any) -> Place:
        return Place(event.start_mark.line + 1, event.start_mark.column + 1)

    def _mistake(self, event: Any, message: str, expected: str = "") -> Mistake:
        return Mistake(message, expected, offset=_offset(self.text, event.start_mark.line, event.start_mark.column))

    def _scalar(self, event: Any) -> None:
        if self._wants_key():
            top = self.stack[-1]
            if event.value in top.value.places:
                raise self._mistake(event, f"the key {quoted(event.value)} is there twice")
            if event.anchor is not None:
                self.anchors[event.anchor] = (event.value, 1)
            top.key, top.key_place = event.value, self._place(event)
            return
        text = event.value
        plain = event.implicit[0] or (event.tag is not None and not event.tag.endswith((":str", "!")))
        value = _resolved(text) if plain else text
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        self._add(event, value, 1)

    def _wants_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, Map) and self.stack[-1].key is None

    def _open(self, event: Any, value: Map | Seq) -> None:
        if self._wants_key():
            raise self._mistake(event, "a list or map cannot be a key")
        if len(self.stack) >= MAX_DEPTH:
            raise self._mistake(event, "this is nested too deeply", "a scenario has at most ten levels")
        self.stack.append(_Open(value, event.anchor))
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)

    def _close(self) -> None:
        opened = self.stack.pop()
        value = opened.value
        if isinstance(value, Map):
            for merged in opened.merged:
                for key, item in merged.items():
                    if key not in value:
                        value[key] = item
                        value.places[key] = merged.places[key]
        if opened.anchor is not None:
            self.anchors[opened.anchor] = (value, value.weight)
        self._add(None, value, value.weight)

    def _alias(self, event: Any) -> None:
        if self._wants_key():
            raise self._mistake(event, "an alias cannot be a key")
        found = self.anchors.get(event.anchor)
        if found is None:
            if any(o.anchor == event.anchor for o in self.stack):
                raise self._mistake(event, f"the alias {quoted(event.anchor)} is inside its own anchor")
            raise self._mistake(event, f"no anchor {quoted(event.anchor)} comes before this alias")
        value, weight = found
        self._count(event, weight)
        self._add(event, value, weight)

    def _count(self, event: Any, weight: int) -> None:
        self.count += weight
        if self.count > MAX_VALUES:
            raise self._mistake(event, f"more than {MAX_VALUES} values, those behind aliases counted each time")

    def _add(self, event: Any, value: object, weight: int) -> None:
        """Put a finished value where it belongs."""
        if event is not None:
            self._count(event, 1)
            place = self._place(event)
        else:
            place = value.place  # type: ignore[attr-defined]
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.value.weight += weight
        if isinstance(top.value, Seq):
            top.value.append(value)
            top.value.places.append(place)
        elif top.key == "<<":
            self._merge(event, top, value)
        elif top.key is not None and top.key_place is not None:
            top.value[top.key] = value
            top.value.places[top.key] = (top.key_place, place)
        top.key = None

    def _merge(self, event: Any, top: _Open, value: object) -> None:
        """`<<: *defaults`: the keys of other maps, where the map itself does not have them."""
        maps = list(value) if isinstance(value, Seq) else [value]
        for m in maps:
            if not isinstance(m, Map):
                line, column = top.key_place or Place(1, 1)
                raise Mistake("<< takes a map, or a list of maps", offset=_offset(self.text, line - 1, column - 1))
            if event is not None:
                self._count(event, m.weight)
            top.merged.append(m)
