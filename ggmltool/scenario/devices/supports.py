"""What a device of one's own supports, as a scenario says it: lists of ops, rules, the cases of a real device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from msgspec import Meta, defstruct, field

from ggmltool.ggml.devices.conditions import Bounds, Conditions, Contiguity, Number, SupportRule, Supports
from ggmltool.ggml.devices.operands import EVERY_SOURCE, RESULT
from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.op import KEY_NAMES, keys_of
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.kinds import Bool, Count, Id, Keys, Schema, Size, defined, key_names, read_keys, said
from ggmltool.scenario.values import (
    INT64_MAX,
    as_bool,
    as_id,
    as_int,
    as_list,
    as_map,
    as_size,
    as_text,
    as_word,
    at,
    check_keys,
)

T = TypeVar("T")

OPERANDS = {"result": RESULT, "src": EVERY_SOURCE, **{f"src{i}": i for i in range(MAX_SRC)}}
NUMBERS: tuple[Number, ...] = get_args(Number)
CONTIGUITY: dict[str, Contiguity] = {
    "true": "all",
    "rows": "rows",
    "from 1": "from 1",
    "from 2": "from 2",
    "all": "all",
}
ANY = "any"
MOST_RULES = 1000
MOST_ITEMS = 256
_FORMS = "{only: [op, ...]}, {except: [...]}, {rules: [...]} or {csv: FILE}"


def read_supports(value: object, own_name: str, folder: Path | None) -> Supports:
    """The map `supports` of the backend called `own_name`; files lie in `folder`. Raises Mistake."""
    given = as_map(value, "supports")
    check_keys(given, key_names(SupportsKeys), "supports")
    lists = [
        key for key in ("only", "except", "profile", "csv") if given.get(key) is not None and given[key] is not False
    ]
    if len(lists) > 1:
        raise Mistake(f"supports takes either {' or '.join(lists)}", _FORMS)
    if not lists and "rules" not in given:
        raise Mistake("supports is empty", _FORMS)
    if "backend" in given and "csv" not in given:
        raise Mistake("backend selects cases of a csv, but there is no csv", _FORMS, "backend")
    base = lists[0] if lists else ""
    keys: frozenset[int] = at(base, op_keys, given[base]) if base in ("only", "except") else frozenset()
    rules: tuple[SupportRule, ...] = at("rules", _rules, given["rules"]) if given.get("rules") is not None else ()
    _check_no_contradiction(base, keys, rules)
    return Supports(
        keys,
        exclude=base in ("", "except", "profile"),
        rules=rules,
        profile=base == "profile" and at("profile", as_bool, given["profile"], "profile"),
        cases=at("csv", _cases, given, own_name, folder) if base == "csv" else None,
    )


def _cases(given: dict[str, Any], own_name: str, folder: Path | None) -> Any:
    from ggmltool.scenario.devices.support_csv import read_support_csv

    backend = None if given.get("backend") is None else as_id(given["backend"], "backend")
    return read_support_csv(as_text(given["csv"], "csv"), backend, own_name, folder)


def _check_no_contradiction(base: str, keys: frozenset[int], rules: Iterable[SupportRule]) -> None:
    if base == "except":
        for i, rule in enumerate(rules):
            for key in rule.keys or ():
                if key in keys:
                    raise Mistake(f"{KEY_NAMES[key]} has a rule, but is also under except", "", "rules", i, "op")


def op_keys(value: object, what: str = "a list of ops") -> frozenset[int]:
    """The keys of a list of ops."""
    if isinstance(value, str):
        return frozenset(_keys(value))
    return frozenset(key for i, item in enumerate(as_list(value, "a list of ops")) for key in at(i, _keys, item))


def _keys(item: object) -> tuple[int, ...]:
    try:
        return keys_of(as_id(item, "an op"))
    except KeyError:
        raise Mistake(f"{quoted(item)} is not an op", did_you_mean(str(item), KEY_NAMES)) from None


def _list(value: object, what: str, convert: Callable[[Any], T]) -> list[T]:
    """The items of a list, or one alone, bounded."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items or len(items) > MOST_ITEMS:
        raise Mistake(f"{what} has {len(items)} items", f"1 to {MOST_ITEMS} are allowed")
    return (
        [at(i, convert, item) for i, item in enumerate(items)] if isinstance(value, list | tuple) else [convert(value)]
    )


