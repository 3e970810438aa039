"""Sizes, plurals and names that are safe to print."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.show.text import count, dims, harmless, printable, shortened, size

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
