"""The schema of tensors and nodes, with the parameters of every op."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.ops.composites import COMPOSITES
from ggmltool.ggml.ops.registry import BY_OP, CONSTRUCTORS, SELF_BY_OP, Constructor, Param
from ggmltool.ggml.tensor import FLAGS, MAX_DIMS, MAX_OP_PARAMS, MAX_SRC
from ggmltool.scenario.kinds import BOOL, ID, NUMBER, TEXT, Schema, either, integer, nullable, one_or_list
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.nodes.nodes import OPS
from ggmltool.scenario.nodes.short_form import MAX_LENGTH
from ggmltool.scenario.nodes.tensors import MAX_NAME_LENGTH
from ggmltool.scenario.params import INT64_MIN, signature
from ggmltool.scenario.schema.forms import FALSY, NO_CONTROLS, NULL, closed, described, ref
from ggmltool.scenario.schema.texts import call, short_tensor, type_name

_SECTION = "Tensors and nodes"
_WORD = integer(-0x80000000, 0xFFFFFFFF).schema
_NOT_NULL: Schema = {"not": NULL}


def definitions() -> dict[str, Schema]:
    """`tensor` and `node`, and what they are made of."""
    text: Schema = {"type": ["string", "object"], "maxLength": MAX_LENGTH}
    return {
        "type": either({"enum": list(TYPES)}, {"type": "string", "pattern": f"^(?:{type_name()})$"}),
        "ne": one_or_list(integer().schema(), minItems=1, maxItems=MAX_DIMS),
        "tensor": {
            "description": "A tensor without an op: type[ne0, ne1, ne2, ne3], or a map.",
            **text,
            "pattern": short_tensor(),
            "patternErrorMessage": "A tensor is type[ne0, ne1, ...], for example f32[4, 3].",
            "$ref": "#/$defs/leaf",
        },
        "leaf": _leaf(),
        "node": {
            "description": "A node: op(source, ..., parameter, ...), or a map with op.",
            **text,
            "pattern": f"{short_tensor()}|{call(_callable())}",
            "patternErrorMessage": "A node is op(source, ..., parameter=value), for example mul_mat(a, x).",
            "properties": {"op": {"enum": [*_writable(), "none", None]}},
            "if": {"type": "object", "properties": {"op": {"enum": ["none", None]}}},
            "then": ref("leaf"),
            "else": ref("op_node"),
        },
        **_op_nodes(),
    }


def _shared() -> dict[str, Schema]:
    """The keys that tensors and nodes have in common."""
    return {
        "name": nullable({**TEXT.schema(), "maxLength": MAX_NAME_LENGTH, "pattern": NO_CONTROLS}),
        "flags": nullable(one_or_list({"enum": list(FLAGS)})),
        "backend": nullable(TEXT.schema()),
        "view_src": nullable(ID.schema()),
        "ne": nullable(ref("ne")),
        "at": nullable(integer().schema()),
        "in": nullable(ID.schema()),
    }


def _leaf() -> Schema:
    keys = {
        **_shared(),
        "type": nullable(ref("type")),
        "nb": nullable(_strides(1)),
        "data": nullable(ref("data")),
        "op": {"enum": ["none", None]},
        "src": either(FALSY, {"type": "array", "items": NULL}),
        "op_params": FALSY,
        "inplace": FALSY,
        "view_offs": nullable(either(integer().schema(), FALSY)),
    }
    view: Schema = {
        "required": ["view_src"],
        "properties": {"view_src": TEXT.schema(), "view_offs": nullable(integer().schema())},
    }
    own = _given(["type", "ne"])
    own["properties"] |= {"view_src": NULL, "view_offs": FALSY}
    return {**_of_map(closed(KEYS, described(_SECTION, keys))), "if": view, "else": own}


def _strides(least: int) -> Schema:
    return {"type": "array", "items": integer().schema(), "minItems": least, "maxItems": MAX_DIMS}


def _of_map(schema: Schema) -> Schema:
    """What a schema says of a map, which may be text as well."""
    return {key: value for key, value in schema.items() if key != "type"}


def _op_nodes() -> dict[str, Schema]:
    """`op_node`, and what each op adds: ops with the same parameters share a definition."""
    groups: dict[str, tuple[list[str], Schema]] = {}
    for name in _writable():
        schema = _op_keys(name)
        groups.setdefault(json.dumps(schema), ([], schema))[0].append(name)
    defs = {f"op_{names[0]}": {"description": _forms(names), **schema} for names, schema in groups.values()}
    special = [p for c in CONSTRUCTORS.values() for p in c.params if p.name == "type" and p.kind == "int"]
    keys = {
        **_shared(),
        "type": nullable(either(ref("type"), *(_param(p) for p in special))),
        "nb": nullable(_strides(0)),
        "data": NULL,
        "op": {"enum": list(_writable())},
        "src": nullable(either(TEXT.schema(), _sources())),
        "op_params": nullable({"type": "array", "items": _WORD(), "maxItems": MAX_OP_PARAMS}),
        "inplace": nullable(BOOL.schema()),
        "view_offs": nullable(integer().schema()),
    }
    return {
        "op_node": {
            "properties": closed(KEYS, described(_SECTION, keys))["properties"],
            "required": ["op"],
            "allOf": [
                {"if": {"type": "object", "properties": {"op": {"enum": names}}}, "then": ref(f"op_{names[0]}")}
                for names, _ in groups.values()
            ],
        },
        **defs,
    }


def _sources() -> Schema:
    """Ids and empty slots; beyond the last slot a node has, empty ones alone."""
    return {"type": "array", "prefixItems": [nullable(ID.schema())] * MAX_SRC, "items": NULL}


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
    params = {p.name: (c, p) for c in reversed(constructors) for p in c.params if p.name not in KEYS}
    keys |= {key: _described(c, p) for key, (c, p) in params.items()}
    if not any(p.name == "nb" for c in constructors for p in c.params):
        keys["nb"] = nullable({"type": "array", "minItems": 1})
    if not any(p.name == "type" and p.kind == "int" for c in constructors for p in c.params):
        keys["type"] = nullable(ref("type"))
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
    as_captured = either(*({**_given(names), **no_names} for names in (["op_params"], ["type", "ne"])))
    if not nameable:
        return as_captured
    return {"if": as_captured, "else": _given(nameable[0]) if len(nameable) == 1 else either(*map(_given, nameable))}


def _given(names: Sequence[str]) -> Schema:
    """These keys are there, and the shape is not null."""
    shape = {name: _NOT_NULL for name in names if name in ("type", "ne", "nb")}
    return {"required": list(names), "properties": shape} if shape else {"required": list(names)}


def _forms(names: Iterable[str]) -> str:
    """`rope(a, b, n_dims=, …)` of each name."""
    return "; ".join(signature(c[0], name) if (c := _constructors(name)) else name for name in names)


def _described(c: Constructor, p: Param) -> Schema:
    meaning = c.meaning(p.name)
    return {"description": meaning, **_param(p)} if meaning else _param(p)


def _param(p: Param) -> Schema:
    """What a parameter takes."""
    kind = p.kind.split(" |", 1)[0]
    match kind:
        case "int":
            schema = either({"type": "boolean"}, integer(INT64_MIN).schema())
        case "float":
            schema = NUMBER.schema()
        case "bool":
            schema = either(BOOL.schema(), {"enum": [0, 1]})
        case "DType":
            schema = ref("type")
        case _:
            schema = one_or_list(integer(0 if p.name in ("ne", "nb") else INT64_MIN).schema(), maxItems=MAX_DIMS)
    if p.choices is not None:
        schema = either({"enum": list(p.choices)}, schema)
    return nullable(schema) if "None" in p.kind else schema
