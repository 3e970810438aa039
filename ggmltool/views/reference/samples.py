"""The samples as a table and as JSON: what each is called and what it teaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.inspect.samples import SampleInfo
from ggmltool.views.table import Head, Style, heading, render_lines, render_table
from ggmltool.views.text import count

if TYPE_CHECKING:
    from rich.text import Text

_COLUMNS = (Head("sample"), Head("shows", cut=True))


def samples_view(infos: Sequence[SampleInfo], style: Style) -> str:
    """One row per sample, and how to get at one."""
    from rich.text import Text

    rows = [[info.name, info.shows] for info in infos]
    hints: list[str | Text] = ["", Text("ggmltool sample NAME prints one, with -o FILE it is written", "dim")]
    title = heading("samples", [count(len(infos), "scenario")], style) + render_lines([""], style)
    return title + render_table(_COLUMNS, rows, style) + render_lines(hints, style)


def samples_json(infos: Sequence[SampleInfo]) -> dict[str, Any]:
    """The samples by name, with file and what they show."""
    return {"ggmltool": 1, "kind": "samples", "samples": [info._asdict() for info in infos]}