def _rules(value: object) -> tuple[SupportRule, ...]:
    items = as_list(value, "rules")
    if len(items) > MOST_RULES:
        raise Mistake(f"there are {len(items)} rules", f"at most {MOST_RULES} are allowed")
    return tuple(at(i, _rule, item) for i, item in enumerate(items))


def _rule(value: object) -> SupportRule:
    given = as_map(value, "a rule")
    check_keys(given, key_names(RuleKeys), "a rule")
    if given.get("op") is None:
        raise Mistake("a rule needs an op", "{op: mul_mat, src0: {types: [q4_0, f16]}, ...}, or op: any")
    operands = [
        (OPERANDS[key], at(key, _conditions, item, key))
        for key, item in given.items()
        if key in OPERANDS and item is not None
    ]
    return SupportRule(
        None if given["op"] == ANY else at("op", op_keys, given["op"]),
        tuple(operands),
        same_type=at("same_type", _alike, given["same_type"]) if "same_type" in given else (),
        same_shape=at("same_shape", _alike, given["same_shape"]) if "same_shape" in given else (),
    )


def _alike(value: object) -> tuple[int, ...]:
    words = [word for word in OPERANDS if word != "src"]
    out = _list(value, "a list of operands", lambda v: OPERANDS[as_word(v, "an operand", words)])
    if len(out) < 2:
        raise Mistake("it takes two operands to be alike", "[src0, src1] or [src0, result]")
    return tuple(out)


def _conditions(value: object, operand: str) -> Conditions:
    given = as_map(value, operand)
    check_keys(given, key_names(SourceKeys), operand)
    if "present" in given and operand in ("src", "result"):
        raise Mistake(f"present is asked of one source, src0 to src{MAX_SRC - 1}", "", "present", on_key=True)
    said = read_keys(given, SourceKeys)
    numbers = tuple((n, said[n]) for n in NUMBERS if n in said)
    return Conditions(said.get("types"), said.get("contiguous"), said.get("present"), numbers)


def _types(value: object, what: str) -> tuple[DType, ...]:
    return tuple(_list(value, what, lambda item: TYPES[as_word(item, "a type", TYPES)]))


def _contiguity(value: object, what: str) -> Contiguity | None:
    if isinstance(value, bool):
        return "all" if value else None
    return CONTIGUITY[as_word(value, what, CONTIGUITY)]


def _bounds(value: object, number: str) -> Bounds:
    """A number, a list of them, or a map of bounds."""
    keys = ByteBoundsKeys if number == "bytes" else BoundsKeys
    if not isinstance(value, dict):
        read = as_size if number == "bytes" else as_int
        return Bounds(among=tuple(_list(value, number, lambda item: read(item, number))))
    given = as_map(value, number)
    check_keys(given, key_names(keys), number)
    if not given:
        raise Mistake(f"{number} has no bound", "{min: ..., max: ..., multiple: ...}, a number or a list of them")
    said = read_keys(given, keys)
    return Bounds(said.get("min"), said.get("max"), said.get("multiple"))


TypeName = Annotated[str, said(enum=list(TYPES))]
Some = Meta(min_length=1, max_length=MOST_ITEMS)


class BoundsKeys(Keys):
    """Bounds of a number."""

    together: ClassVar[Schema] = {"minProperties": 1}
    min: Count | None = None
    max: Count | None = None
    multiple: Annotated[int, Meta(ge=1, le=INT64_MAX)] | None = None


class ByteBoundsKeys(Keys):
    """Bounds of bytes."""

    together: ClassVar[Schema] = {"minProperties": 1}
    min: Size | None = None
    max: Size | None = None
    multiple: Annotated[int, Meta(ge=1, le=INT64_MAX)] | None = None


Numbers = Annotated[Count | Annotated[list[Count], Some] | BoundsKeys, _bounds] | None
Bytes = Annotated[Size | Annotated[list[Size], Some] | ByteBoundsKeys, _bounds] | None
_NUMBERS: list[tuple[str, Any, None]] = [(n, Bytes if n == "bytes" else Numbers, None) for n in NUMBERS]
_TYPES = ("types", Annotated[TypeName | Annotated[list[TypeName], Some], _types] | None, None)
_CONTIGUOUS = ("contiguous", Annotated[Any, said(enum=[True, False, *CONTIGUITY]), _contiguity] | None, None)

