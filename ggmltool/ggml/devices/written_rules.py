"""Rules as data and back: a scenario's as the rules of a device, and a known device's as a scenario writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from ggmltool.ggml.device import RULE, OpRule
from ggmltool.ggml.devices.combinators import (
    Alike,
    AllOf,
    AnyOf,
    OperandMeets,
    Rule,
    Said,
    all_of,
    any_of,
    asked,
    same_shape,
    same_type,
)
from ggmltool.ggml.devices.conditions import EVERY_SOURCE, Conditions, Contiguity, NumberBounds, SupportRule
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import N_OP_KEYS
from ggmltool.ggml.tensor import MAX_SRC

_MOST = 8
"""Rules that stand for one of a device: more of them nobody reads."""

_MOST_TRIED = 64

_EVERYTHING = SupportRule(None)


def support_rules(rules: Sequence[SupportRule]) -> tuple[dict[int, OpRule], OpRule | None]:
    """What a device asks of each op that has rules, by op key, and what it asks of every op (None: nothing)."""
    by_key: dict[int, list[Rule]] = {}
    for rule in rules:
        for key in rule.keys or ():
            by_key.setdefault(key, []).append(read(rule))
    always = [read(rule) for rule in rules if rule.keys is None]
    return {key: any_of(*of).ask for key, of in by_key.items()}, all_of(*always).ask if always else None


def read(rule: SupportRule) -> Rule:
    """A scenario's rule."""
    return all_of(*_conditions(rule), same_type(*rule.same_type), same_shape(*rule.same_shape))


def _conditions(rule: SupportRule) -> Iterator[Rule]:
    for operand, conditions in rule.operands:
        for i in range(MAX_SRC) if operand == EVERY_SOURCE else (operand,):
            yield asked(i, conditions)


def profile_rules(rules: Mapping[int, Rule], table: bytearray) -> tuple[list[SupportRule], list[int]]:
    """The rules that can be written, each once for all ops that have it; and the ops (keys) whose rules cannot.

    `table` is the device's, by op key.
    """
    keys: dict[tuple[SupportRule, ...], set[int]] = {}
    others = []
    for key in range(N_OP_KEYS):
        if table[key] == RULE and key in rules:
            rule = written(rules[key])
            if rule is None:
                others.append(key)
            else:
                keys.setdefault(rule, set()).add(key)
    return [replace(one, keys=frozenset(of)) for rule, of in keys.items() for one in rule], others


def written(rule: Rule) -> tuple[SupportRule, ...] | None:
    """Rules of a scenario (for no op yet) of which one holds exactly where this one does; None if there are none."""
    rules = _alternatives(rule)
    return None if rules is None or len(rules) > _MOST else rules


def _alternatives(rule: Rule) -> tuple[SupportRule, ...] | None:
    match rule:
        case OperandMeets(operand=i, conditions=conditions):
            return (SupportRule(None, ((i, conditions),)),)
        case Alike(what="type", operands=operands):
            return (SupportRule(None, same_type=operands),)
        case Alike(operands=operands):
            return (SupportRule(None, same_shape=operands),)
        case Said(rule=of):
            return _alternatives(of)
        case AnyOf(alternatives=alternatives):
            return _one_of([_alternatives(one) for one in alternatives])
        case AllOf(parts=parts):
            return _every([_alternatives(part) for part in parts])
    return None


def _one_of(alternatives: list[tuple[SupportRule, ...] | None]) -> tuple[SupportRule, ...] | None:
    out: list[SupportRule] = []
    for rules in alternatives:
        if rules is None:
            return None
        out += rules
    return _without_the_stricter(out)


def _every(parts: list[tuple[SupportRule, ...] | None]) -> tuple[SupportRule, ...] | None:
    out: tuple[SupportRule, ...] = (_EVERYTHING,)
    for rules in parts:
        if rules is None or len(out) * len(rules) > _MOST_TRIED:
            return None
        together = []
        for a, b in product(out, rules):
            both = _both(a, b)
            if both is None:
                return None
            together.append(both)
        out = _without_the_stricter([r for r in together if all(c.types != () for _, c in r.operands)])
    return out


def _without_the_stricter(rules: Sequence[SupportRule]) -> tuple[SupportRule, ...]:
    """Of rules of which one has to hold those that are not implied by others."""
    out: list[SupportRule] = []
    for rule in rules:
        if not any(_both(rule, other) == rule for other in out):
            out = [other for other in out if _both(other, rule) != other] + [rule]
    return tuple(out)


def _both(a: SupportRule, b: SupportRule) -> SupportRule | None:
    """One rule that asks what two ask; None if none does."""
    operands = dict(a.operands)
    for i, conditions in b.operands:
        both = _conditions_of_both(operands.get(i, Conditions()), conditions)
        if both is None:
            return None
        operands[i] = both
    types, shapes = _alike(a.same_type, b.same_type), _alike(a.same_shape, b.same_shape)
    if types is None or shapes is None:
        return None
    return SupportRule(None, tuple(operands.items()), types, shapes)


def _alike(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Operands that are alike where those of `a` are, and those of `b`."""
    return None if a and b and not set(a) & set(b) else tuple(dict.fromkeys((*a, *b)))


def _conditions_of_both(a: Conditions, b: Conditions) -> Conditions | None:
    numbers = dict(a.numbers)
    for number, bounds in b.numbers:
        both = _bounds(numbers.get(number, NumberBounds()), bounds)
        if both is None:
            return None
        numbers[number] = both
    contiguous = _contiguous(a.contiguous, b.contiguous)
    if (a.present, b.present) in ((True, False), (False, True)) or (a.contiguous and b.contiguous and not contiguous):
        return None
    present = b.present if a.present is None else a.present
    return Conditions(_types(a.types, b.types), contiguous, present, tuple(numbers.items()))


def _bounds(a: NumberBounds, b: NumberBounds) -> NumberBounds | None:
    """Those of both, where they bound different sides of a number."""
    if a == b or b == NumberBounds():
        return a
    asked = [{field: x for field, x in of._asdict().items() if x is not None} for of in (a, b)]
    both = asked[0] | asked[1]
    apart = len(both) == len(asked[0]) + len(asked[1])
    return NumberBounds(**both) if apart and ("among" not in both or len(both) == 1) else None


def _types(a: tuple[DType, ...] | None, b: tuple[DType, ...] | None) -> tuple[DType, ...] | None:
    return b if a is None else a if b is None else tuple(type for type in a if type in b)


def _contiguous(a: Contiguity | None, b: Contiguity | None) -> Contiguity | None:
    """The stricter of two; None where neither is."""
    if a == b or b is None:
        return a
    return b if a is None else "all" if "all" in (a, b) else None
