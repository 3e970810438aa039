"""The JSON Schema of a scenario, for editors and validators: drawn from the structs and the ops that the loader knows.

It says what can be said of one value by itself: keys, kinds of values, words, the forms of texts. What depends on other
values (whether names resolve, shapes fit, files are there, ggml asserts) only the loader knows. Whatever the loader
takes is valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.json import schema_components

from ggmltool.ggml import ops
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import KEY_NAMES
from ggmltool.ggml.ops.registry import BY_OP, COMPOSITES, CONSTRUCTORS, SELF_BY_OP, Constructor, Param
from ggmltool.ggml.releases.table import BY_NAME, DEFAULT, RELEASES
from ggmltool.ggml.tensor import FLAGS, MAX_DIMS, MAX_OP_PARAMS, MAX_SRC
from ggmltool.scenario.devices.rates import RatesKeys
from ggmltool.scenario.devices.supports import AnswersKeys, SupportsKeys
from ggmltool.scenario.load import ContextKeys, GraphKeys, Title, TopKeys
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.nodes.nodes import INT64_MIN, OPS, signature
from ggmltool.scenario.nodes.short_form import HEX, MAX_LENGTH, NUMBER
from ggmltool.scenario.past import PastKeys
from ggmltool.scenario.read_data import KINDS, DataKeys
from ggmltool.scenario.spec import BackendKeys, BufferTypeKeys, SchedulerKeys
from ggmltool.scenario.steps import ALL_GRAPH_STEPS, OTHER_STEPS, StepKeys
from ggmltool.scenario.values import INT64_MAX, Bool, Count, Id, Keys, Number, Schema, any_case, defined, said
from ggmltool.scenario.versions import release_names

_SECTIONS: dict[Any, tuple[str, str]] = {
    TopKeys: ("Top level", "key"),
    ContextKeys: ("Contexts", "key"),
    GraphKeys: ("Graphs", "key"),
    StepKeys: ("Steps", "step"),
    DataKeys: ("Data", "key"),
    BackendKeys: ("Backends", "key"),
    BufferTypeKeys: ("Buffer types", "key"),
    SchedulerKeys: ("Scheduler", "key"),
    SupportsKeys: ("Backends", "key of `supports`"),
    RatesKeys: ("Backends", "key of `rates`"),
    AnswersKeys: ("Backends", "key of `answers`"),
    PastKeys: ("Scheduler", "key of `past`"),
}
"""Where the manual says what the keys mean, and how the first column of its table is called."""


_PAGE = Path(__file__).resolve().parents[1] / "docs" / "scenario.md"
_NULL: Schema = {"type": "null"}
_FALSY: Schema = {"enum": [None, False, 0, "", [], {}]}
_REF = "#/$defs/{name}"


def scenario_schema() -> Schema:
    """The schema (draft 2020-12) as a dict."""
    ops.load()
    _, drawn = schema_components([TopKeys, DataKeys, _LeafKeys, _OpNodeKeys], ref_template=_REF)
    sections = {**_SECTIONS, _LeafKeys: ("Tensors and nodes", "key"), _OpNodeKeys: ("Tensors and nodes", "key")}
    for keys, (section, head) in sections.items():
        _describe(drawn[keys.__name__]["properties"], section, head)
    together = {keys.__name__: keys.together for keys in _all_keys(Keys)}
    for name, struct in drawn.items():
        del struct["title"]
        struct.update(together[name])
        for schema in struct["properties"].values():
            schema.pop("default", None)
    # What the hardware can have, of any kind of device: a list, or text with `+`.
    words = list(dict.fromkeys(feature for profile in PROFILES.values() for feature in profile.features))
    text = rf"^\+*(?:(?:{'|'.join(words)})(?:\++|$))*$"
    top, data = drawn.pop("TopKeys"), drawn.pop("DataKeys")
    leaf, op_node = drawn.pop("_LeafKeys"), drawn.pop("_OpNodeKeys")
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A scenario of ggmltool",
        **top,
        "allOf": [
            _steps_of(kinds) for kinds in dict.fromkeys((*(r.steps for r in RELEASES.values()), ALL_GRAPH_STEPS))
        ],
        "$defs": {
            **drawn,
            "data": {
                **data,
                "type": ["array", "object"],
                "oneOf": [_ref("values"), *({"type": "object", "required": [kind]} for kind in KINDS)],
                "dependentRequired": {"gguf": ["tensor"], "tensor": ["gguf"]},
            },
            "values": {"type": "array", "anyOf": [{"items": _schema(Number)}, {"items": _ref("values")}]},
            "op_name": {"enum": list(dict.fromkeys(KEY_NAMES))},
            "op_list": {"anyOf": [_ref("op_name"), {"type": "array", "items": _ref("op_name")}]},
            "features": {"anyOf": [{"type": "array", "items": {"enum": words}}, {"type": "string", "pattern": text}]},
            "type": _schema(TypeWord),
            "ne": _schema(Count | Annotated[list[Count], Meta(min_length=1, max_length=MAX_DIMS)]),
            **_tensors(leaf),
            **_op_nodes(op_node),
        },
    }

    def as_definition(name: re.Match[str]) -> str:
        """A struct's name as that of a definition: BufferTypeKeys is buffer_type."""
        return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name[1]).lower()

    return json.loads(re.sub(r"\b([A-Z][A-Za-z]+)Keys\b", as_definition, json.dumps(whole)))  # type: ignore[no-any-return]


