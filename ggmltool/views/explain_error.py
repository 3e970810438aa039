"""What a message of ggml's means, what brings it about, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.messages import MESSAGES, Message
from ggmltool.ggml.messages.match import Match
from ggmltool.views.explain_node import wrapped
from ggmltool.views.table import Style, heading, render_lines
from ggmltool.views.text import shortened

_FUNCTIONS = 4


def explain_error_view(found: Match, style: Style) -> str:
    """Its text and where it stands in ggml, then what it means."""
    message = MESSAGES[found.key]
    told = [("What it means", message.means), ("What brings it about", message.shapes)]
    told.append(("What to do", _sentence(message.remedy)))
    where = f"{'of ' if message.era else ''}{_release(message)}, in {shortened(message.functions, _FUNCTIONS)}"
    lines: list[str] = wrapped(where, style.width)
    for name, text in told:
        if text:
            lines += ["", name, *wrapped(text, style.width)]
    if message.ask:
        lines += ["", f"See also: ggmltool {message.ask}"]
    return heading(found.text, [], style) + render_lines(lines, style)


def nearest_text(nearest: Sequence[Match]) -> str:
    """What to say where no message is near enough."""
    lines = ["no message of ggml's scheduler or allocator is like this"]
    if nearest:
        lines += ["the nearest are:", *(f"  {m.text}" for m in nearest)]
    return "\n".join(lines)


def _release(message: Message) -> str:
    return f"the ggml of {message.era}" if message.era else "ggml 0.20.2"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def explain_error_json(found: Match | None, nearest: Sequence[Match]) -> dict[str, Any]:
    """The message with all its texts, or those that are nearest."""
    out: dict[str, Any] = {"ggmltool": 1, "kind": "explain_error", "found": found is not None}
    if found is None:
        out["nearest"] = [m._asdict() for m in nearest]
        return out
    message = MESSAGES[found.key]._asdict()
    return out | found._asdict() | {key: list(v) if isinstance(v, tuple) else v for key, v in message.items()}
