"""The samples as a table and as JSON: what each is called and what it teaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.inspect.samples import SampleInfo
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count

if TYPE_CHECKING:
    from rich.text import Text

_TABLE = Table[SampleInfo](Column("sample", lambda i: i.name), Column("shows", lambda i: i.shows, cut=True))


def samples_view(infos: Sequence[SampleInfo], style: Style) -> str:
    """One row per sample, and how to get at one."""
    from rich.text import Text

    hints: list[str | Text] = ["", Text("ggmltool sample NAME prints one; -o FILE writes it", "dim")]
    title = heading("samples", [count(len(infos), "scenario")], style) + render_lines([""], style)
    return title + _TABLE.render(infos, style) + render_lines(hints, style)
