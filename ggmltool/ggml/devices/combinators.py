"""Rules by combinators: what a device asks of an op, and what it says to one that it does not run.

    by_op({"ADD SUB MUL DIV": all_of(f32_or_f16(0, 1), same_type(0, 1)), "SSM_CONV": multiple(0, "ne1", 128)})

An operand is the number of a source, or RESULT. Of a source that is not there only `present` asks something. Every
combinator has its own words for a no, so that devices that ask the same say the same. A rule is a value: `ask` is what
planning calls, the fields besides it say the same as data (see `written_rules`); `holds` is for what has no data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ggmltool.ggml.device import NOT_IN_TABLE, OpRule
from ggmltool.ggml.devices.conditions import (
    Conditions,
    Contiguity,
    Number,
    NumberBounds,
    field_of,
    in_any_way,
    in_turn,
    name_of,
    number_test,
    of_one,
    of_two,
    of_types,
    operand,
    word,
)
from ggmltool.ggml.dtypes import F16, F32, TYPES, DType
from ggmltool.ggml.op import Op, keys_of
from ggmltool.ggml.tensor import (
    Tensor,
    are_same_shape,
    is_contiguous,
    is_contiguous_1,
    is_contiguous_2,
    is_contiguous_rows,
)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """`ask` is None for an op that runs, else the reason why it does not, as `ggmltool.ggml.device.OpRule` has it."""

    ask: OpRule


@dataclass(frozen=True, slots=True, eq=False)
class OperandMeets(Rule):
    """An operand meets conditions."""

    operand: int
    conditions: Conditions


@dataclass(frozen=True, slots=True, eq=False)
class Alike(Rule):
    """Operands are of one type, or of one shape."""

    what: Literal["type", "shape"]
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AllOf(Rule):
    """All of these; the reason is that of the first that says no."""

    parts: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf(Rule):
    """One of these."""

    alternatives: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Said(Rule):
    """Another rule, with a reason of its own."""

    rule: Rule


def types(names: str) -> frozenset[DType]:
    """The types of these names."""
    return frozenset(TYPES[name] for name in names.split())


ALL_TYPES = frozenset(TYPES.values())
F32_OR_F16 = frozenset((F32, F16))
FLOATS = types("f32 f16 bf16")
QUANTIZED = frozenset(type for type in ALL_TYPES if type.quantized)


def ops(names: str) -> frozenset[int]:
    """ggml's numbers of the ops of these names."""
    return frozenset(int(Op[name]) for name in names.split())


def by_op(rules: Mapping[str, Rule]) -> dict[int, Rule]:
    """Rules by op key, from rules by names of ops; UNARY and GLU stand for all their functions, a later name counts."""
    return {key: rule for names, rule in rules.items() for name in names.split() for key in keys_of(name.lower())}


def all_of(*rules: Rule) -> Rule:
    """All of these; the reason is that of the first that says no."""
    parts = tuple(part for rule in rules for part in _parts(rule))
    return parts[0] if len(parts) == 1 else AllOf(in_turn([part.ask for part in parts]), parts)


def any_of(*rules: Rule) -> Rule:
    """One of these; the reason is that of the one that came furthest, of equals that of the first."""
    return AnyOf(in_any_way([[part.ask for part in _parts(rule)] for rule in rules]), rules)


def unless(exempt: Rule, rule: Rule) -> Rule:
    """`rule` for all ops but those that `exempt` takes; the reason says both."""
    takes, asked = exempt.ask, rule.ask

    def ask(op: Tensor) -> str | None:
        why = takes(op)
        if why is None:
            return None
        refusal = asked(op)
        return None if refusal is None else f"{refusal}, and {why}"

    return AnyOf(ask, (exempt, rule))


def saying(reason: str, rule: Rule) -> Rule:
    """The rule with another reason; `{why}` in it is the rule's own."""
    asked, with_its_own = rule.ask, "{why}" in reason

    def ask(op: Tensor) -> str | None:
        refusal = asked(op)
        return refusal if refusal is None else reason.replace("{why}", refusal) if with_its_own else reason

    return Said(ask, rule)


