"""What gives way in a table that is too wide: names, never a part of a number."""

from __future__ import annotations

import re

import pytest

from ggmltool.views.table import Column, Style, render_table

COLUMNS = (Column("#", right=True), Column("tensor", cut=True), Column("places", cut=True, numbers=True))
ROWS = [["0", "a_long_name_of_a_tensor", "0–128, 256–512, 1024–…"], ["1", "b", "weight 0:1234567+4096, b 1:77+32"]]


@pytest.mark.parametrize("width", range(24, 90))
def test_a_number_is_whole_or_not_there(width: int) -> None:
    numbers = set(re.findall(r"\d+", " ".join(ROWS[0] + ROWS[1])))
    lines = render_table(COLUMNS, ROWS, Style(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert set(re.findall(r"\d+", "".join(lines[1:]))) <= numbers


def test_a_list_ends_behind_a_comma_where_there_is_no_room_for_it() -> None:
    columns = (Column("tensor"), Column("free", cut=True, numbers=True))
    tables = [render_table(columns, [["tensor", ROWS[0][2]]], Style(width)) for width in range(18, 60)]
    shown = dict.fromkeys(table.splitlines()[1].split("  ")[-1] for table in tables)
    assert list(shown) == ["0–128, …", "0–128, 256–512, …", "0–128, 256–512, 1024–…"]
