"""The rules on shapes that `ops NAME` shows, each held against the engine's constructor (U40).

The sources of every op's example are changed at random: the constructor takes them where all of the rule is met, and
nowhere else, and the result is the one that is stated.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.ops.record import RESULT, op_example, op_facts
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.ops.registry import CONSTRUCTORS, Constructor, ShapeRule
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.spec import TensorSpec
from ggmltool.scenario.text.yaml import compose_yaml
from tests.conformance.shapes import Source, given, holds

UNRULED = {
    "NONE", "CUSTOM", "FLASH_ATTN_BACK", "COL2IM_1D", "GATED_DELTA_NET", "IM2COL_3D", "OPT_STEP_ADAMW", "OPT_STEP_SGD",
}  # fmt: skip
"""Ops whose results follow from their parameters, or whose rules are more than a few lines."""

UNEVALUATED = {"permute", "view"}
"""What they ask follows from their parameters."""

TRIES = 150
CHANGED_TYPES = ("f32", "f16", "i32", "i64")


def test_all_ops_but_a_few_have_a_rule() -> None:
    """U40."""
    rules = {name: c.rule for name, c in CONSTRUCTORS.items() if c.shape}
    without = {facts.name for facts in op_facts() if not any(c.name in rules for c in facts.constructors)}
    assert without == UNRULED
    assert rules["mul_mat"] == ShapeRule(
        ("a.ne[0] = b.ne[0]", "b.ne[2] % a.ne[2] = 0", "b.ne[3] % a.ne[3] = 0", "a is not transposed"),
        "f32[a.ne[1], b.ne[1], b.ne[2], b.ne[3]]",
    )


@cache
def example(op: str) -> tuple[tuple[TensorSpec | None, ...], dict[str, Any], tuple[str, ...]]:
    """The sources of an op's example in the order of the call, its parameters, and the names of the constructors."""
    text = op_example(op)
    assert text is not None
    model = ggmltool.load(compose_yaml(text)).model  # type: ignore[arg-type]
    graph = next(iter(model.graphs.values()))
    node = next(n for n in graph.nodes if n.id == RESULT)
    known = {t.id: t for t in (*model.tensors(), *graph.nodes)}
    written = compose_yaml(text)["graphs"]["main"]["nodes"][RESULT]  # type: ignore[index]
    name, _, arguments = str(written).partition("(")
    made = CONSTRUCTORS[name]
    words = [word.strip() for word in re.split(r",(?![^\[]*\])", arguments.rstrip(")"))]
    sources = tuple(known.get(word) for word in words if word in known)
    values: dict[str, Any] = {p.name: p.default for p in made.params if not p.required}
    plain = [word for word in words if word not in known and "=" not in word]
    for p, word in zip(made.params, plain, strict=False):
        values[p.name] = read(word, p.choices)
    for word in words:
        if "=" in word and word not in known:
            key, _, value = word.partition("=")
            choices = next(p.choices for p in made.params if p.name == key.strip())
            values[key.strip()] = read(value, choices)
    assert node.op >= 0
    return sources, values, (name,)


def read(word: str, choices: Any) -> Any:
    if choices and word in choices:
        return choices[word]
    if word in TYPES:
        return TYPES[word]
    if word in ("true", "false"):
        return word == "true"
    try:
        return eval(word, {"__builtins__": {}})
    except NameError:
        return word


def changed(rng: Random, sources: list[Source | None]) -> None:
    """Change one source, or two alike."""
    there = [s for s in sources if s is not None]
    d = rng.randrange(4)
    kind = rng.randrange(6)
    victims = rng.sample(there, min(len(there), 2 if kind == 5 else 1))
    n = rng.choice((1, 2, 3, 4, 6, 8))
    for s in victims:
        if kind == 0:
            s.type = rng.choice(CHANGED_TYPES)
        elif kind == 1:
            s.ne = rng.choice(there).ne
        elif kind == 2:
            s.ne = (*s.ne[:d], s.ne[d] * 2, *s.ne[d + 1 :])
        else:
            s.ne = (*s.ne[:d], n, *s.ne[d + 1 :])


RULED = [facts.name.lower() for facts in op_facts() if facts.name not in UNRULED]


@pytest.mark.parametrize("op", RULED)
def test_a_rule_holds_where_the_constructor_accepts_and_nowhere_else(op: str) -> None:
    """U40."""
    base, values, (name,) = example(op)
    made, rule = CONSTRUCTORS[name], CONSTRUCTORS[name].rule
    if name in UNEVALUATED:
        return
    rng = Random(op)
    ends: Counter[bool] = Counter()
    for n in range(TRIES):
        sources = [None if t is None else Source(type=t.type.name, ne=t.ne) for t in base]
        if " with b, else " in rule.gives and n % 2:
            sources.append(Source(type=base[0].type.name, ne=base[0].ne) if base[0] is not None else None)
        for _ in range(min(n, rng.randint(0, 2))):
            changed(rng, sources)
        names = values | dict.fromkeys((s.rstrip("_") for s in made.sources), None)
        names |= dict(zip((s.rstrip("_") for s in made.sources), sources, strict=False))
        broken = [ask for ask in rule.asks if not holds(ask, names)]
        result = built(made, sources, values)
        if result is None and not broken and not positive(rule, names):
            continue
        told = f"{name}({', '.join(f'{s.type}{list(s.ne)}' for s in sources if s is not None)})"
        assert (result is not None) == (not broken), f"{told}: {broken or 'refused'}"
        if result is not None:
            stated = given(rule.gives, names)
            assert (result.type.name, result.ne) == stated, told
        ends[result is not None] += 1
    assert ends[True]
    assert ends[False] or not base or not shapes_are_asked(rule)


def positive(rule: ShapeRule, names: dict[str, Any]) -> bool:
    """Whether the stated extents are such as a tensor may have."""
    try:
        return min(given(rule.gives, names)[1]) > 0
    except (ZeroDivisionError, TypeError):
        return False


def shapes_are_asked(rule: ShapeRule) -> bool:
    return any(not re.search(r"contiguous|transposed", ask) for ask in rule.asks)


def built(made: Constructor, sources: list[Source | None], values: dict[str, Any]) -> Tensor | None:
    """The node, None where the constructor refuses."""
    ctx = Context()
    tensors = [None if s is None else ctx.new_tensor(TYPES[s.type], s.ne) for s in sources]
    try:
        return made.build(ctx, **dict(zip(made.sources, tensors, strict=False)), **values)
    except (GgmlError, ValueError):
        return None
