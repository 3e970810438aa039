"""Where two plans differ: what ggmltool decided and what the real library did, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.views.table import Cell, Head, Row, Style, render_lines, render_table
from ggmltool.views.text import count, printable

NOT_IN_GGML = frozenset({"cause", "explanation", "function"})
"""Fields that a release build of ggml does not tell."""

MAX_SHOWN = 20


class Difference(NamedTuple):
    """`where` names the step and the field, as `alloc main: nodes[3] (h).offset`."""

    where: str
    ours: str
    ggml: str


def differences(step: str, ours: Mapping[str, Any], ggml: Mapping[str, Any]) -> Iterator[Difference]:
    """Every field of two plans that is not the same.

    Of a step that failed only the error counts; a crash of the library's is no judgement.
    """
    error = ggml.get("error")
    if isinstance(error, Mapping) and error.get("kind") == "crash":
        return
    if not ggml.get("ok") and not ours.get("ok"):
        fields = ("graph", "step", "error")
        ours, ggml = ({key: plan.get(key) for key in fields} for plan in (ours, ggml))
    yield from _compare(f"{step}: ", "", ours, ggml)


def _compare(prefix: str, path: str, ours: object, ggml: object) -> Iterator[Difference]:
    if isinstance(ours, Mapping) and isinstance(ggml, Mapping):
        for key in dict.fromkeys((*ours, *ggml)):
            if key not in NOT_IN_GGML and not (path == "error" and key not in ggml):
                inner = f"{path}.{key}" if path else str(key)
                yield from _compare(prefix, inner, ours.get(key, _NOTHING), ggml.get(key, _NOTHING))
    elif _rows(ours) and _rows(ggml) and isinstance(ours, Sequence) and isinstance(ggml, Sequence):
        if len(ours) != len(ggml):
            yield Difference(f"{prefix}{path}", f"{len(ours)} of them", f"{len(ggml)} of them")
        for i, (mine, theirs) in enumerate(zip(ours, ggml, strict=False)):
            label = mine.get("id", mine.get("name", ""))
            shown = f" ({label})" if isinstance(label, str) and label else ""
            yield from _compare(prefix, f"{path}[{i}]{shown}", mine, theirs)
    elif ours != ggml:
        yield Difference(f"{prefix}{path}", _show(ours), _show(ggml))


class _Nothing:
    def __repr__(self) -> str:
        return "(nothing)"


_NOTHING = _Nothing()


def _rows(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value)


def _show(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


def differences_view(found: Sequence[Difference], style: Style) -> str:
    """The first differences as a table, the others counted."""
    columns = (Head("where", cut=True), Head("ggmltool", cut=True), Head("ggml", cut=True))
    rows: list[Row] = [[d.where, Cell(d.ours, "red"), Cell(d.ggml, "green")] for d in found[:MAX_SHOWN]]
    text = render_table(columns, rows, style)
    if len(found) > MAX_SHOWN:
        text += render_lines([f"  and {count(len(found) - MAX_SHOWN, 'difference')} more"], style)
    return text


def first_line_that_differs(ours: bytes, ggml: bytes) -> Difference | None:
    """Where two debug prints part."""
    if ours == ggml:
        return None
    mine, theirs = ours.split(b"\n"), ggml.split(b"\n")
    for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return Difference(f"GGML_SCHED_DEBUG line {i + 1}", _text(a), _text(b))
    return Difference("GGML_SCHED_DEBUG", f"{len(mine)} lines", f"{len(theirs)} lines")


def _text(line: bytes) -> str:
    return printable(line.decode("utf-8", "surrogateescape"))
