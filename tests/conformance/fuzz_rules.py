"""Random rules for the devices of random scenarios: what they support by type, shape, strides and source."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.fuzz import ONLY, scenario

Spec = dict[str, Any]

OPS = (*ONLY, "any", "silu", "mul_mat_id", "set_rows", "flash_attn_ext", "view")
TYPES = ("f32", "f16", "bf16", "q4_0", "q8_0", "q4_K", "i32", "i64")
OPERANDS = ("result", "src", "src0", "src1", "src2")


def scenario_with_rules(seed: int) -> Spec:
    """The scenario of a seed, whose devices have rules where they are not those of a known profile."""
    out = scenario(seed)
    rng = Random(f"rules {seed}")
    out["backends"] = [with_rules(rng, backend) for backend in out["backends"]]
    return out


def with_rules(rng: Random, backend: Any) -> Any:
    """A backend that may have rules, as some of those have that are no known device."""
    given: Spec = {"name": backend} if isinstance(backend, str) else dict(backend)
    if (given["name"] != "CPU" and given.get("profile") != "custom") or rng.random() < 0.2:
        return backend
    if given["name"] == "CPU":
        if rng.random() < 0.8:
            return backend
        return given | {"supports": {"profile": True, "rules": _rules(rng)}}
    supports = dict(given.get("supports") or {"except": []})
    lacked = supports.get("except", ())
    supports["rules"] = [rule for rule in _rules(rng) if not set(_ops(rule["op"])) & set(lacked) and not lacked]
    return given | {"profile": "custom", "supports": supports}


def _ops(op: Any) -> list[str]:
    return [op] if isinstance(op, str) else list(op)


def _rules(rng: Random) -> list[Spec]:
    return [_rule(rng) for _ in range(rng.randint(1, 6))]


def _rule(rng: Random) -> Spec:
    rule: Spec = {"op": rng.choice(OPS) if rng.random() < 0.8 else rng.sample(ONLY, 3)}
    if rule["op"] == "any":
        return rule | {rng.choice(("result", "src")): {"types": rng.sample(TYPES, 7)}}
    for operand in rng.sample(OPERANDS, rng.randint(0, 2)):
        rule[operand] = _conditions(rng, operand)
    if rng.random() < 0.2:
        rule[rng.choice(("same_type", "same_shape"))] = rng.choice((["src0", "src1"], ["src0", "result"]))
    return rule


def _conditions(rng: Random, operand: str) -> Spec:
    out: Spec = {}
    if rng.random() < 0.5:
        out["types"] = rng.sample(TYPES, rng.randint(2, 6))
    if rng.random() < 0.3:
        out["contiguous"] = rng.choice((True, "rows", "from 1", "from 2"))
    if operand.startswith("src") and operand != "src" and rng.random() < 0.1:
        out["present"] = rng.random() < 0.7
    if rng.random() < 0.5:
        number = rng.choice(("ne0", "ne1", "ne2", "nb1", "nb2", "rows", "bytes"))
        out[number] = rng.choice(({"max": rng.choice((8, 64, 4096))}, {"multiple": rng.choice((2, 8, 32))}, {"min": 4}))
    return out
