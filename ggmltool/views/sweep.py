"""A sweep over placements: a table, a chart, and the largest placement that fits."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.views.palette import colors
from ggmltool.views.table import Cell, Column, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, size

_BLOCKS = " ▏▎▍▌▋▊▉█"
_WIDEST_BAR = 40


class Swept(NamedTuple):
    """One placement: its options as texts by name, and what it came to.

    `graphs` are the name of each graph, its splits and the bytes they copy; `needs` and `left` are bytes by device.
    """

    options: Mapping[str, str]
    n_gpu_layers: int
    graphs: Sequence[tuple[str, int, int]]
    needs: Mapping[str, int]
    left: Mapping[str, int]
    error: str

    @property
    def fits(self) -> bool:
        return not self.error and all(n >= 0 for n in self.left.values())

    @property
    def splits(self) -> int:
        return sum(splits for _, splits, _ in self.graphs)

    @property
    def copied(self) -> int:
        return sum(copied for _, _, copied in self.graphs)


class Sweep(NamedTuple):
    """All placements: `fixed` is what they share, `memory` what devices have, where known; `gpus` name the GPUs."""

    fixed: str
    swept: Sequence[Swept]
    memory: Mapping[str, int]
    devices: Sequence[str]
    gpus: Sequence[str]

    @property
    def varied(self) -> list[str]:
        """The options that differ between placements; -ngl where none does."""
        names = list(self.swept[0].options)
        return [n for n in names if len({s.options[n] for s in self.swept}) > 1] or ["-ngl"]

    def best(self) -> Swept | None:
        """Of those that fit, the one with most layers on GPUs; of equal ones, that which copies least."""
        fitting = [s for s in self.swept if s.fits]
        return max(fitting, key=lambda s: (s.n_gpu_layers, -s.copied, -s.splits)) if fitting else None


def sweep_view(sweep: Sweep, title: str, style: Style, again: str = "") -> str:
    """The table, the chart, and the best. `again` is the command that shows one placement, without its options."""
    facts = [count(len(sweep.swept), "placement"), *([sweep.fixed] if sweep.fixed else [])]
    parts = [heading(title, facts, style), "\n", _table(sweep, style), "\n", _chart(sweep, style), "\n"]
    return "".join([*parts, render_lines(_summary(sweep, again, style), style)])


def _table(sweep: Sweep, style: Style) -> str:
    inks = {name: color.term for name, color in colors(sweep.devices).items()}
    varied = sweep.varied
    known = bool(sweep.memory)
    columns = [
        *(Column(name, right=name in ("-ngl", "--n-cpu-moe"), cut=name in ("-ot", "file")) for name in varied),
        *(Column(title, right=True) for _, titles in _graph_titles(sweep) for title in titles),
        *(Column(device, right=True) for device in sweep.devices),
        *([Column("left", right=True, drop=5), Column("fits")] if known else []),
    ]
    rows: list[Row] = []
    best = sweep.best() if known else None
    for s in sweep.swept:
        cells: list[str | Cell] = [s.options[name] or "–" for name in varied]
        if s.error:
            cells += ["" for _ in (*s.graphs, *s.graphs, *sweep.devices)]
        else:
            cells += [text for _, splits, copied in s.graphs for text in (str(splits), size(copied))]
            for device in sweep.devices:
                over = s.left.get(device, 0) < 0
                cells.append(Cell(size(s.needs.get(device, 0)), "bold red" if over else inks[device]))
        if known:
            left = min(s.left.values(), default=0)
            cells += [f"-{size(-left)}" if left < 0 else size(left)]
            cells += [Cell("no", "bold red") if not s.fits else Cell("yes, most", "bold green") if s is best else "yes"]
        rows.append(cells)
    return render_table(columns, rows, style)


def _graph_titles(sweep: Sweep) -> list[tuple[str, tuple[str, str]]]:
    """The graphs, with the headings of their splits and copied bytes."""
    names = [name for name, _, _ in sweep.swept[0].graphs]
    if len(names) == 1:
        return [(names[0], ("splits", "copied"))]
    return [(name, (f"{name} splits", f"{name} copied")) for name in names]


def _chart(sweep: Sweep, style: Style) -> str:
    """A line for each placement: bars of what the GPUs need, with a mark where they end, and of what graphs copy."""
    from rich.text import Text

    inks = {name: color.term for name, color in colors(sweep.devices).items()}
    labels = [" ".join(s.options[name] or "–" for name in sweep.varied) for s in sweep.swept]
    wide = min(max(map(len, labels)), max(style.width // 4, 8))
    shown = [g for g in sweep.gpus if g in sweep.devices]
    titles = _graph_titles(sweep)
    width = max(min((style.width - 2 - wide) // (len(shown) + len(titles)) - 4, _WIDEST_BAR), 6)
    scales = {g: max([sweep.memory.get(g, 0), *(s.needs.get(g, 0) for s in sweep.swept)]) for g in shown}
    most = [max(s.graphs[i][2] for s in sweep.swept) for i in range(len(titles))]
    full = {**scales, **{heading: n for (_, (_, heading)), n in zip(titles, most, strict=True)}}
    head = [name if len(name) + 12 > width else f"{name} (to {size(n)})" for name, n in full.items()]
    lines = [Text("  " + " " * wide + "".join(f"  {h[: width + 1]:<{width + 1}}" for h in head), "dim")]
    for label, s in zip(labels, sweep.swept, strict=True):
        line = Text("  " + (label if len(label) <= wide else label[: wide - 1] + "…").rjust(wide))
        for g in shown:
            n, limit = s.needs.get(g, 0), sweep.memory.get(g, scales[g])
            line.append("  ")
            line.append(_bar(n, limit, scales[g], width), "red" if s.left.get(g, 0) < 0 else inks[g])
        for (_, _, copied), n in zip(s.graphs, most, strict=True):
            line.append("  ")
            line.append(_bar(copied, n, n, width)[:-1].ljust(width + 1))
        lines.append(line)
    for line in lines:
        line.rstrip()
    return render_lines(lines, style)


def _bar(n: int, limit: int, scale: int, width: int) -> str:
    """A bar in eighths of a character, with a line where the limit is.

    >>> _bar(3, 8, 8, 8), _bar(12, 8, 16, 8)
    ('███     │', '████│█  ')
    """
    eighths = 0 if not scale else max(round(n * width * 8 / scale), 1 if n else 0)
    full, rest = divmod(eighths, 8)
    bar = ("█" * full + (_BLOCKS[rest] if rest else "")).ljust(width)
    at = width if not scale else limit * width // scale
    return f"{bar[:at]}│{bar[at + 1 :]}"


def _summary(sweep: Sweep, again: str, style: Style) -> list[str]:
    failed = sum(bool(s.error) for s in sweep.swept)
    lines = [f"{count(failed, 'placement')} that ggml refuses"] if failed else []
    if not sweep.memory:
        return [*lines, "what fits? Name the memory of your devices: --device CUDA0:24GiB"]
    best = sweep.best()
    if best is None:
        near = max(sweep.swept, key=lambda s: min(s.left.values(), default=0))
        lacks = {d: -n for d, n in near.left.items() if n < 0}
        told = ", ".join(f"{d} lacks {size(n)}" for d, n in lacks.items())
        return [*lines, f"nothing fits; nearest is {_named(sweep, near)}: {told}"]
    left = [f"{size(n)} left on {d}" for d, n in best.left.items()]
    lines.append(f"largest that fits: {_named(sweep, best)}")
    costs = [f"{count(splits, 'split')}, {size(copied)} copied per batch" for _, splits, copied in best.graphs]
    if len(costs) > 1:
        lines += [f"  {name}: {cost}" for (name, _, _), cost in zip(best.graphs, costs, strict=True)]
        costs = []
    lines += _wrapped([*costs, *left], style)
    return [*lines, *([f"  {again} {_words(best)}"] if again else [])]


def _wrapped(parts: Sequence[str], style: Style) -> list[str]:
    """The parts with commas between them, in lines that fit."""
    lines = ["  " + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 2 + len(part) > style.width:
            lines.append("  " + part)
        else:
            lines[-1] += f", {part}"
    return lines


def _named(sweep: Sweep, s: Swept) -> str:
    """The options of a placement, with its capture where there are several."""
    return ", ".join([_words(s), *([s.options["file"]] if "file" in sweep.varied else [])])


def _words(s: Swept) -> str:
    return " ".join(f"{name} {_shell(value)}" for name, value in s.options.items() if value and name != "file")


def _shell(value: str) -> str:
    from shlex import quote

    return quote(value)


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """The sweep as data."""
    best = sweep.best() if sweep.memory else None
    return {
        "ggmltool": 1,
        "kind": "sweep",
        "options": sweep.fixed,
        "devices": list(sweep.devices),
        "memory": dict(sweep.memory),
        "best": None if best is None else list(sweep.swept).index(best),
        "placements": [{**_record(s), "needs": dict(s.needs), "left": dict(s.left)} for s in sweep.swept],
    }


def _record(s: Swept) -> dict[str, Any]:
    return {**s.options, **_costs(s), "fits": s.fits, "error": s.error or None}


def _costs(s: Swept) -> dict[str, int]:
    """The splits and copied bytes of each graph, under its name where there are several."""
    prefix = len(s.graphs) > 1
    return {
        f"{name} " * prefix + what: n
        for name, splits, copied in s.graphs
        for what, n in (("splits", splits), ("copied", copied))
    }


def sweep_csv(sweep: Sweep) -> str:
    """The sweep as comma-separated values, exact bytes, a column for each device's need and for what it has left."""
    out = io.StringIO()
    names = list(_record(sweep.swept[0]))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, *sweep.devices, *(f"{device} left" for device in sweep.devices)])
    for s in sweep.swept:
        record = _record(s)
        row = [record[name] for name in names]
        row += [s.needs.get(device, "") for device in sweep.devices]
        writer.writerow(row + [s.left.get(device, "") for device in sweep.devices])
    return out.getvalue()
