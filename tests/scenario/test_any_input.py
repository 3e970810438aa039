"""Whatever arguments an op gets, it loads or there is one message: no other exception, ever."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from ggmltool.ggml import ops
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.nodes.tensors import TensorReader
from tests.scenario.texts import BASE

ops.load()

NUMBERS = ["0", "1", "-1", "2", "4", "64", str(1 << 31), str(1 << 62), str((1 << 63) - 1), str(-(1 << 62)), "1e30",
           "-1e30", "nan", "inf", "0.5", "true", "x", "[1, 2]", "[]", "[0, 0, 0, 0]", "null", "f16",
           "[4611686018427387904, 4]", "neox"]  # fmt: skip


def attempt(scenario: Any) -> None:
    try:
        load_spec(scenario)
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


def test_tensors_are_counted_before_any_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.scenario.load.MAX_TENSORS", 3)
    looked: list[str] = []
    monkeypatch.setattr(TensorReader, "leaf", lambda self, id, *rest: looked.append(id))
    document = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"w": {"tensors": {"a": "f32[4]", "b": "f32[4]"}}, "x": 5},
        "graphs": {"main": {"nodes": {"y": "sqr(a)", "z": "sqr(b)"}}},
    }
    with pytest.raises(ScenarioError, match=r"graphs\.main\.nodes: there are more than 3 tensors"):
        load_spec(document)
    assert not looked
