"""Rules of devices: what their reasons say is true of the op, and what they say as data is what they ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice

import pytest

from ggmltool.ggml.devices.combinators import (
    ALWAYS,
    NEVER,
    all_of,
    any_of,
    at_least,
    by_op,
    contiguous,
    f32,
    holds,
    multiple,
    not_types,
    present,
    same_type,
    saying,
    type_pairs,
    types,
    types_of,
    unless,
)
from ggmltool.ggml.devices.conditions import RESULT, SupportRule, operand
from ggmltool.ggml.devices.profile import Profile, make_buft, make_device
from ggmltool.ggml.devices.written_rules import read, written
from ggmltool.ggml.dtypes import F16, F32, TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, N_OP_KEYS, Op, UnaryOp
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import (
    Tensor,
    are_same_shape,
    is_contiguous,
    is_contiguous_1,
    is_contiguous_2,
    is_contiguous_rows,
)
from tests.ggml.devices.cases import Cases
from tests.ggml.graphs import Builder

WHAT = r"(the result|source \d)"
TYPE = f"({'|'.join(TYPES)})"
LAYOUTS: dict[str, Callable[[Tensor], bool]] = {
    "is not contiguous": is_contiguous,
    "is not contiguous from dimension 1 on": is_contiguous_1,
    "is not contiguous from dimension 2 on": is_contiguous_2,
}
BOUNDS: tuple[tuple[str, Callable[[int, int], bool]], ...] = (
    ("no multiple of", lambda n, bound: n % bound != 0),
    ("less than", lambda n, bound: n < bound),
    ("more than", lambda n, bound: n > bound),
)


def named(op: Tensor, what: str) -> Tensor:
    t = operand(op, RESULT if what == "the result" else int(what.removeprefix("source ")))
    assert t is not None
    return t


def words(listed: str) -> list[str]:
    return re.split(", | or ", listed)


def claims(op: Tensor, reason: str) -> Iterator[bool]:
    """What a reason claims, judged anew."""
    for what, type in re.findall(rf"{WHAT} is {TYPE}(?=,|$)", reason):
        yield named(op, what).type.name == type
    for what, type, others in re.findall(rf"{WHAT} is {TYPE}, not (\w+(?:, \w+)*(?: or \w+)?)(?=,|$)", reason):
        yield type not in words(others) and named(op, what).type.name == type
    for what, layout in re.findall(rf"{WHAT} ({'|'.join(LAYOUTS)})(?=,|$)", reason):
        yield not LAYOUTS[layout](named(op, what))
    for what in re.findall(rf"rows of {WHAT} are not contiguous", reason):
        yield not is_contiguous_rows(named(op, what))
    for kind, d, what, n in re.findall(rf"(n[eb])\[(\d)\] of {WHAT} is (\d+)", reason):
        yield getattr(named(op, what), kind)[int(d)] == int(n)
    for n, values in re.findall(r"\] of (?:the result|source \d) is (\d+), not (\d+(?:, \d+)*(?: or \d+)?)", reason):
        yield n not in words(values)
    for text, wrong in BOUNDS:
        for n, bound in re.findall(rf"(\d+), {text} (\d+)", reason):
            yield wrong(int(n), int(bound))
    for one, other, what in re.findall(rf"{WHAT} and {WHAT} differ in (type|shape)", reason):
        a, b = named(op, one), named(op, other)
        yield not (are_same_shape(a, b) if what == "shape" else a.type is b.type)


PROFILES = {f"{release.name} {name}": p for release in RELEASES.values() for name, p in profiles_of(release).items()}


@cache
def cases() -> list[Tensor]:
    """Ops of any types, shapes and layouts."""
    return list(islice(Cases(11), 6000))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_what_a_reason_says_of_types_shapes_and_strides_is_true_of_the_op(profile: Profile) -> None:
    device = make_device(profile, "D", make_buft(profile, "D", "D"))
    for op in cases():
        try:
            reason = device.why_not(op)
        except GgmlAssert:
            continue
        assert reason is None or all(claims(op, reason)), (reason, op)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_rules_as_data_ask_what_the_rules_ask(profile: Profile) -> None:
    data = {key: written(rule) for key, rule in profile.rules.items()}
    again = {key: any_of(*map(read, rules)) for key, rules in data.items() if rules}
    for op in cases():
        if op.key in again:
            assert (again[op.key].ask(op) is None) == (profile.rules[op.key].ask(op) is None), op


def node(a: str, b: str = "f32", result: str = "f32", n: int = 64) -> Tensor:
    build = Builder()
    return build.node("n", Op.ADD, build.leaf("a", n, 2, type=a), build.leaf("b", n, 2, type=b), type=result)


def test_the_reason_of_several_rules_is_the_first_refusal() -> None:
    rule = all_of(f32(0), multiple(0, "ne0", 32), f32(RESULT))
    assert rule.ask(node("f32")) is None
    assert rule.ask(node("f16", n=33)) == "source 0 is {type0}, not f32"
    assert rule.ask(node("f32", n=33)) == "ne[0] of source 0 is {ne0[0]}, no multiple of 32"


def test_the_reason_of_alternatives_is_that_of_the_one_that_came_furthest() -> None:
    rule = any_of(types_of(0, types("q4_0")), all_of(types_of(0, (F16, F32)), same_type(0, 1)))
    assert rule.ask(node("q4_0")) is None
    assert rule.ask(node("f16", "f16")) is None
    assert rule.ask(node("f16")) == "source 0 and source 1 differ in type, {type0} and {type1}"
    assert rule.ask(node("i32")) == "source 0 is {type0}, not q4_0"


def test_an_exemption_is_named_in_the_reason() -> None:
    rule = unless(not_types(1, F16), types_of(0, F16))
    assert rule.ask(node("f32", "f32")) is None
    assert rule.ask(node("f16", "f16")) is None
    assert rule.ask(node("f32", "f16")) == "source 0 is {type0}, not f16, and source 1 is {type1}"


def test_a_reason_of_its_own_may_have_the_rules() -> None:
    small = saying("too small: {why}", at_least(0, "ne0", 128))
    assert small.ask(node("f32")) == "too small: ne[0] of source 0 is {ne0[0]}, less than 128"
    assert saying("no", f32(0)).ask(node("f16")) == "no"
    assert saying("no", f32(0)).ask(node("f32")) is None


def test_of_a_source_that_is_not_there_nothing_is_asked_but_whether_it_is() -> None:
    alone = Builder().node("n", Op.ADD, Builder().leaf("a", 4))
    for rule in (f32(1), contiguous(1), same_type(0, 1), multiple(1, "ne0", 32), type_pairs(0, 1, {}, "no")):
        assert rule.ask(alone) is None
    assert present(0, 1).ask(alone) == "source 1 is missing"


def test_a_table_has_rules_by_op_and_function_and_a_later_one_counts() -> None:
    table = by_op({"UNARY ADD": ALWAYS, "SILU": NEVER})
    assert table[Op.ADD] is ALWAYS
    assert table[FIRST_UNARY_KEY + UnaryOp.SILU] is NEVER
    assert table.keys() == {Op.ADD, Op.UNARY, *range(FIRST_UNARY_KEY, FIRST_GLU_KEY)}
    assert by_op({"GLU": ALWAYS}).keys() == {Op.GLU, *range(FIRST_GLU_KEY, N_OP_KEYS)}


def test_what_has_no_data_is_not_written() -> None:
    assert written(all_of(f32(0), holds("no", lambda op: True))) is None
    assert written(all_of(f32(0), types_of(0, F16))) == ()
    assert written(ALWAYS) == (SupportRule(None),)
