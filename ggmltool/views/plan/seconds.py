"""How long a plan takes, split by split: an estimate with its range."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

from ggmltool.estimate.forecast import SOME_HOST, Speeds
from ggmltool.estimate.records import Rates
from ggmltool.inspect.timed import SplitTime, Timed
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, rate_text, seconds_text, size
from ggmltool.views.plan.splits import plan_step


def seconds_view(timed: Timed, title: str, style: Style) -> str:
    """A line per split, then what all of it comes to, and what it could be otherwise."""
    facts = [plan_step(timed.plan), f"an estimate: {seconds_text(timed.all)}"]
    parts = [heading(title, facts, style)]
    if timed.splits:
        parts += ["\n", _table(timed).render(timed.splits, style)]
    return "".join([*parts, "\n", render_lines(_facts(timed, style), style)])


def _table(timed: Timed) -> Table[SplitTime]:
    inks = term_colors(name for name, _ in timed.plan.backends)
    return Table(
        Column("split", lambda s: f"#{s.split}", right=True),
        Column("backend", lambda s: Cell(s.backend, inks.get(s.backend, ""))),
        Column("nodes", lambda s: s.nodes, right=True, drop=1),
        Column("copied", lambda s: size(round(s.nbytes)) if s.inputs else None, right=True, drop=2),
        Column("copies", lambda s: seconds_text(s.copies) if s.inputs else None, right=True),
        Column("computes", lambda s: seconds_text(s.computes), right=True),
    )


def _facts(timed: Timed, style: Style) -> list[str]:
    lines = [f"copies {seconds_text(timed.copies)}, computes {seconds_text(timed.computes)}"]
    if timed.n_tokens is not None:
        batch = f"{count(timed.n_tokens, 'token')} with {timed.cached} in the cache"
        lines.append(f"{batch}: {rate_text(timed.all.rate(timed.n_tokens))} tokens/s")
    if timed.pinned is not None:
        lines.append(f"weights in pinned memory (--no-mmap): {seconds_text(timed.pinned)}")
    if timed.other is not None:
        offload, seconds = timed.other
        lines.append(f"{'with' if offload else 'without'} op offload: {seconds_text(seconds)}")
    return [line for text in (*lines, hardware(timed.rates)) for line in wrap(printable(text), max(style.width, 20))]


def speed_lines(speeds: Speeds, rates: Mapping[str, Rates]) -> list[str]:
    """What is estimated of a placement, and whose rates that is by."""
    lines = []
    deep = f" with {speeds.cached} in the cache" if speeds.cached else ""
    if speeds.token is not None and speeds.token_rate is not None:
        seqs = f" of {speeds.n_seqs} sequences" if speeds.n_seqs > 1 else ""
        lines.append(f"estimate: {rate_text(speeds.token_rate)} tokens/s{seqs}{deep}")
    if speeds.prompt is not None and speeds.prompt_rate is not None:
        lines.append(
            f"estimate: first token of a prompt of {speeds.n_prompt}{deep} after {seconds_text(speeds.prompt)}, "
            f"{rate_text(speeds.prompt_rate)} tokens/s"
        )
    return [*lines, hardware(rates)]


def hardware(rates: Mapping[str, Rates]) -> str:
    """The hardware of each backend, and for which nobody named it."""
    named = [f"{name} is {of.name}" for name, of in rates.items() if of is not SOME_HOST]
    assumed = [name for name, of in rates.items() if of is SOME_HOST]
    return ", ".join(named) + (f"; {' and '.join(assumed)} not named, taken for {SOME_HOST.name}" if assumed else "")