def holds(reason: str, test: Callable[[Tensor], bool]) -> Rule:
    """Something that is no condition on operands; `reason` if it does not hold."""
    return Rule(lambda op: None if test(op) else reason)


def on(i: int, reason: str, test: Callable[[Tensor], bool]) -> Rule:
    """Something of one operand that is no condition; `reason` if it does not hold."""
    return Rule(of_one(i, test, reason))


def between(i: int, j: int, reason: str, test: Callable[[Tensor, Tensor], bool]) -> Rule:
    """Something of two operands that is no condition; `reason` if it does not hold."""
    return Rule(of_two(i, j, test, reason))


def param(i: int, values: Collection[int], reason: str) -> Rule:
    """Word `i` of the parameters is one of these."""
    return holds(reason, lambda op: word(op, i) in values)


Operands = int | tuple[int, ...]


def types_of(operands: Operands, accepted: DType | Collection[DType], why: str = "") -> Rule:
    """These operands have one of these types; `why` is said of others, instead of what they are not."""
    wanted = _in_order(accepted)
    why = why or f"not {_or(t.name for t in wanted)}"
    return _each(operands, lambda i: _typed(i, wanted, f"{name_of(i)} is {field_of(i, 'type')}, {why}"))


def not_types(operands: Operands, refused: DType | Collection[DType], why: str = "") -> Rule:
    """These operands have none of these types; `why` is what more is said of one that has."""
    unwanted = _in_order(refused)
    others = tuple(t for t in TYPES.values() if t not in unwanted)
    why = f", {why}" if why else ""
    return _each(operands, lambda i: _typed(i, others, f"{name_of(i)} is {field_of(i, 'type')}{why}"))


def f32(*operands: int) -> Rule:
    """These operands are f32."""
    return types_of(operands, F32)


def f32_or_f16(*operands: int) -> Rule:
    """These operands are f32 or f16, each for itself."""
    return types_of(operands, F32_OR_F16)


def floats(*operands: int) -> Rule:
    """These operands are f32, f16 or bf16, each for itself."""
    return types_of(operands, FLOATS)


def type_pairs(first: int, second: int, pairs: Mapping[DType, frozenset[DType]], reason: str) -> Rule:
    """The second operand has one of the types that `pairs` has for the type of the first, which is a source."""
    by_seconds: dict[frozenset[DType], list[DType]] = {}
    for type in _in_order(frozenset(pairs)):
        by_seconds.setdefault(pairs[type], []).append(type)
    alternatives = (all_of(types_of(first, of), types_of(second, seconds)) for seconds, of in by_seconds.items())
    return AnyOf(of_two(first, second, lambda a, b: b.type in pairs.get(a.type, ()), reason), tuple(alternatives))


def same_type(*operands: int) -> Rule:
    """These operands are of one type."""
    return _alike("type", lambda a, b: a.type is b.type, operands)


def same_shape(*operands: int) -> Rule:
    """These operands are of one shape."""
    return _alike("shape", are_same_shape, operands)


def contiguous(*operands: int, kind: Contiguity = "all") -> Rule:
    """These operands are contiguous."""
    test, reason = _CONTIGUOUS[kind]
    conditions = Conditions(contiguous=kind)
    return _each(operands, lambda i: OperandMeets(of_one(i, test, reason.format(name_of(i))), i, conditions))


def contiguous_rows(*operands: int) -> Rule:
    """The rows of these operands are contiguous."""
    return contiguous(*operands, kind="rows")


def present(*slots: int) -> Rule:
    """These sources are there."""
    return _each(slots, lambda i: _presence(i, True, f"{name_of(i)} is missing"))


def absent(*slots: int) -> Rule:
    """These sources are not there."""
    return _each(slots, lambda i: _presence(i, False, f"{name_of(i)} is there"))


def at_least(operands: Operands, number: Number, low: int) -> Rule:
    """A number of these operands is not less."""
    return _bounded(operands, number, NumberBounds(low=low), lambda n: n >= low, f"less than {low}")


def at_most(operands: Operands, number: Number, high: int) -> Rule:
    """A number of these operands is not more."""
    return _bounded(operands, number, NumberBounds(high=high), lambda n: n <= high, f"more than {high}")


