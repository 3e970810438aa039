"""What a device supports, as a scenario says it: lists of ops, rules, cases of a real device, answers in a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from msgspec import Meta, defstruct, field

from ggmltool.ggml.devices.cases import OwnSupports
from ggmltool.ggml.devices.conditions import (
    EVERY_SOURCE,
    RESULT,
    Conditions,
    Contiguity,
    Number,
    NumberBounds,
    SupportRule,
)
from ggmltool.ggml.devices.questions import NotAQuestion, OpQuestion, parsed, without_memory
from ggmltool.ggml.devices.recorded import Order, RecordedAnswer, RecordedAnswers
from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.op import KEY_NAMES, keys_of
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.values import (
    INT64_MAX,
    Bool,
    Count,
    Id,
    Keys,
    Schema,
    Size,
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
    defined,
    key_names,
    read_keys,
    said,
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


def read_supports(value: object, own_name: str, folder: Path | None) -> OwnSupports:
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
    items = [] if given.get("rules") is None else at("rules", as_list, given["rules"], "rules")
    if len(items) > MOST_RULES:
        raise Mistake(f"there are {len(items)} rules", f"at most {MOST_RULES} are allowed", "rules")
    rules = tuple(at("rules", at, i, _rule, item) for i, item in enumerate(items))
    for i, rule in enumerate(rules if base == "except" else ()):
        for key in rule.keys or ():
            if key in keys:
                raise Mistake(f"{KEY_NAMES[key]} has a rule, but is also under except", "", "rules", i, "op")
    return OwnSupports(
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
    if not isinstance(value, list | tuple):
        return [convert(value)]
    if not 1 <= len(value) <= MOST_ITEMS:
        raise Mistake(f"{what} has {len(value)} items", f"1 to {MOST_ITEMS} are allowed")
    return [at(i, convert, item) for i, item in enumerate(value)]


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


def _bounds(value: object, number: str) -> NumberBounds:
    """A number, a list of them, or a map of bounds."""
    keys = ByteBoundsKeys if number == "bytes" else BoundsKeys
    if not isinstance(value, dict):
        read = as_size if number == "bytes" else as_int
        return NumberBounds(among=tuple(_list(value, number, lambda item: read(item, number))))
    given = as_map(value, number)
    check_keys(given, key_names(keys), number)
    if not given:
        raise Mistake(f"{number} has no bound", "{min: ..., max: ..., multiple: ...}, a number or a list of them")
    said = read_keys(given, keys)
    return NumberBounds(said.get("min"), said.get("max"), said.get("multiple"))


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


def dump_supports(supports: OwnSupports, names: Callable[[Iterable[int]], list[str]]) -> dict[str, Any]:
    """The map that says the same; `names` are those that stand for op keys."""
    words = {operand: word for word, operand in OPERANDS.items()}
    out: dict[str, Any] = {}
    if supports.cases is not None:
        out = {"csv": supports.cases.file, "backend": supports.cases.backend}
    elif supports.profile:
        out["profile"] = True
    elif supports.keys or not supports.exclude or not supports.rules:
        out["except" if supports.exclude else "only"] = names(supports.keys)
    for rule in supports.rules:
        ops = [ANY] if rule.keys is None else names(rule.keys)
        said: dict[str, Any] = {"op": ops[0] if len(ops) == 1 else ops}
        said |= {words[operand]: _dump_conditions(conditions) for operand, conditions in rule.operands}
        for key, operands in (("same_type", rule.same_type), ("same_shape", rule.same_shape)):
            if operands:
                said[key] = [words[operand] for operand in operands]
        out.setdefault("rules", []).append(said)
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


MOST_ANSWERS = 1_000_000
"""Answers of a device, at most."""

WORDS = {
    "supports": RecordedAnswer(True, False),
    "refuses": RecordedAnswer(False, False),
    "supports, offloads": RecordedAnswer(True, True),
    "refuses, offloads": RecordedAnswer(False, True),
}
_NAMES = {answer: text for text, answer in WORDS.items()}


class OrderKeys(Keys):
    """The nodes of a split in the order in which a device computes them."""

    nodes: list[str]
    kept: dict[str, list[str]] | None = None


class AnswersKeys(Keys):
    """What a device answered in a process."""

    ops: dict[str, Annotated[str, said(enum=list(WORDS))]] | None = None
    sizes: dict[str, dict[str, Count]] | None = None
    orders: list[OrderKeys] | None = None


def read_answers(value: object, what: str = "answers") -> RecordedAnswers:
    """The map `answers`. Raises Mistake."""
    given = as_map(value, what)
    check_keys(given, key_names(AnswersKeys), what)
    ops = at("ops", _by_question, given.get("ops"), "ops", _answer)
    bufts = at("sizes", as_map, {} if given.get("sizes") is None else given["sizes"], "sizes")
    sizes = {name: at("sizes", at, name, _sizes, name, of) for name, of in bufts.items()}
    items = at("orders", as_list, [] if given.get("orders") is None else given["orders"], "orders")
    return RecordedAnswers(ops, sizes, tuple(at("orders", at, i, _order, order) for i, order in enumerate(items)))


def _order(value: object) -> Order:
    given = as_map(value, "an order")
    check_keys(given, key_names(OrderKeys), "an order")
    nodes = at("nodes", _ids, given.get("nodes"))
    twice = next((id for id, n in Counter(nodes).items() if n > 1), None)
    if twice is not None:
        raise Mistake(f"{quoted(twice)} stands in an order more than once", "each node once", "nodes")
    kept = at("kept", as_map, {} if given.get("kept") is None else given["kept"], "kept")
    for id in kept:
        if id not in nodes:
            raise Mistake(
                f"{quoted(id)} is none of the nodes", "tensors are kept until a node of the split", "kept", id
            )
    return Order(nodes, tuple((id, at("kept", at, id, _ids, tensors)) for id, tensors in kept.items()))


def _ids(value: object) -> tuple[str, ...]:
    return tuple(at(i, as_id, id, "a tensor") for i, id in enumerate(as_list(value, "tensors")))


def _sizes(name: str, value: object) -> dict[OpQuestion, int]:
    as_id(name, "a buffer type's name")
    found = _by_question(value, "sizes", lambda v: as_int(v, "a size", 0, INT64_MAX))
    return {without_memory(asked): size for asked, size in found.items()}


def _by_question(value: object, what: str, convert: Callable[[Any], T]) -> dict[OpQuestion, T]:
    given = as_map({} if value is None else value, what)
    if len(given) > MOST_ANSWERS:
        raise Mistake(f"there are {len(given)} answers", f"at most {MOST_ANSWERS} are allowed")
    out: dict[OpQuestion, T] = {}
    for text, item in given.items():
        try:
            asked = parsed(as_text(text, "a question"))
        except NotAQuestion as error:
            raise Mistake(
                f"{quoted(text)} is not a question: at character {error.offset + 1}, {error}",
                "for example mul_mat(q4_0[640, 512], f32[640, 4]) -> f32[512, 4]",
                text,
                on_key=True,
            ) from None
        if asked in out:
            raise Mistake(f"{quoted(text)} has an answer already", "", text, on_key=True)
        out[asked] = at(text, convert, item)
    return out


def _answer(value: object) -> RecordedAnswer:
    text = as_text(value, "an answer")
    if text not in WORDS:
        hint = did_you_mean(text, WORDS) or f"expected {', or '.join(WORDS)}"
        raise Mistake(f"an answer cannot be {quoted(text)}", hint)
    return WORDS[text]


def dump_answers(recorded: RecordedAnswers) -> dict[str, Any]:
    """The map that says the same."""
    out: dict[str, Any] = {
        "ops": {asked.text: _NAMES[answer] for asked, answer in recorded.ops.items()},
        "sizes": {buft: {asked.text: size for asked, size in sizes.items()} for buft, sizes in recorded.sizes.items()},
    }
    for order in recorded.orders:
        kept = {"kept": {until: list(tensors) for until, tensors in order.kept}} if order.kept else {}
        out.setdefault("orders", []).append({"nodes": list(order.nodes), **kept})
    return out
