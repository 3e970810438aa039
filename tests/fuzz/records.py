"""Mutations of records: of the file's bytes, of the map in it, of the scenario, of what was recorded."""

from __future__ import annotations

import copy
import json
import random
import zlib
from functools import cache
from typing import Any

import msgspec

import ggmltool
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.text.record import MAGIC, VERSION
from ggmltool.state.story.history import record_history
from ggmltool.state.story.record import AREAS, EVENTS, record_bytes
from tests.fuzz import junk, scenarios

BASES = ("matmul", "moe", "inplace", "pipeline", "preallocated", "versions-2026")
RELEASES = ("0.26", "0.20.2", "2025-03", "2024-01")
DEEP = 5000


@cache
def texts() -> tuple[bytes, ...]:
    """Records of samples in several releases, unpacked."""
    out = []
    for name in BASES:
        for release in RELEASES:
            try:
                history = record_history(ggmltool.load(name, ggml=release), False)
            except ScenarioError:
                continue  # that release does not have all of it
            out.append(zlib.decompress(record_bytes(history)[len(MAGIC) + 1 :]))
    return tuple(out)


def mutated(rng: random.Random) -> bytes:
    """The file of a record with one to four changes."""
    body = rng.choice(texts())
    match rng.randrange(8):
        case 0:
            return _bytes_changed(_packed(body), rng)
        case 1:
            return MAGIC + rng.randbytes(rng.choice((0, 1, 2, 9)))
        case 2:
            return MAGIC + bytes([VERSION]) + zlib.compress(rng.choice(_OPENINGS) * rng.choice((1, DEEP, 2_000_000)))
        case 3:
            return _packed(_bytes_changed(body, rng))
    value = msgspec.msgpack.decode(body)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(value, rng)
    try:
        return _packed(msgspec.msgpack.encode(value))
    except (OverflowError, UnicodeEncodeError, RecursionError):
        return _packed(body)


_OPENINGS = (b"\x91", b"\x81", b"\x81\xa1a", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
             b"\xc9\xff\xff\xff\xff\x01", b"\xc7\x00\xff", b"\xd6\xff\x00\x00\x00\x00", b"\xc1", b"\x00")  # fmt: skip
"""What begins a list, a map, a text, an extension: one in the other, or of more than there is."""


def _packed(body: bytes) -> bytes:
    return MAGIC + bytes([VERSION]) + zlib.compress(body, 1)


def _bytes_changed(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if not changed:
            break
        at = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                del changed[at : at + rng.randint(1, 9)]
            case 1:
                changed[at:at] = rng.choice(_OPENINGS)
            case 2:
                changed = changed[: at + 1]
            case 3:
                changed[at] = rng.randrange(256)
    return bytes(changed)


def _change(value: dict[str, Any], rng: random.Random) -> None:
    run = value["run"]
    match rng.randrange(6):
        case 0:
            value[rng.choice((*value, "later"))] = _junk(rng)
        case 1:
            value["scenario"] = json.dumps(scenarios.mutated(rng))
        case 2 if isinstance(run, dict) and run:
            run[rng.choice(list(run))] = _junk(rng)
        case 3 if isinstance(run, dict):
            run["points"] = [_point(rng) if rng.random() < 0.1 else row for row in _list(run.get("points"))]
        case 4 if isinstance(run, dict):
            run["changes"] = [_changes(rng) if rng.random() < 0.1 else row for row in _list(run.get("changes"))]
        case _:
            where, key, _ = rng.choice(list(scenarios.everywhere(value)))
            where[key] = _junk(rng)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _point(rng: random.Random) -> list[Any]:
    kind = rng.choice([*EVENTS, "begins", "ends", junk.text(rng)])
    return [junk.integer(rng) % (1 << 63), kind, *(_junk(rng) for _ in range(rng.randrange(8)))]


def _changes(rng: random.Random) -> list[Any]:
    return [[rng.choice(list(AREAS)), *(_junk(rng) for _ in range(rng.randrange(4)))] for _ in range(rng.randrange(4))]


def _junk(rng: random.Random) -> Any:
    if rng.random() < 0.1:
        return msgspec.msgpack.Ext(rng.randrange(-128, 128), rng.randbytes(rng.choice((0, 1, 4, 8, 12))))
    value = junk.value(rng)
    try:
        msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return rng.choice((None, -1, (1 << 63) - 1, (1 << 64) - 1, float("nan"), b"\xff", "\x1b[2J\u202e"))
    return copy.deepcopy(value)
