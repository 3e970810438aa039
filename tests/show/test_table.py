"""What gives way in a table that is too wide: names, never a part of a number."""

from __future__ import annotations

import re
import time
from io import StringIO
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from ggmltool.show.colors import DARK, LIGHT, NO_BACKEND, PALETTE, Color, Ground, colors
from ggmltool.show.table import Cell, Column, Head, Style, Table, render_lines, render_table, without_middle
from ggmltool.show.text import count, dims, harmless, printable, shortened, size
from tests.contrast import TEXT, contrast, xterm

COLUMNS = (Head("#", right=True), Head("tensor", cut=True), Head("places", cut=True, numbers=True))
ROWS = [["0", "a_long_name_of_a_tensor", "0–128, 256–512, 1024–…"], ["1", "b", "weight 0:1234567+4096, b 1:77+32"]]


@pytest.mark.parametrize("width", range(24, 90))
def test_a_number_is_whole_or_not_there(width: int) -> None:
    numbers = set(re.findall(r"\d+", " ".join(ROWS[0] + ROWS[1])))
    lines = render_table(COLUMNS, ROWS, Style(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert set(re.findall(r"\d+", "".join(lines[1:]))) <= numbers


def test_a_list_ends_behind_a_comma_where_there_is_no_room_for_it() -> None:
    columns = (Head("tensor"), Head("free", cut=True, numbers=True))
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
    table = render_table((Head("tensor", cut=True),), [[name]], Style(14))
    assert table.splitlines()[1] == f"  {shown}"


def test_a_column_without_room_is_named_below_the_table() -> None:
    """U38"""
    columns = (Head("node"), Head("shape", drop=1), Head("why", drop=2), Head("usage", drop=1))
    rows = [["q", "[64, 8]", "it fits there", ""]]
    assert "left out" not in render_table(columns, rows, Style(80))
    assert render_table(columns, rows, Style(33)) == (
        "  node  shape    why\n  q     [64, 8]  it fits there\n"
    )  # nothing stood under usage
    assert "this width: why" in " ".join(render_table(columns, rows, Style(24)).split())
    assert "shape, why" in " ".join(render_table(columns, rows, Style(8)).split())


@pytest.mark.parametrize("colors", ["", "standard", "256"])
def test_lines_look_as_rich_prints_them(colors: Literal["", "standard", "256"]) -> None:
    """R5: what is faster than rich's console writes the same."""
    lines: list[str | Text] = [
        "", "plain", "two\nlines\n", "a\ttab", Text("bold", "bold"), Text(""), Text.assemble("a", ("b", "red"), "c "),
        Text.assemble(("x", "dim"), "\t", (" ", "bold cyan"), ("漢字", "color(208)")),
        Text(" indented ", "green on black"),
    ]  # fmt: skip
    lines[-1].append("more", "italic")  # type: ignore[union-attr]
    out = StringIO()
    console = Console(
        file=out, width=1000, _environ={}, color_system=colors or None, force_terminal=bool(colors),
        no_color=not colors, legacy_windows=False, highlight=False, markup=False, emoji=False, soft_wrap=True,
    )  # fmt: skip
    for line in lines:
        console.print(line, soft_wrap=True)
    assert render_lines(lines, Style(80, colors)) == out.getvalue()


@pytest.mark.parametrize("colors", ["", "256"])
def test_a_table_of_very_many_rows_is_written_in_a_moment(colors: Literal["", "256"]) -> None:
    """R5"""
    columns = [Head("name", cut=True), Head("op"), Head("size", right=True)]
    rows = [[Cell(f"node_{i}", "red"), "MUL_MAT", "1.2 MiB"] for i in range(30_000)]
    start = time.process_time()
    table = render_table(columns, rows, Style(20, colors))
    assert table.count("\n") == 30_001
    assert time.process_time() - start < 5


def test_a_column_has_its_cells_from_records() -> None:
    table = Table[tuple[str, int | None]](
        Column("name", lambda r: Cell(r[0], "bold")), Column("size", lambda r: r[1], right=True)
    )
    assert table.render([("a", 10), ("bcdef", None)], Style()) == "  name   size\n  a        10\n  bcdef\n"


def test_a_short_row_ends_in_empty_cells_and_a_section_has_a_name() -> None:
    table = Table[str](Column("a", lambda r: r), Column("b", len))
    assert render_table(table.columns, [["x"], *table.rows(["yy"])], Style()) == "  a   b\n  x\n  yy  2\n"
    assert table.section("Texts", ["x"], Style()) == ["\nTexts\n", "  a  b\n  x  1\n"]
    assert table.section("Texts", [], Style()) == []


def test_of_many_rows_the_middle_ones_are_counted() -> None:
    rows = [[str(n)] for n in range(10)]
    assert without_middle(rows, 10, lambda n: [f"{n} more"]) == rows
    assert without_middle(rows, 6, lambda n: [f"{n} more"]) == [
        ["0"], ["1"], ["2"], ["3"], ["4 more"], ["8"], ["9"]
    ]  # fmt: skip


ANSI = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (10240, "10 KiB"),
        (1023 * 1024, "0.999 MiB"),
        (270 * 2**20 + 12345, "270 MiB"),
        (2**64 - 1, "16 EiB"),
    ],
)
def test_sizes_have_three_digits_and_a_binary_unit(nbytes: int, text: str) -> None:
    assert size(nbytes) == text.replace("0.999", "1") or size(nbytes) == text


