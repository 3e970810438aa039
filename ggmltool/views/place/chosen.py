"""llama.cpp's own choice for people: its search in its own words, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, printable, size

if TYPE_CHECKING:
    from ggmltool.inspect.chosen import Chosen

_LEAST = 20


def chosen_view(chosen: Chosen, style: Style) -> str:
    """What --fit looked at and said, without the tables of memory that it logs, and the parameters that it set."""
    facts = [f"{d.name} {_memory(d.free)}" for d in chosen.devices] or ["no GPU"]
    facts.append(f"target {', '.join(dict.fromkeys(map(size, chosen.margins)))}")
    lines = [line for said in _said(chosen) for line in _wrapped(said, style)]
    parts = [heading("llama.cpp's --fit", facts, style), "\n", render_lines(lines, style)]
    parts += ["\n", render_lines([line for text in _result(chosen) for line in _wrapped(text, style)], style)]
    return "".join(parts)


def _memory(free: int) -> str:
    return f"{size(free)} free" if free else "reports no memory"


def _said(chosen: Chosen) -> Iterator[str]:
    """The lines of the search; the function that says nearly all of them is not named."""
    for line in chosen.fitted.log:
        function, _, text = line.partition(": ")
        if function != "common_memory_breakdown_print":
            yield text if function == "common_params_fit_impl" else line


def _wrapped(text: str, style: Style) -> list[str]:
    indent = len(text) - len(text.lstrip())
    return wrap(printable(text), max(style.width, _LEAST), subsequent_indent=" " * (indent + 2)) or [""]


def _result(chosen: Chosen) -> Iterator[str]:
    fitted = chosen.fitted
    if fitted.status == "crash":
        yield f"llama.cpp {fitted.reason} and ends here"
        return
    yield f"after {count(len(fitted.trials), 'measurement')}: {chosen.arguments}"
    if not fitted.ok:
        yield f"llama.cpp gives up: {fitted.reason}; it goes on with the parameters above"


def failure(chosen: Chosen) -> str:
    """Why there is no success, in a line."""
    fitted = chosen.fitted
    return f"llama.cpp {fitted.reason}" if fitted.status == "crash" else fitted.log[-1]
