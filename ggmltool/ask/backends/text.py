"""Devices, backends and their buffer types, and the function tables behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer
from ggmltool.ask.backends.record import (
    PLAIN,
    BackendInfo,
    BuftInfo,
    DeviceNumbers,
    DeviceRates,
    DevicesRates,
    Interfaces,
    LinkInfo,
    MadeBackends,
    Profiles,
    RegisteredInfo,
)
from ggmltool.ggml.releases.interfaces import Duty, FunctionTable, Need, TableFunction
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Head, Row, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, printable, size

if TYPE_CHECKING:
    from rich.text import Text

_LABEL = 14
_TEXT_WIDTH = 110


def profiles(answer: Answer[Profiles], style: Style) -> str:
    """What each known device is called, what it is, and what is left out."""
    from rich.text import Text

    profiles = answer.facts.profiles
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
    width = max(min(style.width, _TEXT_WIDTH), 40)
    indent = " " * (2 + _LABEL)
    first = f"  {printable(label):<{_LABEL - 2}}  "
    return list(wrap(printable(text), width, initial_indent=first, subsequent_indent=indent))


def backends(answer: Answer[MadeBackends], style: Style) -> str:
    """A block per backend, then the buffer types, and the registry of a ggml that has one."""
    from rich.text import Text

    made = answer.facts
    backends, bufts = made.backends, made.buffer_types
    inks = term_colors(b.name for b in backends)
    lines: list[str | Text] = []
    for b in backends:
        lines += ["", Text(printable(b.name), f"bold {inks[b.name]}")]
        for label, text in _facts(b, made.known_features[b.name]):
            lines += _fact(label, text, style)
    lines.append("")
    top = heading(answer.title, [count(len(backends), "backend"), count(len(bufts), "buffer type")], style)
    shown = top + render_lines(lines, style) + _buft_table(bufts, inks, style)
    if made.registry:
        note = "  made from NAME:params; no backend of that release reads its params"
        shown += "\n" + _REGISTRY.render(made.registry, style) + render_lines([note], style)
    return shown


_REGISTRY = Table[RegisteredInfo](
    Column("registry", lambda e: e.number, right=True),
    Column("name", lambda e: e.name),
    Column("made by", lambda e: e.init or Cell("–", "dim"), cut=True, drop=1),
    Column("default buffer type", lambda e: e.buft),
    Column("alignment", lambda e: e.alignment, right=True),
    Column("a buffer of n bytes", lambda e: f"n + {e.slack} bytes" if e.slack else "n bytes", cut=True, drop=2),
)


def _facts(b: BackendInfo, known_features: Sequence[str]) -> list[tuple[str, str]]:
    caps = [cap for cap, has in b.caps.items() if has]
    total, gpu, features = b.memory, b.engine.gpu, ""
    engine = b.engine.name or f"none: {b.engine.refusal}"
    if gpu is not None:
        total = gpu.total if total is None else total
        engine += f", on GPU {gpu.number} of this machine, {gpu.name}, with {size(gpu.free)} of {size(gpu.total)} free"
    if known_features:
        others = [feature for feature in known_features if feature not in b.features]
        features = (", ".join(b.features) or "none") + (f"; not {', '.join(others)}" if others else "")
    facts = [
        ("description", b.description),
        ("profile", b.profile),
        ("type", b.type.upper()),
        ("memory", "unknown" if total is None else f"{size(total)} ({total} bytes)"),
        ("computed by", engine),
        ("caps", ", ".join(caps) or "none"),
        ("lacks", ", ".join(cap for cap in b.caps if cap not in caps)),
        ("buffer type", b.buft),
        ("can use", ", ".join(b.supports_bufts)),
        ("offload", "never" if b.offload_min_batch is None else f"from a batch of {b.offload_min_batch} on"),
        ("features", features),
        ("max tensor", "" if b.max_tensor_size is None else f"{size(b.max_tensor_size)} ({b.max_tensor_size} bytes)"),
        ("node order", _ORDERS[b.graph_optimize]),
        ("leaves out", b.leaves_out),
    ]
    return [(label, text) for label, text in facts if text]


_ORDERS: dict[bool | None, str] = {
    None: "",
    True: "its own: it reorders each split before memory is planned (graph_optimize)",
    False: "the graph's; its own is switched off (graph_optimize: false)",
}


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


def interfaces(answer: Answer[Interfaces], style: Style) -> str:
    """The function tables: for one kind of device with the functions' names, for several side by side.

    Of a device that is none of ggml's, what it has to implement, where that is known.
    """
    from rich.text import Text

    backends, title, duties = answer.facts.backends, answer.title, answer.facts.duties
    kinds = Counter(b.profile for b in backends)
    known: dict[str, tuple[str, tuple[FunctionTable, ...]]] = {}
    for b in backends:
        if b.name in answer.facts.tables:
            name = b.name if kinds[b.profile] == 1 else b.profile
            known.setdefault(b.profile, (name, answer.facts.tables[b.name]))
    out = heading(title, ["function tables", *(f"{n} {kind}" for kind, n in kinds.items() if n > 1)], style)
    for i in range(min((len(tables) for _, tables in known.values()), default=0)):
        out += "\n" + _functions([(name, tables[i]) for name, tables in known.values()], style)
    own = [b.name for b in backends if b.name not in answer.facts.tables]
    if not own:
        return out
    note = f"{', '.join(own)}: not a device of ggml's, so it has no function tables"
    if duties:
        note += "; what a backend of your own implements, and what may be NULL:"
    out += render_lines(["", *wrap(printable(note), max(style.width, 20))], style)
    for kind, table in (duties or {}).items():
        out += "\n" + render_lines([Text(kind, "bold")], style) + _DUTIES.render(table, style)
    return out


_NEEDS = {Need.REQUIRED: "bold", Need.OPTIONAL: "dim"}
_DUTIES = Table[Duty](
    Column("field", lambda d: d.field),
    Column("needed", lambda d: Cell(str(d.need), _NEEDS.get(d.need, ""))),
    Column("what it does", lambda d: d.does, cut=True, drop=6),
    Column("if NULL", lambda d: d.if_null, cut=True),
)
_FUNCTIONS = Table[TableFunction](
    Column("field", lambda f: f.field),
    Column("function", lambda f: f.function or Cell(f"NULL  ({f.if_null})", "bold"), cut=True),
)


def _functions(tables: Sequence[tuple[str, FunctionTable]], style: Style) -> str:
    """One kind of table: of one backend with the functions' names, as a debugger shows it, and beside each NULL what
    ggml does instead; of several who has which function."""
    from rich.text import Text

    table = tables[0][1]
    if len(tables) == 1:
        top = render_lines([Text.assemble((table.kind, "bold"), ("  " + table.instance, "dim"))], style)
        return top + _FUNCTIONS.render(table.functions, style)
    rows: list[Row] = []
    for at, first in enumerate(table.functions):
        has = [table.functions[at].function is not None for _, table in tables]
        cells = [Cell("yes") if yes else Cell("NULL", "bold") for yes in has]
        rows.append([first.field, *cells, "" if all(has) else first.if_null])
    columns = [Head("field"), *(Head(printable(name)) for name, _ in tables), Head("if NULL", cut=True)]
    return render_lines([Text(table.kind, "bold")], style) + render_table(columns, rows, style)


_GIGA, _TERA = 1e9, 1e12


def _rate(rates: DeviceNumbers | LinkInfo | None, field: str, unit: float) -> str:
    if rates is None:
        return ""
    number = getattr(rates, field) / unit
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


_RATES: Table[DeviceRates] = Table(
    Column("device", get=lambda r: r.name, cut=True),
    Column("backends", get=lambda r: ", ".join(r.backends), drop=5),
    Column("memory", right=True, drop=7, get=lambda r: "" if r.memory is None else size(r.memory)),
    Column("free", right=True, get=lambda r: "" if r.free is None else size(r.free)),
    Column("GB/s", right=True, get=lambda r: _rate(r.rates, "bandwidth", _GIGA)),
    Column("f32", right=True, drop=1, get=lambda r: _rate(r.rates, "f32", _TERA)),
    Column("f16", right=True, get=lambda r: _rate(r.rates, "f16", _TERA)),
    Column("bf16", right=True, drop=6, get=lambda r: _rate(r.rates, "bf16", _TERA)),
    Column("int8", right=True, get=lambda r: _rate(r.rates, "int8", _TERA)),
    Column("to it GB/s", right=True, drop=2, get=lambda r: _rate(r.rates and r.rates.to_device, "pinned", _GIGA)),
)  # fmt: skip


def known_rates(answer: Answer[DevicesRates], style: Style) -> str:
    """Memory, its rate, tera operations a second by type, and the way to the device."""
    infos = answer.facts.devices
    top = heading(answer.title, [count(len(infos), "device"), "f32 to int8: tera operations a second at best"], style)
    return top + _RATES.render(infos, style)


def rates(answer: Answer[DevicesRates], style: Style) -> str:
    """The same, and below who says which numbers, once for all devices."""
    lines = [""]
    for info in {info.name: info for info in answer.facts.devices}.values():
        if info.rates is None:
            continue
        by_source: dict[str, list[str]] = {}
        for key, source in info.rates.sources.items():
            by_source.setdefault(source, []).append(key)
        for source, keys in by_source.items():
            lines += [f"  {info.name}, {', '.join(keys)}:", *(f"    {part}" for part in source.split("; "))]
    return known_rates(answer, style) + (render_lines(lines, style) if len(lines) > 1 else "")
