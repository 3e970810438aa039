"""A sweep over placements: a table, a chart, and the largest placement that fits."""

from __future__ import annotations

from shlex import quote
from textwrap import wrap

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.text import MARGIN, signed
from ggmltool.ask.sweep.record import PLACED, SweepShown, Swept, rates_of
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count, rate_text, size
from ggmltool.sources.llama.place.needs import Bytes

_BLOCKS = " ▏▎▍▌▋▊▉█"
_WIDEST_BAR = 40
_NUMBERS = ("-c", "-b", "-ub", "-np", "--outputs", "-ngl", "--n-cpu-moe")
_LEAST_DROP = 6
_NO_BYTES = Bytes(0, 0, 0, 0)
_PARTS = ("weights", "cache", "compute")


EQUAL = (
    "of {} with equally many layers on GPUs: the most weights there, then the longest context, the largest -ub, "
    "the most memory left"
)


def placements(answer: Answer[SweepShown], style: Style) -> str:
    """The table, the chart, and the best."""
    sweep = answer.facts
    facts = [count(len(sweep.swept), "placement"), *([sweep.options] if sweep.options else [])]
    parts = [heading(answer.title, facts, style), "\n", _table(sweep, style), "\n", _chart(sweep, style), "\n"]
    return "".join([*parts, render_lines(_summary(sweep, style), style)])


def _table(sweep: SweepShown, style: Style) -> str:
    inks = term_colors(sweep.devices)
    varied = sweep.varied
    known = bool(sweep.memory)
    parts: list[Head] = []
    for device in sweep.devices:
        # What a device's bytes are for, where there is room, and the sum; compute buffers of GPUs go last.
        first = _LEAST_DROP + len(_PARTS) - 1 + len(_PARTS) * (device not in sweep.gpus)
        parts += [Head(f"{device} {part}", right=True, drop=first - i) for i, part in enumerate(_PARTS)]
        parts.append(Head(device, right=True))
    columns = [
        *(Head(name, right=name in _NUMBERS, cut=name in ("-ot", "file")) for name in varied),
        *(Head(title, right=True) for _, titles in _graph_titles(sweep) for title in titles),
        *(Head(title, right=True, drop=4) for title in _speed_titles(sweep)),
        *parts,
        *([Head("left", right=True, drop=5), Head("fits")] if known else []),
    ]
    rows: list[Row] = []
    best = sweep.best() if known else None
    for s in sweep.swept:
        cells: list[str | Cell] = [s.options[name] or "–" for name in varied]
        if s.error:
            cells += [""] * (2 * len(s.graphs) + len(_speed_titles(sweep)) + (1 + len(_PARTS)) * len(sweep.devices))
        else:
            cells += [text for _, splits, copied in s.graphs for text in (str(splits), size(copied))]
            rates = rates_of(s)
            cells += [rate_text(rates[title]) if title in rates else "" for title in _speed_titles(sweep)]
            for device in sweep.devices:
                needs = s.needs.get(device, _NO_BYTES)
                cells += [size(n) if (n := getattr(needs, part)) else "" for part in _PARTS]
                cells.append(Cell(size(needs.total), "bold red" if s.lacks(device) else inks[device]))
        if known:
            left = min(s.left.values(), default=0)
            cells += [signed(left)]
            yes = Cell("yes (best)", "bold green") if s is best else "yes"
            cells += [yes if s.fits else Cell("no", "bold red")]
        rows.append(cells)
    return render_table(columns, rows, style)


def _graph_titles(sweep: SweepShown) -> list[tuple[str, tuple[str, str]]]:
    """The graphs, with the headings of their splits and copied bytes."""
    names = [name for name, _, _ in sweep.swept[0].graphs]
    if len(names) == 1:
        return [(names[0], ("splits", "copied"))]
    return [(name, (f"{name} splits", f"{name} copied")) for name in names]


def _speed_titles(sweep: SweepShown) -> list[str]:
    """The headings of estimated speeds."""
    return list(dict.fromkeys(title for s in sweep.swept for title in rates_of(s)))


