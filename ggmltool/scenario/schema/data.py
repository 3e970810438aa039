"""The schema of values: `data` of a tensor, and of the step `set`."""

from __future__ import annotations

from ggmltool.scenario.kinds import NUMBER, TEXT, Schema, either, nullable
from ggmltool.scenario.read_data import GENERATED, KINDS
from ggmltool.scenario.schema.forms import closed, described, ref


def data() -> Schema:
    """A list of values, or a map with one way to make them."""
    made = {
        kind: nullable(closed(options, {key: option.schema() for key, option in options.items()}))
        for kind, options in GENERATED.items()
    }
    kinds = {"fill": NUMBER.schema(), **made, "npy": TEXT.schema(), "gguf": TEXT.schema(), "base64": TEXT.schema()}
    keys = described("Data", {**kinds, "tensor": TEXT.schema()})
    return {
        "description": "Values of a tensor: a list, flat or nested as the tensor is, or a map with one of these keys.",
        **closed([*KINDS, "tensor"], keys),
        "type": ["array", "object"],
        "oneOf": [ref("values"), *({"type": "object", "required": [kind]} for kind in KINDS)],
        "dependentRequired": {"gguf": ["tensor"], "tensor": ["gguf"]},
    }


def values() -> Schema:
    """Numbers, or lists of them."""
    return {"type": "array", **either({"items": NUMBER.schema()}, {"items": ref("values")})}
