"""JSON: decoding with doubled keys refused, and finding the place of a value, which is only needed for errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]

from ggmltool.scenario.errors import Mistake, quoted

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_LONG_NUMBER = re.compile(r"[0-9]{1000,}")
_scan_once: Callable[[str, int], tuple[object, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_DEEP = 200


class _DoubledKeyError(Exception):
    pass


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise _DoubledKeyError
    return out


def decode_json(text: str) -> object:
    """The value of a JSON text. Raises Mistake, with the offset in the text, for what is none."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as e:
        raise Mistake(f"this is not JSON: {e.msg[:1].lower()}{e.msg[1:]}", offset=e.pos) from None
    except _DoubledKeyError:
        raise _doubled_key(text) from None
    except RecursionError:
        depth = deep = 0
        for token in _TOKEN.finditer(text):
            c = token.group()[0]
            depth += (c in "{[") - (c in "}]")
            if depth > _DEEP:
                deep = token.start()
                break
        raise Mistake("this is nested too deeply", "a scenario has at most ten levels", offset=deep) from None
    except ValueError:
        number = _LONG_NUMBER.search(text)
        raise Mistake("this number is too long", offset=number.start() if number else 0) from None


def _doubled_key(text: str) -> Mistake:
    """The second of two equal keys of one object; `text` is known to be JSON up to there."""
    keys: list[set[str] | None] = []
    is_key = False
    for token in _TOKEN.finditer(text):
        match token.group()[0]:
            case "{":
                keys.append(set())
                is_key = True
            case "[":
                keys.append(None)
                is_key = False
            case "}" | "]":
                keys.pop()
                is_key = False
            case ",":
                is_key = keys[-1] is not None
            case '"' if is_key:
                key = scanstring(text, token.start() + 1)[0]
                seen = keys[-1]
                if seen is not None:
                    if key in seen:
                        return Mistake(f"the key {quoted(key)} is there twice", offset=token.start())
                    seen.add(key)
                is_key = False
    return Mistake("a key is there twice", offset=0)


def find_in_json(text: str, path: Sequence[str | int], on_key: bool) -> int:
    """The offset of the value at `path`, or of its key; of the innermost one that exists, if that does not."""
    i = _skip(text, 0)
    for n, part in enumerate(path):
        found = next((offsets for key, *offsets in _entries(text, i) if key == part), None)
        if found is None:
            return i
        key, i = found
        if on_key and n == len(path) - 1:
            return key
    return i


def _skip(text: str, i: int) -> int:
    match = _SPACE.match(text, i)
    return match.end() if match else i


def _entries(text: str, i: int) -> Iterator[tuple[str | int, int, int]]:
    """The members of the object at `i`, or the items of the array: key or number, and the offsets of key and value."""
    opening = text[i : i + 1]
    n = 0
    i = _skip(text, i + 1)
    while opening in ("{", "[") and text[i : i + 1] not in ("}", "]", ""):
        start, key = i, n
        if opening == "{":
            key, i = scanstring(text, i + 1)
            i = _skip(text, _skip(text, i) + 1)
        yield key, start, i
        i = _skip(text, _scan_once(text, i)[1])
        i = _skip(text, i + 1) if text[i : i + 1] == "," else i
        n += 1
