"""The schema of the whole file: its top level, contexts, graphs, steps."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml import ops
from ggmltool.ggml.releases.table import BY_NAME, DEFAULT, RELEASES
from ggmltool.scenario.kinds import ID, TEXT, Schema, either, integer, nullable, one_or_list
from ggmltool.scenario.load import CONTEXT_KEYS, GRAPH_KEYS, MAX_FACTS, MAX_MISALIGN, TOP_KEYS, USAGES
from ggmltool.scenario.nodes.tensors import MAX_NAME_LENGTH
from ggmltool.scenario.schema import backends, data, nodes
from ggmltool.scenario.schema.forms import NO_CONTROLS, NULL, by_id, closed, described, ref
from ggmltool.scenario.schema.texts import plain_step
from ggmltool.scenario.spec import FORMAT
from ggmltool.scenario.steps import ALL_GRAPH_STEPS, MAX_STEPS, OTHER_STEPS

_TEXT: Schema = {**TEXT.schema(), "maxLength": MAX_NAME_LENGTH, "pattern": NO_CONTROLS}


def drawn() -> Schema:
    """The schema as a dict."""
    ops.load()
    keys = {
        "ggmltool": {"const": FORMAT},
        "name": nullable(_TEXT),
        "ggml": {"enum": [*_names(BY_NAME), None]},
        "backends": nullable({"type": "array", "items": ref("backend"), "minItems": 1}),
        "buffer_types": nullable(ref("buffer_types")),
        "contexts": nullable(ref("contexts")),
        "graphs": nullable(ref("graphs")),
        "steps": nullable({"type": "array", "items": ref("step"), "maxItems": MAX_STEPS}),
        "scheduler": nullable(ref("scheduler")),
        "meta": nullable(ref("meta")),
        "cpu_base_misalign": nullable(integer(0, MAX_MISALIGN).schema()),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A scenario of ggmltool",
        "description": "Devices, tensors, graphs, and what is done with them: `ggmltool help scenario`.",
        **closed(TOP_KEYS, described("Top level", keys), required=["ggmltool"]),
        "allOf": [
            _steps_of(kinds) for kinds in dict.fromkeys((*(r.steps for r in RELEASES.values()), ALL_GRAPH_STEPS))
        ],
        "$defs": {**_contexts_and_graphs(), **_steps(), **backends.definitions(), **nodes.definitions()},
    }


def _contexts_and_graphs() -> dict[str, Schema]:
    context = {
        "buft": nullable(TEXT.schema()),
        "usage": {"enum": [*USAGES, None]},
        "tensors": nullable(by_id(ref("tensor"))),
        "tallocr": nullable(TEXT.schema()),
        "size": nullable(integer().schema()),
    }
    graph = {
        "nodes": nullable(by_id(ref("node"))),
        "expand": nullable(one_or_list(ID.schema())),
        "uncomputed": nullable(one_or_list(ID.schema())),
    }
    either_of = {"buft": TEXT.schema(), "tallocr": TEXT.schema()}
    not_both: Schema = {"not": {"required": list(either_of), "properties": either_of}}
    sized: Schema = {
        "if": {"required": ["size"], "properties": {"size": integer().schema()}},
        "then": {"required": ["buft"], "properties": {"buft": TEXT.schema()}},
    }
    fact = {**_TEXT, "type": ["string", "number", "boolean"]}
    return {
        "contexts": by_id(closed(CONTEXT_KEYS, described("Contexts", context), **not_both, **sized)),
        "graphs": by_id(closed(GRAPH_KEYS, described("Graphs", graph))),
        "meta": {
            "type": "object",
            "propertyNames": {"maxLength": MAX_NAME_LENGTH, "pattern": NO_CONTROLS},
            "additionalProperties": fact,
            "maxProperties": MAX_FACTS,
        },
        "data": data.data(),
        "values": data.values(),
    }


def _steps_of(kinds: tuple[str, ...]) -> Schema:
    """The steps of releases that have these kinds of them; a file without `ggml` means today's, one with null all."""
    names = _names(name for name, release in BY_NAME.items() if release.steps == kinds)
    of_these: Schema = {"properties": {"ggml": {"enum": names or [None]}}}
    if DEFAULT.name not in names:
        of_these["required"] = ["ggml"]
    step: Schema = {
        "pattern": plain_step(kinds),
        "patternErrorMessage": f"A step is {', '.join(f'{kind} GRAPH' for kind in kinds)} or reset, or a map.",
        "propertyNames": {"enum": [*kinds, *OTHER_STEPS]},
    }
    return {"if": of_these, "then": {"properties": {"steps": {"items": step}}}}


def _names(names: Iterable[str]) -> list[str | float | None]:
    """Names of releases; one that looks like a number is that number, too."""
    spelled: list[str | float | None] = list(names)
    return [*spelled, *(float(str(name)) for name in spelled if str(name).count(".") == 1)]


def _steps() -> dict[str, Schema]:
    """A step of any release."""
    contents = {
        **dict.fromkeys(ALL_GRAPH_STEPS, ID.schema()),
        "reset": NULL,
        "set": {**by_id(ref("data"), printable=False), "minProperties": 1},
        "get": either(ID.schema(), {"type": "array", "items": ID.schema(), "minItems": 1}),
    }
    return {
        "step": {
            **closed((*ALL_GRAPH_STEPS, *OTHER_STEPS), described("Steps", contents, "step")),
            "type": ["string", "object"],
            "minProperties": 1,
            "maxProperties": 1,
        }
    }
