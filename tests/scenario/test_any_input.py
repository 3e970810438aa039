"""Whatever comes in, a scenario loads or there is one message: no other exception, ever."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import yaml

from ggmltool.ggml import ops
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_model
from tests.scenario.texts import BASE, load_text

ops.load()

NUMBERS = ["0", "1", "-1", "2", "4", "64", str(1 << 31), str(1 << 62), str((1 << 63) - 1), str(-(1 << 62)), "1e30",
           "-1e30", "nan", "inf", "0.5", "true", "x", "[1, 2]", "[]", "[0, 0, 0, 0]", "null", "f16",
           "[4611686018427387904, 4]", "neox"]  # fmt: skip
JUNK: list[Any] = [None, 0, -1, 1 << 70, 1.5, float("nan"), "", "x", "\x1b", "\ud800", [], {}, [None], [[]], {"a": 1},
                   True, "f32", "add", [1, 2, 3, 4], [0, 0, 0, 0], [1 << 62] * 4, "f32[4]", "sqr(x)", {"op": "sqr"},
                   b"x", object(), (1, 2), {1: 2}, 10**400, [10**400], "-" * 2000]  # fmt: skip
KEYS: list[Any] = ["op", "src", "type", "ne", "nb", "view_src", "view_offs", "op_params", "flags", "data", "inplace",
                   "name", "backend", "mode", "eps", "n_dims", "zzz", "", 5]  # fmt: skip
SCENARIO = """
ggmltool: 1
name: n
backends: [{name: X, alignment: 64, max_size: 1K, supports: {only: [add]}, supports_bufts: [CPU]}, CPU]
buffer_types: {R: {device: X, ops: [add]}}
scheduler: {graph_size: 3}
contexts:
  c:
    buft: R
    usage: weights
    tensors:
      x: {type: f32, ne: [4], data: [1, 2, 3, 4]}
      y: {type: i32, ne: [1], data: {uniform: {low: 0, high: 2}}}
      v: {view_src: x}
graphs:
  g:
    nodes:
      h: {op: rope, src: [x, y], n_dims: 4, mode: neox}
      i: {op: view, src: [x], ne: [2], offset: 4}
      j: add(x, x)
      k: {op: add, src: [j, x], flags: [output], name: k}
      l: {op: scale, type: f32, ne: [4, 1, 1, 1], nb: [4, 16, 16, 16], src: [k], op_params: [5], view_src: k}
      m: {op: scale, type: f32, ne: [4, 1, 1, 1], nb: [4, 16, 16, 16], src: [l], op_params: [5], view_src: k}
    expand: [k]
steps: [alloc g, {set: {x: [1, 2, 3, 4]}}, {get: [k]}, reset]
"""


def attempt(scenario: Any) -> None:
    try:
        if isinstance(scenario, str):
            load_text(scenario)
        else:
            load_model(scenario)
    except ScenarioError as e:
        assert "\x1b" not in str(e)  # noqa: PT017
        assert len(str(e)) < 2000  # noqa: PT017
    except GgmlError as e:
        assert e.where  # noqa: PT017


@pytest.mark.parametrize("seed", range(10))
def test_any_arguments_of_any_op(seed: int) -> None:
    rng = random.Random(seed)
    base = yaml.safe_load(BASE + "      zz: f32[1]\n")
    ids = [f'"{id}"' for id in base["contexts"]["w"]["tensors"]]
    for c in CONSTRUCTORS.values():
        args = rng.choices([*ids, "null"], k=rng.randint(0, max(len(c.sources), 1)))
        for p in c.params:
            value = rng.choice(NUMBERS if p.choices is None or rng.random() < 0.3 else list(p.choices))
            args += [f"{rng.choice([f'{p.name}=', ''])}{value}"] if rng.random() < 0.9 else []
        call = f"{c.name}{rng.choice(['', '_inplace'])}({', '.join(args)})"
        attempt({**base, "graphs": {"main": {"nodes": {"h": call}}}})


def mutated(scenario: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with something replaced, left out or added somewhere."""
    scenario = copy.deepcopy(scenario)
    for _ in range(rng.randint(1, 3)):
        at: Any = scenario
        while at and isinstance(at, dict | list):
            key: Any = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.8:
                at = at[key]
                continue
            what = rng.random()
            if what < 0.6:
                at[key] = rng.choice(JUNK)
            elif what < 0.75:
                del at[key]
            elif isinstance(at, dict):
                at[rng.choice(KEYS)] = rng.choice(JUNK)
            break
    return scenario


@pytest.mark.parametrize("seed", range(10))
def test_any_scenario_with_mistakes(seed: int) -> None:
    rng = random.Random(seed)
    scenario = yaml.safe_load(SCENARIO)
    load_model(scenario)
    for _ in range(100):
        attempt(mutated(scenario, rng))


def test_any_op_with_its_raw_parameters() -> None:
    tensors = {"a": "f32[32, 4]", "b": "f32[32, 4]", "c": "f32[32, 4]", "d": "i32[4]"}
    for op in Op:
        for src in ("a", "ab", "abc", "abd", "abcd"):
            for n_params in (0, 7, 16):
                described = {"type": "f32", "ne": [32, 4, 1, 1], "op_params": [1] * n_params}
                node = {"op": op.name.lower(), "src": list(src), **described}
                contexts = {"c": {"tensors": tensors}}
                attempt(
                    {"ggmltool": 1, "backends": ["CPU"], "contexts": contexts, "graphs": {"g": {"nodes": {"y": node}}}}
                )


@pytest.mark.parametrize("seed", range(10))
def test_any_text_with_mistakes(seed: int) -> None:
    rng = random.Random(seed)
    letters = "[]{}(),:=*&!|>'\"%@`\t\n #-?~<0x9ä\x00\u2028"
    for _ in range(50):
        text = list(SCENARIO)
        for _ in range(rng.randint(1, 4)):
            i = rng.randrange(len(text))
            text[i : i + rng.randint(0, 2)] = rng.choice(letters)
        attempt("".join(text))