@given(st.integers(0, 2**64))
def test_a_size_never_has_more_than_four_digits(nbytes: int) -> None:
    assert sum(c.isdigit() for c in size(nbytes)) <= 4


@given(st.text())
def test_printable_text_is_one_line_without_controls(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown
    shown.encode()


@given(st.text(), st.booleans())
def test_harmless_text_has_lines_and_nothing_else_that_a_terminal_obeys(text: str, colored: bool) -> None:
    shown = harmless(text + "\x1b[1;38;5;71m" + text, colored)
    assert ("\x1b[1;38;5;71m" in shown) == colored
    assert all(c.isprintable() or c in "\n\t" for c in ANSI.sub("", shown) if not colored or c != "\x1b")


@pytest.mark.parametrize("code", ["\x1b[8m", "\x1b[5m", "\x1b[2J", "\x1b[38;5m", "\x1b[m", "\x1b]0;x\x07", "\x9b1m"])
def test_only_colours_of_our_own_pass(code: str) -> None:
    assert harmless(f"a{code}b", True) == printable(f"a{code}b")


def test_a_byte_of_a_cut_character_is_shown_as_that_byte() -> None:
    assert printable(b"a\xc3".decode("utf-8", "surrogateescape")) == "a\\xc3"


def test_plurals_extents_and_long_lists() -> None:
    assert count(1, "copy") == "1 copy"
    assert count(3, "copy") == "3 copies"
    assert dims((4, 3, 1, 1)) == "[4, 3]"
    assert dims((1, 1, 1, 1)) == "[1]"
    assert dims((1, 1, 2, 1)) == "[1, 1, 2]"
    assert shortened(["a", "", "c", "d"], 2) == 'a, "", +2 more'


SYSTEMS = (
    ["CPU"],
    ["CUDA0", "CPU"],
    ["CUDA0", "CUDA1", "CPU"],
    ["CUDA1", "CUDA0", "BLAS", "CPU"],
    ["CUDA1", "CPU"],
    ["CPU", "CUDA0"],
    ["BLAS", "CPU"],
    ["Vulkan0", "CPU"],
    ["CUDA0", "Vulkan0", "RPC0", "CPU"],
    ["CUDA0"],
)


@pytest.mark.parametrize("name", ["CPU", "CUDA0", "CUDA1", "BLAS", "Vulkan0"])
def test_a_device_has_one_colour_in_all_systems(name: str) -> None:
    """U32"""
    assert len({colors(system)[name] for system in SYSTEMS if name in system}) == 1


@given(st.lists(st.text() | st.sampled_from(["CPU", "CUDA0", "ROCm0", "GPU0", "MTL0"]), max_size=15, unique=True))
def test_devices_beside_each_other_differ_and_the_cpu_keeps_its_own(names: list[str]) -> None:
    """U32"""
    inks = colors(names)
    assert len(set(inks.values())) == len(names)
    assert [name for name in names if inks[name] == PALETTE[1]] == [name for name in names if name == "CPU"]


@pytest.mark.parametrize("color", [*PALETTE, NO_BACKEND])
def test_a_color_is_read_on_light_and_on_dark(color: Color) -> None:
    """As text on paper, and under text as an area; a terminal's ground is not known, so its inks are read on both."""
    assert contrast(color.ink, LIGHT.paper) >= TEXT
    assert contrast(color.dark_ink, DARK.paper) >= TEXT
    assert contrast(color.fill, LIGHT.ink) >= TEXT
    assert contrast(color.dark_fill, DARK.ink) >= TEXT
    term = xterm(int(color.term.removeprefix("color(").removesuffix(")")))
    assert min(contrast(term, "#ffffff"), contrast(term, "#000000")) >= 3.5


@pytest.mark.parametrize("ground", [LIGHT, DARK])
def test_words_are_read_on_paper(ground: Ground) -> None:
    assert contrast(ground.ink, ground.paper) >= TEXT
    assert contrast(ground.soft, ground.paper) >= TEXT
    assert contrast(ground.ink, ground.hatch) >= TEXT


def test_no_two_colors_are_alike() -> None:
    for part in zip(*PALETTE, strict=True):
        assert len(set(part)) == len(PALETTE)
