"""The rules of a known device as a scenario writes them, where that is possible."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.device import RULE
from ggmltool.ggml.devices.conditions import SupportRule
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.rule_parts import as_scenario
from ggmltool.ggml.op import N_OP_KEYS, Op, keys_of


def profile_rules(profile: Profile, table: bytearray) -> tuple[list[SupportRule], list[int]]:
    """The rules that can be written, each once for all ops that have it; and the ops (keys) whose rules cannot.

    `table` is the device's, by op key.
    """
    rules: dict[SupportRule, set[int]] = {}
    others: set[int] = set()
    for key in range(N_OP_KEYS):
        rule = profile.rules.get(_op_of(key)) if table[key] == RULE else None
        if rule is not None:
            written = as_scenario(rule)
            (others if written is None else rules.setdefault(written, set())).add(key)
    asked = [replace(rule, keys=frozenset(keys)) for rule, keys in rules.items() if rule != SupportRule(None)]
    return asked, sorted(others)


def _op_of(key: int) -> int:
    """ggml's op of an op key."""
    for family in (Op.UNARY, Op.GLU):
        if key in keys_of(family.name.lower()):
            return int(family)
    return key
