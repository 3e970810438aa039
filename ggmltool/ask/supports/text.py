"""The op × device matrix: which device could run which node of a graph, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from textwrap import wrap

from ggmltool.ask.answer import Answer
from ggmltool.ask.supports.record import STATES, NodeAnswers, SupportMatrix
from ggmltool.ggml.devices.cases import Basis
from ggmltool.ggml.devices.recorded import Heard
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, printable, shortened

_INKS = {"yes": "", "no": "bold red", "copy": "yellow", "offload": "cyan"}
_STATE_WIDTH = max(map(len, STATES))
_ROOM_FOR_NODES = 36
_NAMES_SHOWN = 3
_REASON_WIDTH = 110
_RUNS_ON = {False: "runs on", True: "on"}


def supports(answer: Answer[SupportMatrix], style: Style) -> str:
    """A row per kind of node (or per node), a column per backend, and below each backend's reasons."""
    found = answer.facts
    nodes, backends = found.asked, found.backends
    shown = count(found.total, "node") if len(nodes) == found.total else f"{len(nodes)} of {count(found.total, 'node')}"
    top = heading(answer.title, [answer.heading, shown], style)
    if not nodes:
        return top
    tight = sum(max(len(printable(name)), _STATE_WIDTH) + 2 for name in backends) > style.width - _ROOM_FOR_NODES
    table = (_node_table if found.by_node else _group_table)(nodes, backends, tight, style)
    if tight:
        # What the numbers and letters mean; a pair holds together where lines are broken.
        numbers = ", ".join(f"{i}\0{printable(name)}" for i, name in enumerate(backends))
        letters = ", ".join(f"{state[0]} {state}" for state in STATES)
        lines = wrap(numbers, max(style.width, 20), initial_indent="  ", subsequent_indent="  ")
        table += render_lines(["", *(line.replace("\0", " ") for line in lines), f"  {letters}"], style)
    parts = [top, table, _reasons(nodes, backends, style), _measured(nodes, backends, style)]
    return "\n".join(part for part in parts if part)


def _columns(backends: Sequence[str], tight: bool) -> list[Column[NodeAnswers]]:
    """What each backend answers."""

    def column(i: int, name: str) -> Column[NodeAnswers]:
        def answer(node: NodeAnswers) -> Cell:
            state = node.answers[i].state
            return Cell(state[0] if tight else state, _INKS[state])

        return Column(str(i) if tight else printable(name), answer)

    return [column(i, name) for i, name in enumerate(backends)]


def _group_table(nodes: Sequence[NodeAnswers], backends: Sequence[str], tight: bool, style: Style) -> str:
    groups: dict[tuple[object, ...], list[NodeAnswers]] = {}
    for n in nodes:
        groups.setdefault((n.op, n.types, tuple(a.state for a in n.answers)), []).append(n)
    sizes = Counter(n.op for n in nodes)

    def shape(group: list[NodeAnswers]) -> str:
        shapes = dict.fromkeys(dims(n.ne) for n in group)
        return next(iter(shapes)) if len(shapes) == 1 else count(len(shapes), "shape")

    def of_all(column: Column[NodeAnswers]) -> Column[list[NodeAnswers]]:
        return Column(column.header, lambda group: column.get(group[0]))

    table = Table[list[NodeAnswers]](
        Column("op", lambda group: group[0].op),
        Column("nodes", len, right=True),
        Column("types", lambda group: group[0].types, cut=True),
        Column("shape", shape, drop=1),
        *map(of_all, _columns(backends, tight)),
        Column(_RUNS_ON[tight], lambda group: _runs_on(group, backends, tight), cut=True),
    )
    return table.render(sorted(groups.values(), key=lambda g: (-sizes[g[0].op], g[0].op, -len(g))), style)


def _called(backends: Sequence[str], tight: bool) -> dict[str, str]:
    """What a table calls the backends: by name, or by number where it is tight."""
    return {name: str(i) if tight else name for i, name in enumerate(backends)}


def _runs_on(group: Sequence[NodeAnswers], backends: Sequence[str], tight: bool) -> str:
    numbers = Counter(n.backend for n in group)
    there = [(called, numbers[b]) for b, called in _called(backends, tight).items() if numbers[b]]
    return ", ".join(b if len(there) == 1 else f"{b} {n}" for b, n in there) or "–"