def _all_keys(of: type[Keys]) -> Iterator[type[Keys]]:
    for keys in of.__subclasses__():
        yield keys
        yield from _all_keys(keys)


def _schema(kind: Any) -> Schema:
    """The schema of a kind of value."""
    ((schema,), _) = schema_components([kind], ref_template=_REF)
    return schema


def _ref(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}


def _describe(schemas: dict[str, Schema], section: str, head: str) -> None:
    """Put what the manual's table in a section says of keys, in the column with this heading, into their schemas."""
    rows = _rows(section, head)
    for key, schema in schemas.items():
        row = rows.get(key, {})
        text = row.get("meaning", row.get("what it is", ""))
        if row.get("default", "").startswith("`"):
            text += f". Default: {row['default']}"
        if text:
            schemas[key] = {"description": text, **schema}


@cache
def _rows(section: str, head: str) -> dict[str, dict[str, str]]:
    """The manual's table in a section, by the first column, whose heading is `head`: each row by the others."""
    _, _, rest = _PAGE.read_text("utf-8").partition(f"\n## {section}\n")
    _, _, table = rest.partition("\n## ")[0].partition(f"| {head} |")
    heads, _, *lines = table.partition("\n\n")[0].splitlines()
    columns = [column.strip() for column in heads.strip("| ").split("|")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {key.strip("`"): dict(zip(columns, cells, strict=False)) for key, *cells in rows}


def _steps_of(kinds: tuple[str, ...]) -> Schema:
    """The steps of releases that have these kinds of them; a file without `ggml` means today's, one with null all."""
    names = release_names(name for name, release in BY_NAME.items() if release.steps == kinds)
    of_these: Schema = {"properties": {"ggml": {"enum": names or [None]}}}
    if DEFAULT.name not in names:
        of_these["required"] = ["ggml"]
    step: Schema = {
        "pattern": rf"^\s*(?:reset\s*|(?:{'|'.join(kinds)}) +\S[\s\S]*)$",
        "patternErrorMessage": f"A step is {', '.join(f'{kind} GRAPH' for kind in kinds)} or reset, or a map.",
        "propertyNames": {"enum": [*kinds, *OTHER_STEPS]},
    }
    return {"if": of_these, "then": {"properties": {"steps": {"items": step}}}}


_EXTENT = rf"(?!-0*\.?0*[1-9])(?:{NUMBER.pattern}|{HEX.pattern})"
_WORD = r"""[^\s"'(),=\[\]][^(),=\[\]]*"""
_QUOTED = r'"(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"' + r"|'(?:[^'\\]|\\[\s\S])*'"
_ITEM = rf"(?:{_QUOTED}|{_WORD})\s*"
_LIST = rf"\[\s*(?:{_ITEM}(?:,\s*{_ITEM})*)?\]"
_ARGUMENT = rf"\s*(?:(?:{_WORD}=\s*)?(?:{_LIST}|{_ITEM}))\s*"
_ARGUMENTS = rf"\s*\((?:\s*|{_ARGUMENT}(?:,{_ARGUMENT})*)\)\s*$"
_TYPE = any_case(TYPES)
_SHORT_TENSOR = rf"^\s*(?:{_TYPE})\s*\[\s*{_EXTENT}\s*(?:,\s*{_EXTENT}\s*){{0,{MAX_DIMS - 1}}}\]\s*$"
"""`f32[4, 3]`."""

TypeWord = Annotated[str, said(anyOf=[{"enum": list(TYPES)}, {"pattern": f"^(?:{_TYPE})$"}])]
_Type = Annotated[Any, defined("type")]
_Ne = Annotated[Any, defined("ne")]
_Flag = Annotated[str, said(enum=list(FLAGS))]
_Int = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
_Source = Id | None


class _SharedKeys(Keys):
    """The keys that tensors and nodes have in common."""

    name: Title | None = None
    flags: _Flag | list[_Flag] | None = None
    backend: str | None = None
    view_src: Id | None = None
    ne: _Ne | None = None
    at: Count | None = None
    in_: Id | None = field(name="in", default=None)


class _LeafKeys(_SharedKeys):
    """A tensor without an op."""

    type: _Type | None = None
    nb: Annotated[list[Count], Meta(min_length=1, max_length=MAX_DIMS)] | None = None
    data: Annotated[Any, defined("data")] | None = None
    op: Annotated[Any, said(enum=["none", None])] = None
    src: Annotated[Any, said(anyOf=[_FALSY, {"type": "array", "items": _NULL}])] = None
    op_params: Annotated[Any, said(**_FALSY)] = None
    inplace: Annotated[Any, said(**_FALSY)] = None
    view_offs: Annotated[Any, said(anyOf=[_schema(Count), _FALSY])] = None


class _OpNodeKeys(_SharedKeys):
    """A node: the keys that do not depend on its op."""

    op: Annotated[Any, said(enum=_writable())] = None
    type: Annotated[Any, said(anyOf=_types_of_nodes())] = None
    nb: Annotated[list[Count], Meta(max_length=MAX_DIMS)] | None = None
    data: None = None
    src: str | Annotated[list[Any], said(prefixItems=[_schema(_Source)] * MAX_SRC, items=_NULL)] | None = None
    op_params: (
        Annotated[list[Annotated[int, Meta(ge=-0x80000000, le=0xFFFFFFFF)]], Meta(max_length=MAX_OP_PARAMS)] | None
    ) = None
    inplace: Bool | None = None
    view_offs: Count | None = None


def _types_of_nodes() -> list[Schema]:
    special = [p for c in CONSTRUCTORS.values() for p in c.params if p.name == "type" and p.kind == "int"]
    return [_ref("type"), *(_schema(_param(p)) for p in special), _NULL]


def _tensors(leaf: Schema) -> dict[str, Schema]:
    """`tensor` and `node`, either of which may be text, and the map of a tensor."""
    text: Schema = {"type": ["string", "object"], "maxLength": MAX_LENGTH}
    view: Schema = {
        "required": ["view_src"],
        "properties": {"view_src": {"type": "string"}, "view_offs": _schema(Count | None)},
    }
    own = _given(["type", "ne"])
    own["properties"] |= {"view_src": _NULL, "view_offs": _FALSY}
    calls = "|".join(re.escape(name) for name in _callable())
    return {
        "tensor": {
            "description": "A tensor without an op: type[ne0, ne1, ne2, ne3], or a map.",
            **text,
            "pattern": _SHORT_TENSOR,
            "patternErrorMessage": "A tensor is type[ne0, ne1, ...], for example f32[4, 3].",
            **_ref("leaf"),
        },
        # A map, which may be text as well.
        "leaf": {
            **{key: value for key, value in leaf.items() if key not in ("type", "description")},
            "if": view,
            "else": own,
        },
        "node": {
            "description": "A node: op(source, ..., parameter, ...), or a map with op.",
            **text,
            "pattern": rf"{_SHORT_TENSOR}|^\s*(?:{calls}){_ARGUMENTS}",
            "patternErrorMessage": "A node is op(source, ..., parameter=value), for example mul_mat(a, x).",
            "properties": {"op": {"enum": [*_writable(), "none", None]}},
            "if": {"type": "object", "properties": {"op": {"enum": ["none", None]}}},
            "then": _ref("leaf"),
            "else": _ref("op_node"),
        },
    }


def _op_nodes(shared: Schema) -> dict[str, Schema]:
    """`op_node`, and what each op adds: ops with the same parameters share a definition."""
    groups: dict[str, tuple[list[str], Schema]] = {}
    for name in _writable():
        schema = _op_keys(name)
        groups.setdefault(json.dumps(schema), ([], schema))[0].append(name)
    defs = {}
    for names, schema in groups.values():
        # `rope(a, b, n_dims=, …)` of each name.
        forms = [signature(c[0], name) if (c := _constructors(name)) else name for name in names]
        defs[f"op_{names[0]}"] = {"description": "; ".join(forms), **schema}
    return {
        "op_node": {
            "properties": shared["properties"],
            "required": ["op"],
            "allOf": [
                {"if": {"type": "object", "properties": {"op": {"enum": names}}}, "then": _ref(f"op_{names[0]}")}
                for names, _ in groups.values()
            ],
        },
        **defs,
    }


def _writable() -> list[str]:
    """What `op` of a node can be."""
    return list(dict.fromkeys([*(name for name in OPS if name != "none"), *_callable()]))


def _callable() -> list[str]:
    """What can be called in short form."""
    twins = [f"{name}_inplace" for name, c in CONSTRUCTORS.items() if c.inplace]
    return list(dict.fromkeys([*CONSTRUCTORS, *COMPOSITES, *twins]))


def _constructors(name: str) -> list[Constructor]:
    """What a node with this `op` may go through."""
    op = OPS.get(name)
    if op is None:
        name = name if name in CONSTRUCTORS or name in COMPOSITES else name.removesuffix("_inplace")
        return [CONSTRUCTORS.get(name) or COMPOSITES[name]]
    named = CONSTRUCTORS.get(name)
    by_op = [BY_OP.get(op), SELF_BY_OP.get(op), named if named is not None and named.op == op else None]
    return list({id(c): c for c in by_op if c is not None}.values())


def _op_keys(name: str) -> Schema:
    """The keys of a node with this op, those for parameters with what they take."""
    constructors = _constructors(name)
    keys: dict[str, Any] = dict.fromkeys(KEYS, True)
    for c in reversed(constructors):
        for p in c.params:
            if p.name not in KEYS:
                about = {"description": meaning} if (meaning := c.meaning(p.name)) else {}
                keys[p.name] = about | _schema(_param(p))
    if not any(p.name == "nb" for c in constructors for p in c.params):
        keys["nb"] = _schema(Annotated[list[Any], Meta(min_length=1)] | None)
    if not any(p.name == "type" and p.kind == "int" for c in constructors for p in c.params):
        keys["type"] = _schema(_Type | None)
    return {"type": "object", "properties": keys, "additionalProperties": False, **_needed(constructors)}


def _needed(constructors: Sequence[Constructor]) -> Schema:
    """What has to be there: the parameters without a default, or what a captured node has in place of them."""
    if not constructors:
        return _given(["type", "ne"])
    by_name = [[p.name for p in c.params if p.required] for c in constructors]
    nameable = [names for names in by_name if "op" not in names]
    if not all(nameable):
        return {}
    no_names: Schema = {"propertyNames": {"enum": list(KEYS)}}
    as_captured = {"anyOf": [{**_given(names), **no_names} for names in (["op_params"], ["type", "ne"])]}
    if not nameable:
        return as_captured
    return {
        "if": as_captured,
        "else": _given(nameable[0]) if len(nameable) == 1 else {"anyOf": [*map(_given, nameable)]},
    }


def _given(names: Sequence[str]) -> Schema:
    """These keys are there, and the shape is not null."""
    shape = {name: {"not": _NULL} for name in names if name in ("type", "ne", "nb")}
    return {"required": list(names), "properties": shape} if shape else {"required": list(names)}


def _param(p: Param) -> Any:
    """What a parameter takes, as a type."""
    kind: Any
    match p.kind.split(" |", 1)[0]:
        case "int":
            kind = bool | _Int
        case "float":
            kind = Number
        case "bool":
            kind = Annotated[Any, said(anyOf=[_schema(Bool), {"enum": [0, 1]}])]
        case "DType":
            kind = _Type
        case _:
            number = Count if p.name in ("ne", "nb") else _Int
            kind = number | Annotated[list[number], Meta(max_length=MAX_DIMS)]  # type: ignore[valid-type]
    if p.choices is not None:
        kind = Annotated[Any, said(anyOf=[{"enum": list(p.choices)}, _schema(kind)])]
    return kind | None if "None" in p.kind else kind
