"""The schema of devices: backends, what they support, buffer types."""

from __future__ import annotations

from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.op import KEY_NAMES
from ggmltool.scenario.devices.backends import BACKEND_KEYS, BUFFER_TYPE_KEYS, SCHEDULER_KEYS
from ggmltool.scenario.devices.files import SUFFIXES
from ggmltool.scenario.devices.rates import OWN_RATES_KEYS
from ggmltool.scenario.devices.recorded import ANSWERS_KEYS, answers_schema
from ggmltool.scenario.devices.supports import (
    ANY,
    CONDITION_KEYS,
    MOST_ITEMS,
    MOST_RULES,
    OPERANDS,
    RULE_KEYS,
    SUPPORTS_KEYS,
)
from ggmltool.scenario.kinds import BOOL, ID, TEXT, Schema, any_case, either, nullable, one_or_list
from ggmltool.scenario.past import PAST_KEYS
from ggmltool.scenario.schema.forms import by_id, closed, described, of_keys, ref


def definitions() -> dict[str, Schema]:
    backend = of_keys(BACKEND_KEYS, "Backends", ["name"])
    return {
        "backend": {
            "description": "A device: its name, or a map that says more of it.",
            **backend,
            "type": ["string", "object"],
            "minLength": 1,
            "maxLength": ID.schema()["maxLength"],
        },
        "device_file": {
            "description": "A file beside the scenario with a device.",
            "type": "string",
            "pattern": f"(?:{any_case(SUFFIXES)})$",
        },
        "features": _features(),
        "rates": either(TEXT.schema(), _rates()),
        "supports": _supports(),
        "answers": closed(ANSWERS_KEYS, described("Backends", _answers(), "key of `answers`")),
        "op_name": {"enum": list(dict.fromkeys(KEY_NAMES))},
        "op_list": one_or_list(ref("op_name")),
        "rule": _rule(),
        "conditions": _conditions(with_present=False),
        "source_conditions": _conditions(with_present=True),
        "buffer_types": by_id(of_keys(BUFFER_TYPE_KEYS, "Buffer types", ["device"]), printable=False),
        "past": closed(PAST_KEYS, described("Scheduler", _past(), "key of `past`")),
        "scheduler": of_keys(SCHEDULER_KEYS, "Scheduler"),
    }


def _features() -> Schema:
    """What the hardware can have, of any kind of device: a list, or text with `+`."""
    words = list(dict.fromkeys(feature for profile in PROFILES.values() for feature in profile.features))
    text = rf"^\+*(?:(?:{'|'.join(words)})(?:\++|$))*$"
    return either({"type": "array", "items": {"enum": words}}, {"type": "string", "pattern": text})


def _rates() -> Schema:
    """What its owner says of a device's speed."""
    keys = {key: nullable(kind.schema()) for key, kind in OWN_RATES_KEYS.items()}
    return closed(OWN_RATES_KEYS, described("Backends", keys, "key of `rates`"))


def _answers() -> dict[str, Schema]:
    return {key: nullable(schema) for key, schema in answers_schema().items()}


def _past() -> dict[str, Schema]:
    return {key: nullable(kind.schema()) for key, kind in PAST_KEYS.items()}


def _supports() -> Schema:
    lists = ("only", "except", "profile", "csv")
    absent: Schema = {"enum": [None, False]}
    keys = {
        "only": either(ref("op_list"), absent),
        "except": either(ref("op_list"), absent),
        "rules": nullable({"type": "array", "items": ref("rule"), "maxItems": MOST_RULES}),
        "profile": nullable(BOOL.schema()),
        "csv": either(TEXT.schema(), absent),
        "backend": nullable(ID.schema()),
    }
    given: list[Schema] = [{"required": [key], "properties": {key: {"not": absent}}} for key in lists]
    return {
        **closed(SUPPORTS_KEYS, described("Backends", keys, "key of `supports`")),
        "oneOf": [*given, {"required": ["rules"], "not": {"anyOf": given}}],
        "dependentRequired": {"backend": ["csv"]},
    }


def _rule() -> Schema:
    operands = [key for key in OPERANDS if key != "src"]
    alike: Schema = {"type": "array", "items": {"enum": operands}, "minItems": 2, "maxItems": MOST_ITEMS}
    keys = {
        "op": either({"const": ANY}, ref("op_list")),
        **{key: nullable(ref("conditions" if key in ("src", "result") else "source_conditions")) for key in OPERANDS},
        "same_type": alike,
        "same_shape": alike,
    }
    return closed(RULE_KEYS, keys, required=["op"])


def _conditions(with_present: bool) -> Schema:
    keys = {key: nullable(kind.schema()) for key, kind in CONDITION_KEYS.items()}
    return closed(CONDITION_KEYS, keys if with_present else {**keys, "present": {"not": {}}})
