"""What a message of ggml's means, what brings it about, and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ggmltool.ggml.messages import messages
from ggmltool.inspect.messages.explain import Explained, explained
from ggmltool.inspect.messages.match import Match
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import printable, shortened, wrapped

_FUNCTIONS = 4
_OTHERS = 6


def explain_error_view(found: Match, others: Sequence[Match], style: Style) -> str:
    """Its text with the values that were pasted and who prints it, then what it means; `others` are in the text too."""
    said = explained(found)
    told = [("What it means", said.told.means), ("What causes it", said.told.shapes)]
    told.append(("What to do", _sentence(said.told.remedy)))
    lines: list[str] = wrapped(_where(said), style.width)
    for name, text in told:
        if text:
            lines += ["", name, *wrapped(printable(text), style.width)]
    if said.told.ask:
        lines += ["", f"See also: ggmltool {said.told.ask}"]
    known = messages()
    wrong = [m for m in others if m.key not in known or known[m.key].level != "info"]
    if wrong:
        lines += ["", "Also in this text", *_listed(wrong, style)]
    first, *rest = textwrap.wrap(printable(said.title), style.width, subsequent_indent="  ") or [""]
    return heading(first, [], style) + render_lines([*rest, *lines], style)


def _where(said: Explained) -> str:
    old = f"of {said.where}" if said.era else said.where
    return f"{old}, in {shortened(said.functions, _FUNCTIONS)}" if said.functions else old


def _listed(others: Sequence[Match], style: Style) -> list[str]:
    lines = []
    for match in sorted(others[:_OTHERS], key=lambda m: m.line):
        lines += wrapped(f"line {match.line}: {printable(explained(match).title)}", style.width)
    if len(others) > _OTHERS:
        lines += wrapped(f"and {len(others) - _OTHERS} more", style.width)
    return lines


def nearest_text(nearest: Sequence[Match]) -> str:
    """What to say where no message is near enough."""
    lines = ["no known message of ggml or llama.cpp matches this text"]
    if nearest:
        lines += ["nearest:", *(f"  {m.text}" for m in nearest)]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