ConditionKeys = defstruct("ConditionKeys", [_TYPES, _CONTIGUOUS, *_NUMBERS], bases=(Keys,), module=__name__)
"""What is asked of the result, and of every source."""
SourceKeys = defstruct(
    "SourceKeys", [_TYPES, _CONTIGUOUS, ("present", Bool | None, None), *_NUMBERS], bases=(Keys,), module=__name__
)
"""What is asked of one source."""

OpKeys = Annotated[Any, defined("op_list"), op_keys]
_Operand = Annotated[str, said(enum=[key for key in OPERANDS if key != "src"])]
_Alike = Annotated[list[_Operand], Meta(min_length=2, max_length=MOST_ITEMS)]

RuleKeys = defstruct(
    "RuleKeys",
    [
        ("op", Annotated[Any, said(anyOf=[{"const": ANY}, {"$ref": "#/$defs/op_list"}])]),
        *((key, (ConditionKeys if key in ("src", "result") else SourceKeys) | None, None) for key in OPERANDS),
        ("same_type", _Alike, None),
        ("same_shape", _Alike, None),
    ],
    bases=(Keys,),
    module=__name__,
)
"""A rule of what is supported."""

_ABSENT: Schema = {"enum": [None, False]}
_GIVEN: list[Schema] = [
    {"required": [key], "properties": {key: {"not": _ABSENT}}} for key in ("only", "except", "profile", "csv")
]
_Ops = Annotated[Any, said(anyOf=[{"$ref": "#/$defs/op_list"}, _ABSENT])]


class SupportsKeys(Keys):
    """What a device supports, by one of the lists or by rules."""

    together: ClassVar[Schema] = {
        "oneOf": [*_GIVEN, {"required": ["rules"], "not": {"anyOf": _GIVEN}}],
        "dependentRequired": {"backend": ["csv"]},
    }
    only: _Ops = None
    except_: _Ops = field(name="except", default=None)
    rules: Annotated[list[RuleKeys], Meta(max_length=MOST_RULES)] | None = None  # type: ignore[valid-type]
    profile: Bool | None = None
    csv: Annotated[Any, said(anyOf=[{"type": "string"}, _ABSENT])] = None
    backend: Id | None = None


def dump_supports(supports: Supports, names: Callable[[Iterable[int]], list[str]]) -> dict[str, Any]:
    """The map that says the same; `names` are those that stand for op keys."""
    out: dict[str, Any] = {}
    if supports.cases is not None:
        out = {"csv": supports.cases.file, "backend": supports.cases.backend}
    elif supports.profile:
        out["profile"] = True
    elif supports.keys or not supports.exclude or not supports.rules:
        out["except" if supports.exclude else "only"] = names(supports.keys)
    if supports.rules:
        out["rules"] = [_dump_rule(rule, names) for rule in supports.rules]
    return out


def _dump_rule(rule: SupportRule, names: Callable[[Iterable[int]], list[str]]) -> dict[str, Any]:
    words = {operand: word for word, operand in OPERANDS.items()}
    ops = [ANY] if rule.keys is None else names(rule.keys)
    out: dict[str, Any] = {"op": ops[0] if len(ops) == 1 else ops}
    out |= {words[operand]: _dump_conditions(conditions) for operand, conditions in rule.operands}
    for key, operands in (("same_type", rule.same_type), ("same_shape", rule.same_shape)):
        if operands:
            out[key] = [words[operand] for operand in operands]
    return out


def _dump_conditions(conditions: Conditions) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if conditions.types is not None:
        out["types"] = [t.name for t in conditions.types]
    if conditions.contiguous is not None:
        out["contiguous"] = True if conditions.contiguous == "all" else conditions.contiguous
    if conditions.present is not None:
        out["present"] = conditions.present
    for number, (low, high, multiple, among) in conditions.numbers:
        bounds = {k: v for k, v in (("min", low), ("max", high), ("multiple", multiple)) if v is not None}
        out[number] = bounds if among is None else among[0] if len(among) == 1 else list(among)
    return out
