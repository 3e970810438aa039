"""The grammar of short forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.nodes.short_form import Arg, ShortCall, is_tensor, literal, parse_call, parse_tensor


def test_a_tensor_is_a_type_and_extents() -> None:
    short = parse_tensor(" q4_K [256, 3 ] ")
    assert (short.type, short.extents, short.offset, short.bracket, short.offsets) == ("q4_K", (256, 3), 1, 6, (7, 12))


def test_a_call_is_a_name_and_arguments_with_their_offsets() -> None:
    assert parse_call("scale(h, s = 0.5)") == ShortCall(
        "scale", (Arg(None, "h", False, 6), Arg("s", "0.5", False, 13)), 0
    )


def test_a_call_may_be_empty_and_may_span_lines() -> None:
    assert parse_call("f( )").args == ()
    assert [a.value for a in parse_call("f(a,\n  b)").args] == ["a", "b"]


def test_lists_hold_values() -> None:
    assert parse_call("f([1, -2, 3.5, x, 0x10])").args[0].value == [1, -2, 3.5, "x", 16]
    assert parse_call("f([])").args[0].value == []


def test_what_brackets_and_parentheses_mean() -> None:
    assert is_tensor("f32[4]")
    assert not is_tensor("f(a, ne=[4])")


@pytest.mark.parametrize(
    ("word", "value"),
    [("1", 1), ("-1", -1), ("1e-6", 1e-6), (".5", 0.5), ("2.", 2.0), ("true", True), ("neox", "neox"), ("1x", "1x"),
     ("0x10", 16), ("null", None)],
)  # fmt: skip
def test_bare_words_are_numbers_truth_values_or_themselves(word: str, value: object) -> None:
    assert literal(word) == value
    assert type(literal(word)) is type(value)


@given(st.lists(st.text(), max_size=5))
def test_any_text_can_be_an_id_in_quotes(ids: list[str]) -> None:
    call = parse_call(f"f({', '.join(json.dumps(s) for s in ids)})")
    assert [(a.value, a.quoted) for a in call.args] == [(s, True) for s in ids]


@given(st.text())
def test_no_text_gives_another_exception(text: str) -> None:
    for parse in (parse_call, parse_tensor):
        for candidate in (text, f"f({text})", f"f32[{text}]", f"f({text}"):
            try:
                parse(candidate)
            except Mistake as e:
                assert e.offset is None or 0 <= e.offset <= len(candidate)  # noqa: PT017
