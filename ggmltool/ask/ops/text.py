"""The ops of ggml as tables, and one of them in full."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.ask.answer import Answer
from ggmltool.ask.ops.record import REFERENCE_PROFILES, FormInfo, OpInfo, OpList
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count

if TYPE_CHECKING:
    from rich.text import Text

_SPELLED_FROM = 110
"""Columns from which the table has room for how an op is written."""

_COLORS = {"yes": "green", "no": "red", "some": "yellow"}


def _shown(symbol: str) -> str:
    """ggml's sign for an op, which it writes into dot files, without the backslashes that are for those."""
    return symbol.replace("\\", "")


def ops(answer: Answer[OpList], style: Style) -> str:
    """A table of the ops, one of the functions of UNARY, and one of those of GLU."""
    infos = answer.facts.ops
    plain = [info for info in infos if not info.function_of]
    title = heading(f"the ops of ggml {answer.facts.ggml}", [count(len(plain), "op")], style)
    parts = [title, render_lines([""], style), _table(plain, style)]
    for family in ("UNARY", "GLU"):
        functions = [info for info in infos if info.function_of == family]
        if functions:
            what = heading(f"functions of {family}", [f"{len(functions)}, told apart by word 0 of op_params"], style)
            parts += [render_lines([""], style), what, _table(functions, style)]
    from rich.text import Text

    legend = [part for line in _LEGEND for part in textwrap.wrap(line, min(style.width, 120))]
    return "".join(parts) + render_lines(["", *(Text(line, "dim") for line in legend)], style)


def _table(infos: Sequence[OpInfo], style: Style) -> str:
    spelled = style.width >= _SPELLED_FROM
    functions = bool(infos[0].function_of)

    def supported(device: str) -> Column[OpInfo]:
        return Column(device, lambda i: Cell(i.supports[device], _COLORS[i.supports[device]]))

    devices = ("CPU", "CUDA", "Metal", "Vulkan", "BLAS") if spelled else ("CPU", "CUDA", "BLAS")
    columns: list[Column[OpInfo]] = [
        Column("#", lambda i: i.number, right=True),
        Column("function" if functions else "op", lambda i: i.name),
        Column("symbol", lambda i: _shown(i.symbol), cut=True, drop=1 if spelled else 5),
        Column("sources", _sources, right=True, drop=3),
        Column("memory", _memory, drop=2),
        Column("engine", lambda i: "computes" if i.computes else "refuses", drop=1),
        Column("cases", lambda i: i.cases or None, right=True, drop=4),
        *map(supported, devices),
        Column("in a scenario", lambda i: i.forms[0].spelled if i.forms else None, cut=True),
    ]
    shown = {"symbol": not functions, "in a scenario": spelled}
    return Table(*(c for c in columns if shown.get(c.header, True))).render(infos, style)


_LEGEND = (
    (
        "memory: view, it computes nothing and shares the memory of its source; of a, it computes into the memory of "
        "that source; in place, the graph allocator may put its result into the memory of a source "
        "(ggml_op_can_inplace)"
    ),
    "engine: knows its rule and computes it, with numpy or on a GPU with cupy; or cannot build it, like ggml",
    "cases: calls of it on which the tests hold the engine against ggml's own CPU backend",
    "CPU, CUDA …: whether a device of that profile supports it; some: depending on the tensors",
    "ggmltool ops NAME shows one op in full",
)


def _sources(info: OpInfo) -> str:
    low, high = info.sources.min, info.sources.max
    return str(low) if low == high else f"{low}–{high}"


def _memory(info: OpInfo) -> str:
    if info.is_view_op:
        return "view"
    if info.result_of:
        return f"of {info.result_of}"
    return "in place" if info.can_inplace else ""


