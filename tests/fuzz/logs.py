"""Mutations of logs: lines lost, doubled, mixed, cut, wrapped, packed; names and numbers that no program prints."""

from __future__ import annotations

import gzip
import random
import re

from tests.fuzz import bases, junk

MOST_LINES = 60
"""Lines of a log that stay, mostly."""
MOST_BYTES = 1 << 18
"""Bytes of a log that does not grow any more."""

_STEERING = (b"\x1b]0;x\x07", b"\x1b[31m", "\u202e".encode(), b"\x00", b"\xff", b"\t", b"\x08", "\x9b".encode())
_DIGITS = re.compile(rb"\d+")
_WORD = re.compile(rb"[A-Za-z_][\w.-]{2,}")


def mutated(rng: random.Random) -> bytes:
    """A piece of a real log with one to six changes."""
    lines = _piece(rng)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        _change(lines, rng)
    raw = b"\n".join(lines) + rng.choice((b"\n", b"", b"\r\n"))
    match rng.randrange(14):
        case 0:
            raw = raw[: rng.randrange(len(raw) + 1)]
        case 1:
            raw = gzip.compress(raw, 1, mtime=0)
            raw = raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.5 else raw
        case 2:
            raw = raw.decode("utf-8", "replace").encode(
                rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"))
            )
        case 3:
            width = rng.choice((20, 80, 100))
            raw = b"\n".join(line[i : i + width] for line in raw.split(b"\n") for i in range(0, len(line) or 1, width))
        case 4:
            raw = raw.replace(b"\n", rng.choice((b"\r\n", b"\r", b" ", b"\x00", b"\n\n")))
    return raw


def _piece(rng: random.Random) -> list[bytes]:
    lines = rng.choice(bases.logs()).split(b"\n")
    n = rng.randint(1, MOST_LINES) if rng.random() < 0.9 else 400
    headers = [i for i, line in enumerate(lines) if b"## SPLIT" in line]
    start = rng.choice(headers) if headers and rng.random() < 0.6 else rng.randrange(len(lines))
    return lines[start : start + n]


def _change(lines: list[bytes], rng: random.Random) -> None:
    if not lines:
        lines += _piece(rng)
    at = rng.randrange(len(lines))
    line = lines[at]
    grows = sum(map(len, lines)) < MOST_BYTES
    match rng.randrange(11):
        case 0:
            del lines[at : at + rng.randint(1, 4)]
        case 1 if grows:
            lines[at:at] = lines[at : at + rng.randint(1, 8)] * rng.choice((1, 2, 30))
        case 2:
            lines[at:at] = _piece(rng)[:10]
        case 3 | 4:
            lines[at] = _one(_DIGITS, str(junk.integer(rng)).encode(), line, rng)
        case 5:
            lines[at] = _one(_WORD, junk.text(rng).encode("utf-8", "surrogatepass"), line, rng)
        case 6:
            new = rng.choice(_STEERING)
            cut = rng.randrange(len(line) + 1)
            lines[at] = line[:cut] + new + line[cut + len(new) :]  # columns stay where they are
        case 7:
            cut = rng.randrange(len(line) + 1)
            lines[at] = (
                line[:cut]
                + rng.choice((b"\x1b[31m", b"\x1b]0;x\x07", b"\x00", b"\xff", b"  ", b"|", b"[", b")"))
                + line[cut:]
            )
        case 8:
            lines[at] = line[: rng.randrange(len(line) + 1)]
        case 9 if grows and len(line) < 1000:
            lines[at] = line * rng.choice((2, 30, 3000))
        case 10:
            rng.shuffle(lines)


def _one(pattern: re.Pattern[bytes], new: bytes, line: bytes, rng: random.Random) -> bytes:
    found = list(pattern.finditer(line))
    if not found:
        return line + new
    spot = rng.choice(found)
    return line[: spot.start()] + new + line[spot.end() :]