def _node_table(nodes: Sequence[NodeAnswers], backends: Sequence[str], tight: bool, style: Style) -> str:
    inks = term_colors(backends)
    called = _called(backends, tight)
    table = Table[NodeAnswers](
        Column("#", lambda n: n.index, right=True, drop=1 if tight else 0),
        Column("node", lambda n: n.id, cut=True),
        Column("op", lambda n: n.op),
        Column("types", lambda n: n.types, cut=True),
        Column("shape", lambda n: dims(n.ne), drop=2),
        *_columns(backends, tight),
        Column(_RUNS_ON[tight], lambda n: Cell(called.get(n.backend or "", "–"), inks.get(n.backend or "", ""))),
    )
    return table.render(nodes, style)


def _reasons(nodes: Sequence[NodeAnswers], backends: Sequence[str], style: Style) -> str:
    """Each backend's reasons, the most frequent first, with the ops and the first nodes they are about.

    Ops that a backend lacks altogether stand there without a reason.
    """
    from rich.text import Text

    inks = term_colors(backends)
    lines: list[str | Text] = []
    for i, name in enumerate(backends):
        for state, what in (("no", "does not support"), ("copy", "supports after copies")):
            told = _told(nodes, i, state)
            if not told:
                continue
            lines += [""] if lines else []
            lines.append(Text.assemble((printable(name), inks[name]), f" {what}"))
            for why, about in sorted(told.items(), key=lambda item: -len(item[1])):
                lines += _reason(why, about, style.width)
    return render_lines(lines, style) if lines else ""


_BASES: dict[StrEnum, str] = {
    Basis.EXACT: "the same case was tested",
    Basis.TYPES: "all cases of the op with these types agree",
    Basis.NEAREST: "taken from the cases with these types and the nearest rows",
    Basis.NO_CASE: "no case has these types, assumed not supported",
    Heard.ASKED: "asked in the process",
    Heard.LIKE: "not asked; the rules of the profile that it is like",
    Heard.SHAPES: "not asked; taken from the same op with these shapes in other memory",
    Heard.TYPES: "not asked; taken from the op with these types and the nearest shapes",
    Heard.OP: "not asked; taken from the nearest answers to the op",
    Heard.NEVER: "the op was never asked about",
}


def _measured(nodes: Sequence[NodeAnswers], backends: Sequence[str], style: Style) -> str:
    """What the answers rest on that are those of a real device."""
    lines: list[str] = []
    for i, name in enumerate(backends):
        answers = [(n, n.answers[i].measured) for n in nodes]
        if any(answer is not None for _, answer in answers):
            lines += [""] if lines else []
            recorded = any(answer is not None and isinstance(answer.basis, Heard) for _, answer in answers)
            found = "it did in a process" if recorded else "test-backend-ops found"
            lines.append(f"{printable(name)} answers as {found}")
        for basis, what in _BASES.items():
            about = [n for n, answer in answers if answer is not None and answer.basis is basis]
            lines += _reason(what, about, style.width) if about else []
    return render_lines(lines, style) if lines else ""


def _told(nodes: Sequence[NodeAnswers], i: int, state: str) -> dict[str, list[NodeAnswers]]:
    told: dict[str, list[NodeAnswers]] = {}
    for n in nodes:
        a = n.answers[i]
        if state == "no" and a.why_not is not None:
            told.setdefault("" if a.lacks else a.why_not, []).append(n)
        elif state == "copy" and a.why_not is None:
            for why in dict.fromkeys(f"source {m.slot} must be copied: {m.why}" for m in a.copies):
                told.setdefault(why, []).append(n)
    return told


def _reason(why: str, about: Sequence[NodeAnswers], width: int) -> list[str]:
    ops = Counter(n.op for n in about)
    names = ", ".join(f"{n} {op}" for op, n in ops.most_common())
    nodes = shortened([n.id for n in about], _NAMES_SHOWN)
    text = printable(f"{names}: {why}" if why else names)
    room = max(min(width, _REASON_WIDTH), 20)
    return [
        *wrap(text, room, initial_indent="  ", subsequent_indent="    "),
        *wrap(nodes, room, initial_indent="    ", subsequent_indent="    "),
    ]
