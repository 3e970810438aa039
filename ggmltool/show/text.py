"""Text for people: names made safe to print, sizes in short binary units, the plural where it is due, errors."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml.printable import printable as printable
from ggmltool.ggml.tensor import dims as dims

if TYPE_CHECKING:
    from ggmltool.estimate.records import Estimate
    from ggmltool.ggml.plan import Plan

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(nbytes: int) -> str:
    """Bytes in short binary units: exact below 10 KiB where they are whole, else three digits.

    >>> size(96), size(10240), size(1536), size(270 * 2**20 + 12345)
    ('96 B', '10 KiB', '1.5 KiB', '270 MiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    power = 1
    while power < len(_UNITS) and nbytes / 1024**power >= 999.5:
        power += 1
    value, unit = nbytes / 1024**power, _UNITS[power - 1]
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    number = f"{value:.{digits}f}"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {unit}"


def size_between(low: int, high: int) -> str:
    """A number of bytes that is known to lie between two, both included.

    >>> size_between(96, 96), size_between(1024, 2047), size_between(0, 1023), size_between(512 << 10, (2 << 20) - 1)
    ('96 B', '1–2 KiB', '0–1 KiB', '512 KiB–2 MiB')
    """
    if low == high:
        return size(low)
    least, most = size(low), size(high + 1)
    if least == most:
        return least
    number, unit = least.split(" ")
    return f"{number}–{most}" if low == 0 or most.endswith(f" {unit}") else f"{least}–{most}"


def count(n: int, noun: str) -> str:
    """`n` of something, in the plural where it is due.

    >>> count(1, "copy"), count(2, "copy"), count(0, "split")
    ('1 copy', '2 copies', '0 splits')
    """
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{n} {noun[:-1]}ies"
    return f"{n} {noun}s"


def shortened(names: Sequence[str], limit: int) -> str:
    """Names separated by commas, the ones beyond `limit` counted: `a, b, +3 more`."""
    shown = [printable(n) or '""' for n in names[:limit]]
    if len(names) > limit:
        shown.append(f"+{len(names) - limit} more")
    return ", ".join(shown)


_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def seconds_text(estimate: Estimate) -> str:
    """Likely seconds and, in brackets, the least and the most.

    >>> from ggmltool.estimate.records import Estimate
    >>> seconds_text(Estimate(0.0021, 0.00304, 0.0048)), seconds_text(Estimate(90.0, 130.0, 200.0))
    ('3.04 ms (2.1–4.8)', '130 s (90–200)')
    """
    scale, unit = next(((s, u) for s, u in _SECONDS if estimate.mid >= s), _SECONDS[-1])
    low, mid, high = (digits(s / scale) for s in estimate)
    return f"{mid} {unit} ({low}–{high})"


def rate_text(estimate: Estimate) -> str:
    """How many in a second: likely and, in brackets, at least and at most.

    >>> from ggmltool.estimate.records import Estimate
    >>> rate_text(Estimate(11.88, 15.18, 18.53))
    '15.2 (11.9–18.5)'
    """
    low, mid, high = map(digits, estimate)
    return f"{mid} ({low}–{high})"


def digits(value: float) -> str:
    """Three digits of a number.

    >>> digits(0.0), digits(1234.5), digits(99.96), digits(3.04), digits(0.5)
    ('0', '1230', '100', '3.04', '0.5')
    """
    if value <= 0:
        return "0"
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e" in text or float(text) >= 100 else text


# The colors and faces that rich writes for our own styles; nothing that hides text or lets it blink.
_COLOR = re.compile("(\x1b\\[(?:(?:[012347]|[349][0-79]|10[0-7]|[34]8;5;[0-9]{1,3})(?:;(?=[0-9])|(?=m)))+m)")

_BLANKS = re.compile("([\n\t])")


def harmless(text: str, colored: bool = False) -> str:
    """Whole lines made printable, but for their ends and tabs; with `colored`, the colors of our own stay."""
    if colored and "\x1b" in text:
        return "".join(part if i % 2 else harmless(part) for i, part in enumerate(_COLOR.split(text)))
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(part if part in ("\n", "\t") else printable(part) for part in _BLANKS.split(text))


_WIDTH = 110


def wrapped(text: str, width: int) -> list[str]:
    """A paragraph in lines of the terminal's width."""
    room = max(min(width, _WIDTH), 20)
    return textwrap.wrap(printable(text), room, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


_MARGIN = 60


def scenario_error(source: str, place: tuple[int, int] | None, message: str, expected: str, line_text: str) -> str:
    """`file:line:column: message`, what would have been right, and the line with a caret under the column."""
    where = f"{source}:{place[0]}:{place[1]}" if place else source
    text = f"{printable(where)}: {printable(message)}"
    if expected:
        text += f"; {printable(expected)}"
    if place is None or not line_text.strip():
        return text
    return f"{text}\n{_excerpt(place[0], place[1], line_text)}"


def _excerpt(line: int, column: int, line_text: str) -> str:
    """The line, cut around the column where it is long, and a caret below the column (both count from 1)."""
    line_text = line_text.rstrip("\r\n")
    at = min(max(column - 1, 0), len(line_text))
    start = max(at - _MARGIN, 0) if len(line_text) > 2 * _MARGIN else 0
    end = start + 2 * _MARGIN
    before = ("…" if start else "") + printable(line_text[start:at].replace("\t", "    "))
    after = printable(line_text[at:end].replace("\t", "    ")) + ("…" if end < len(line_text) else "")
    number = f"{line:>5} | "
    return f"{number}{before}{after}\n{' ' * (len(number) - 2)}| {' ' * _cells(before)}^"


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def ggml_error(error: Mapping[str, str | None], where: str = "") -> str:
    """ggml's own text first, then the function that refused, the place, and what it means here.

    `error` as in the plan; `where` is file, line and column of the node, "" if no node of a file is the matter.
    """
    # Some of ggml's messages end their line themselves.
    lines = [printable((error.get("message") or "ggml failed").rstrip("\n"))]
    function = error.get("function")
    explanation = error.get("explanation")
    if function:
        lines.append(f"  in {function}" + (f", for {printable(where)}" if where else ""))
    if explanation:
        lines.extend(f"  {printable(part)}" for part in explanation.splitlines())
    return "\n".join(lines)


def plan_step(plan: Plan) -> str:
    """`reserve main`."""
    return f"{plan.step} {printable(plan.graph or '')}".rstrip()