def op(answer: Answer[Any], style: Style) -> str:
    """Everything about one op."""
    info: OpInfo = answer.facts
    facts = [f"{info.function_of or 'op'} {info.number}"] + ([_shown(info.symbol)] if info.symbol else [])
    lines: list[str | Text] = [""]
    for name, value in _facts(info):
        lines += _wrapped(value, style.width, f"  {name:<9}") if value else []
    out = heading(info.name, facts, style) + render_lines(lines, style)
    shown: set[str] = set()
    for form in info.forms:
        out += render_lines(["", *_form(form, style), *_params(form, shown, style), *_shapes(form, style)], style)
    if info.example:
        from rich.text import Text

        example: list[str | Text] = ["", Text("example", "bold")]
        example += [f"  {line}" for line in info.example.splitlines()]
        if info.result:
            example.append(Text(f"  the result is {info.result}", "dim"))
        out += render_lines(example, style)
    return out


def _facts(info: OpInfo) -> list[tuple[str, str]]:
    memory = "new"
    if info.is_view_op:
        memory = "none: a view of its source; it computes nothing"
    elif info.result_of:
        memory = f"that of its source {info.result_of}"
    elif info.can_inplace:
        memory = "new, or in place: that of a source that nothing else needs (ggml_op_can_inplace)"
    engine = (
        "knows type and shape of the result; computes it, with numpy or on a GPU with cupy"
        if info.computes
        else "cannot build it, like ggml"
    )
    by = {answer: ", ".join(n for n in REFERENCE_PROFILES if info.supports[n] == answer) for answer in _COLORS}
    return [
        ("sources", _sources(info)),
        ("memory", memory),
        ("engine", engine),
        ("runs on", by["yes"]),
        ("some on", f"{by['some']} (depending on its tensors)" if by["some"] else ""),
        ("not on", by["no"]),
        ("checked", f"{count(info.cases, 'call')}, checked against ggml's own CPU backend" if info.cases else ""),
        ("note", info.note),
    ]


def _wrapped(text: str, width: int, first: str = "", further: str = " " * 11) -> list[str]:
    return textwrap.wrap(text, max(width, 40), initial_indent=first, subsequent_indent=further, break_on_hyphens=False)


def _form(form: FormInfo, style: Style) -> list[str | Text]:
    """How it is written, in bold, and what its docstring says."""
    from rich.text import Text

    lines: list[str | Text] = [Text(line, "bold") for line in _wrapped(form.spelled, style.width, further="    ")]
    for paragraph in form.text.split("\n\n"):
        lines += _wrapped(paragraph, min(style.width, 120), "  ", "  ")
    if form.also:
        lines.append(f"  also called {', '.join(form.also)}")
    if form.inplace:
        lines.append(f"  in place: {form.name}_inplace, or inplace=true")
    if form.slots:
        lines.append(f"  the node's slots: {', '.join('the node itself' if s == 'self' else s for s in form.slots)}")
    return lines


def _shapes(form: FormInfo, style: Style) -> list[str]:
    """What it asks of shapes and types, a line each, and what comes out."""
    lines = []
    for label, texts in (("needs", form.asks), ("gives", (form.gives,) if form.gives else ())):
        for i, text in enumerate(texts):
            lines += _wrapped(text, min(style.width, 120), f"  {label if i == 0 else '':<7}")
    return lines


def _params(form: FormInfo, shown: set[str], style: Style) -> list[str]:
    """What each parameter is and means, without those that an earlier form of the op has shown."""
    new = [p for p in form.params if p.name not in shown]
    width = max((len(p.name) for p in new), default=0) + 2
    lines = []
    for p in new:
        kind = f"one of {', '.join(p.choices)}" if p.choices else p.kind
        text = f"{kind}: {p.meaning}" if p.meaning else kind
        lines += _wrapped(text, min(style.width, 120), f"    {p.name:<{width}}", " " * (width + 4))
    if new and len(new) < len(form.params):
        lines.append("    the other parameters: see above")
    shown.update(p.name for p in new)
    return lines
