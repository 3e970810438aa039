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


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ffn_moe_gate_biased-12", "ffn_moe_…-12"),
        ("CUDA0#attn_inp_kq_mask#3", "CUDA0#att…#3"),
        ("attn_inp_kq_mask~1", "attn_inp_…~1"),
        ("blk.0.ffn_down.weight", "blk.0.ffn_d…"),
        ("a word - 12", "a word - 12"),
        ("n-1234567890", "n-1234567890"),
        ("names-1234567890", "names-12345…"),
    ],
)
def test_a_name_keeps_the_number_at_its_end(name: str, shown: str) -> None:
    table = render_table((Column("tensor", cut=True),), [[name]], Style(14))
    assert table.splitlines()[1] == f"  {shown}"


def test_a_column_without_room_is_named_below_the_table() -> None:
    """U38"""
    columns = (Column("node"), Column("shape", drop=1), Column("why", drop=2), Column("usage", drop=1))
    rows = [["q", "[64, 8]", "it fits there", ""]]
    assert "left out" not in render_table(columns, rows, Style(80))
    assert render_table(columns, rows, Style(33)) == (
        "  node  shape    why\n  q     [64, 8]  it fits there\n"
    )  # nothing stood under usage
    assert "this width: why" in " ".join(render_table(columns, rows, Style(24)).split())
    assert "shape, why" in " ".join(render_table(columns, rows, Style(8)).split())