def _chart(sweep: SweepShown, style: Style) -> str:
    """A line for each placement: bars of what the GPUs need, with a mark where they end, and of what graphs copy."""
    from rich.text import Text

    inks = term_colors(sweep.devices)
    labels = [" ".join(s.options[name] or "–" for name in sweep.varied) for s in sweep.swept]
    wide = min(max(map(len, labels)), max(style.width // 4, 8))
    shown = [g for g in sweep.gpus if g in sweep.devices]
    titles = _graph_titles(sweep)
    width = max(min((style.width - 2 - wide) // (len(shown) + len(titles)) - 4, _WIDEST_BAR), 6)
    scales = {g: max([sweep.memory.get(g, 0), *(s.needs.get(g, _NO_BYTES).total for s in sweep.swept)]) for g in shown}
    most = [max(s.graphs[i][2] for s in sweep.swept) for i in range(len(titles))]
    full = {**scales, **{heading: n for (_, (_, heading)), n in zip(titles, most, strict=True)}}
    head = [name if len(name) + 12 > width else f"{name} (to {size(n)})" for name, n in full.items()]
    lines = [Text("  " + " " * wide + "".join(f"  {h[: width + 1]:<{width + 1}}" for h in head), "dim")]
    for label, s in zip(labels, sweep.swept, strict=True):
        line = Text("  " + (label if len(label) <= wide else label[: wide - 1] + "…").rjust(wide))
        for g in shown:
            n = s.needs.get(g, _NO_BYTES).total
            limit = max(sweep.memory.get(g, scales[g]) - s.margins.get(g, 0), 0)
            line.append("  ")
            line.append(_bar(n, limit, scales[g], width), "red" if s.lacks(g) else inks[g])
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


def _summary(sweep: SweepShown, style: Style) -> list[str]:
    failed = sum(bool(s.error) for s in sweep.swept)
    programs = sweep.programs if len(sweep.programs) < 2 else dict.fromkeys(p.split(":")[0] for p in sweep.programs)
    lines = [*programs, *([f"{count(failed, 'placement')} on which ggml fails"] if failed else [])]
    retried = sum(bool(s.with_copies) for s in sweep.swept)
    if retried:
        lines.append(f"{count(retried, 'placement')} whose pipeline copies do not fit: llama.cpp retries without them")
    if not sweep.memory:
        return [*lines, "what fits? Name the free memory of your devices: --device CUDA0:24GiB"]
    best = sweep.best()
    if best is None:
        near = max(sweep.swept, key=lambda s: s.room)
        told = ", ".join(f"{d} is {size(n)} short" for d in near.left if (n := near.lacks(d)))
        return [*lines, f"nothing fits; nearest is {_named(sweep, near)}: {told}", *_margin(near, style)]
    left = [f"{size(n)} left on {d}" for d, n in best.left.items()]
    lines.append(f"largest that fits: {_named(sweep, best)}")
    equal = sum(s.fits and s.extent[0] == best.extent[0] for s in sweep.swept)
    if equal > 1:
        lines += wrap(EQUAL.format(equal), max(style.width, 20), initial_indent="  ", subsequent_indent="  ")
    costs = [f"{count(splits, 'split')}, {size(copied)} copied per ubatch" for _, splits, copied in best.graphs]
    if len(costs) > 1:
        lines += [f"  {name}: {cost}" for (name, _, _), cost in zip(best.graphs, costs, strict=True)]
        costs = []
    first, *others = [*costs, *left]
    lines.append(f"  {first}")
    for told in others:
        if len(lines[-1]) + 2 + len(told) > style.width:
            lines.append(f"  {told}")
        else:
            lines[-1] += f", {told}"
    lines += _margin(best, style)
    lines += [f"  {sweep.again}"] if sweep.again else []
    for title in _speed_titles(sweep):
        rated = [(rates[title], s) for s in sweep.swept if s.fits and title in (rates := rates_of(s))]
        if rated:
            rate, fastest = max(rated, key=lambda pair: pair[0].mid)
            text = f"fastest that fits, by an estimate of {title}: {_named(sweep, fastest)}, {rate_text(rate)}"
            lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    return lines


def _margin(s: Swept, style: Style) -> list[str]:
    """What has to stay free, in one line where there is room for it."""
    margins = ", ".join(dict.fromkeys(size(s.margins[device]) for device in s.left if s.margins.get(device)))
    text = MARGIN.format(margins) if margins else ""
    return wrap(text, max(style.width, 20), initial_indent="  ", subsequent_indent="  ")


def _named(sweep: SweepShown, s: Swept) -> str:
    """The options of a placement, with its capture if there are several."""
    shown = [*(name for name in sweep.varied if name not in ("file", *PLACED)), *PLACED]
    words = " ".join(f"{name} {quote(s.options[name])}" for name in shown if s.options[name])
    return ", ".join([words, *([s.options["file"]] if "file" in sweep.varied else [])])
