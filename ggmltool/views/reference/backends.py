"""Devices, backends and their buffer types, and the function tables behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from ggmltool.inspect.devices import PLAIN, BackendInfo, BuftInfo, EngineInfo, ProfileInfo
from ggmltool.inspect.interfaces import Duty, Function, Need
from ggmltool.inspect.interfaces import Table as FunctionTable
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Head, Row, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, printable, size

if TYPE_CHECKING:
    from rich.text import Text

SIZE_MAX = (1 << 64) - 1


_LABEL = 14
_TEXT_WIDTH = 110


def profiles_view(profiles: Sequence[ProfileInfo], style: Style) -> str:
    """What each known device is called, what it is, and what is left out."""
    from rich.text import Text

    lines: list[str | Text] = []
    for p in profiles:
        lines += ["", Text(printable(p.name), "bold")]
        lines += _fact("description", p.description, style)
        lines += _fact("type", p.type.upper(), style)
        lines += _fact("backends", p.names, style)
        if p.name != "custom":
            lines += _fact("as of", f"ggml {p.ggml}", style)
        if p.leaves_out:
            lines += _fact("leaves out", p.leaves_out, style)
    return heading("devices", [count(len(profiles), "profile")], style) + render_lines(lines, style)


def _fact(label: str, text: str, style: Style) -> list[str | Text]:
    from textwrap import wrap

    width = max(min(style.width, _TEXT_WIDTH), 40)
    indent = " " * (2 + _LABEL)
    return list(
        wrap(printable(text), width, initial_indent=f"  {printable(label):<{_LABEL - 2}}  ", subsequent_indent=indent)
    )


def backends_view(backends: Sequence[BackendInfo], bufts: Sequence[BuftInfo], title: str, style: Style) -> str:
    """A block per backend, then the buffer types."""
    from rich.text import Text

    inks = term_colors(b.name for b in backends)
    lines: list[str | Text] = []
    for b in backends:
        lines += ["", Text(printable(b.name), f"bold {inks[b.name]}")]
        for label, text in _facts(b):
            lines += _fact(label, text, style)
    lines.append("")
    top = heading(title, [count(len(backends), "backend"), count(len(bufts), "buffer type")], style)
    return top + render_lines(lines, style) + _buft_table(bufts, inks, style)


def _facts(b: BackendInfo) -> list[tuple[str, str]]:
    caps = [cap for cap, has in b.caps.items() if has]
    facts = [
        ("description", b.profile.description),
        ("profile", b.profile.name),
        ("type", b.type.upper()),
        ("memory", _memory(b)),
        ("computed by", _engine(b.engine)),
        ("caps", ", ".join(caps) or "none"),
        ("lacks", ", ".join(cap for cap in b.caps if cap not in caps)),
        ("buffer type", b.buft),
        ("can use", ", ".join(b.bufts)),
        ("offload", "never" if b.offload_min_batch is None else f"from a batch of {b.offload_min_batch} on"),
        ("features", _features(b)),
        ("max tensor", "" if b.max_tensor_size is None else f"{size(b.max_tensor_size)} ({b.max_tensor_size} bytes)"),
        ("node order", _ORDERS[b.graph_optimize]),
        ("leaves out", b.profile.leaves_out),
    ]
    return [(label, text) for label, text in facts if text]


def _memory(b: BackendInfo) -> str:
    total = b.engine.total if b.memory is None and b.engine.gpu is not None else b.memory
    return "unknown" if total is None else f"{size(total)} ({total} bytes)"


def _engine(e: EngineInfo) -> str:
    if e.refusal:
        return f"none: {e.refusal}"
    if e.gpu is None:
        return e.name
    return f"{e.name}, on GPU {e.gpu} of this machine, {e.gpu_name}, with {size(e.free)} of {size(e.total)} free"


_ORDERS: dict[bool | None, str] = {
    None: "",
    True: "its own: it reorders each split before memory is planned (graph_optimize)",
    False: "the graph's; its own is switched off (graph_optimize: false)",
}


def _features(b: BackendInfo) -> str:
    if not b.known_features:
        return ""
    lacks = [feature for feature in b.known_features if feature not in b.features]
    return (", ".join(b.features) or "none") + (f"; not {', '.join(lacks)}" if lacks else "")


def _buft_table(bufts: Sequence[BuftInfo], inks: dict[str, str], style: Style) -> str:
    notes: list[str | Text] = []
    for t in bufts:
        if t.alloc_size != PLAIN:
            notes += _fact(t.name, f"alloc size: {t.alloc_size}", style)
        if t.ops is not None:
            notes += _fact(t.name, f"supports only {', '.join(t.ops)} with source 0 in it", style)
    table = Table[BuftInfo](
        Column("buffer type", lambda t: t.name),
        Column("of", lambda t: Cell(t.device, inks.get(t.device, ""))),
        Column("alignment", lambda t: t.alignment, right=True),
        Column("max size", lambda t: "SIZE_MAX" if t.max_size == SIZE_MAX else size(t.max_size), right=True),
        Column("is_host", lambda t: str(t.is_host).lower()),
        Column("alloc size", lambda t: PLAIN if t.alloc_size == PLAIN else "more, see below"),
        Column("used by", lambda t: ", ".join(t.used_by) or "–", cut=True),
    )
    return table.render(bufts, style) + (render_lines(["", *notes], style) if notes else "")


def interface_view(
    backends: Sequence[BackendInfo], title: str, style: Style, duties: Mapping[str, Sequence[Duty]] | None = None
) -> str:
    """The function tables: for one kind of device with the functions' names, for several side by side.

    Of a device that is none of ggml's, what it has to implement: its `duties`, where they are known.
    """
    kinds = Counter(b.profile.name for b in backends)
    known: dict[str, tuple[str, tuple[FunctionTable, ...]]] = {}
    for b in backends:
        if b.tables is not None:
            known.setdefault(b.profile.name, (b.name if kinds[b.profile.name] == 1 else b.profile.name, b.tables))
    out = heading(title, ["function tables", *(f"{n} {kind}" for kind, n in kinds.items() if n > 1)], style)
    for i in range(min((len(tables) for _, tables in known.values()), default=0)):
        tables = [(name, tables[i]) for name, tables in known.values()]
        out += "\n" + (_side_by_side(tables, style) if len(tables) > 1 else _named(tables[0][1], style))
    own = [b.name for b in backends if b.tables is None]
    if not own:
        return out
    note = f"{', '.join(own)}: not a device of ggml's, so it has no function tables"
    if duties:
        note += "; what a backend of your own implements, and what may be NULL:"
    out += render_lines(["", *wrap(printable(note), max(style.width, 20))], style)
    return out + "".join(_duty_table(kind, table, style) for kind, table in (duties or {}).items())


_NEEDS = {Need.REQUIRED: "bold", Need.OPTIONAL: "dim"}
_DUTIES = Table[Duty](
    Column("field", lambda d: d.field),
    Column("needed", lambda d: Cell(str(d.need), _NEEDS.get(d.need, ""))),
    Column("what it does", lambda d: d.does, cut=True, drop=6),
    Column("if NULL", lambda d: d.if_null, cut=True),
)
_FUNCTIONS = Table[Function](
    Column("field", lambda f: f.field),
    Column("function", lambda f: f.function or Cell(f"NULL  ({f.if_null})", "bold"), cut=True),
)


def _duty_table(kind: str, duties: Sequence[Duty], style: Style) -> str:
    from rich.text import Text

    return "\n" + render_lines([Text(kind, "bold")], style) + _DUTIES.render(duties, style)


def _named(table: FunctionTable, style: Style) -> str:
    """One table with the functions' names, as a debugger shows it; beside each NULL what ggml does instead."""
    from rich.text import Text

    top = render_lines([Text.assemble((table.kind, "bold"), ("  " + table.instance, "dim"))], style)
    return top + _FUNCTIONS.render(table.functions, style)


def _side_by_side(tables: Sequence[tuple[str, FunctionTable]], style: Style) -> str:
    """One kind of table of several backends: who has which function."""
    from rich.text import Text

    top = render_lines([Text(tables[0][1].kind, "bold")], style)
    rows: list[Row] = []
    for at, first in enumerate(tables[0][1].functions):
        has = [table.functions[at].function is not None for _, table in tables]
        cells = [Cell("yes") if yes else Cell("NULL", "bold") for yes in has]
        rows.append([first.field, *cells, "" if all(has) else first.if_null])
    columns = [Head("field"), *(Head(printable(name)) for name, _ in tables)]
    return top + render_table([*columns, Head("if NULL", cut=True)], rows, style)