def multiple(operands: Operands, number: Number, factor: int) -> Rule:
    """A number of these operands is a multiple."""
    return _bounded(
        operands, number, NumberBounds(multiple=factor), lambda n: n % factor == 0, f"no multiple of {factor}"
    )


def among(operands: Operands, number: Number, *values: int) -> Rule:
    """A number of these operands is one of the values."""
    return _bounded(operands, number, NumberBounds(among=values), values.__contains__, f"not {_or(map(str, values))}")


def asked(i: int, conditions: Conditions) -> Rule:
    """An operand meets all of these conditions."""
    types, kind, there, numbers = conditions.types, conditions.contiguous, conditions.present, conditions.numbers
    return all_of(
        *([] if there is None else [present(i) if there else absent(i)]),
        *([] if types is None else [types_of(i, types)]),
        *([] if kind is None else [contiguous(i, kind=kind)]),
        *(_within(i, number, bounds) for number, bounds in numbers),
    )


def _within(i: int, number: Number, bounds: NumberBounds) -> Rule:
    low, high, factor, values = bounds
    return all_of(
        *([] if low is None else [at_least(i, number, low)]),
        *([] if high is None else [at_most(i, number, high)]),
        *([] if factor is None else [multiple(i, number, factor)]),
        *([] if values is None else [among(i, number, *values)]),
    )


ALWAYS = AllOf(in_turn(()), ())
"""The rule of an op that runs whatever its operands are."""

NEVER = AnyOf(lambda _: NOT_IN_TABLE, ())
"""The rule of an op that does not run at all."""


_CONTIGUOUS: dict[Contiguity, tuple[Callable[[Tensor], bool], str]] = {
    "all": (is_contiguous, "{} is not contiguous"),
    "from 1": (is_contiguous_1, "{} is not contiguous from dimension 1 on"),
    "from 2": (is_contiguous_2, "{} is not contiguous from dimension 2 on"),
    "rows": (is_contiguous_rows, "rows of {} are not contiguous"),
}


def _parts(rule: Rule) -> tuple[Rule, ...]:
    return rule.parts if isinstance(rule, AllOf) else (rule,)


def _each(operands: Operands, one: Callable[[int], Rule]) -> Rule:
    return one(operands) if isinstance(operands, int) else all_of(*map(one, operands))


def _in_order(types: DType | Collection[DType]) -> tuple[DType, ...]:
    if isinstance(types, DType):
        return (types,)
    return tuple(sorted(types, key=lambda t: t.id)) if isinstance(types, frozenset) else tuple(types)


def _typed(i: int, types: tuple[DType, ...], reason: str) -> Rule:
    return OperandMeets(of_types(i, frozenset(types), reason), i, Conditions(types=types))


def _presence(i: int, wanted: bool, reason: str) -> Rule:
    return OperandMeets(
        lambda op: None if (operand(op, i) is not None) is wanted else reason, i, Conditions(present=wanted)
    )


def _alike(what: Literal["type", "shape"], same: Callable[[Tensor, Tensor], bool], operands: tuple[int, ...]) -> Rule:
    rules = []
    for i, j in ((operands[0], other) for other in operands[1:]):
        types = f", {field_of(i, 'type')} and {field_of(j, 'type')}" if what == "type" else ""
        reason = f"{name_of(i)} and {name_of(j)} differ in {what}{types}"
        rules.append(Alike(of_two(i, j, same, reason), what, (i, j)))
    return all_of(*rules)


def _bounded(operands: Operands, number: Number, bounds: NumberBounds, test: Callable[[int], bool], else_: str) -> Rule:
    holds = number_test(number, test)
    conditions = Conditions(numbers=((number, bounds),))
    return _each(operands, lambda i: OperandMeets(of_one(i, holds, f"{_number(number, i)}, {else_}"), i, conditions))


def _number(number: Number, i: int) -> str:
    """What is said of a number of an operand."""
    if number == "rows":
        return f"the number of rows of {name_of(i)} is {field_of(i, 'rows')}"
    if number == "bytes":
        return f"the size of {name_of(i)} is {field_of(i, 'bytes')} bytes"
    kind, d = number[:2], number[2]
    return f"{kind}[{d}] of {name_of(i)} is {field_of(i, kind, f'[{d}]')}"


def _or(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
