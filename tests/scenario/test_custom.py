"""Custom ops in a scenario: what the file says of them, and the functions that Python gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.scenario.errors import ScenarioError
from tests.scenarios import scenario_of

X = {"type": "f32", "ne": [2, 3], "data": {"arange": {"start": 0, "step": 1}}}
VALUES = np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2)


def scenario(**nodes: Any) -> Any:
    return ggmltool.load(scenario_of({"x": X, "i": "i32[2, 3]"}, nodes))


@pytest.mark.parametrize(
    "node",
    [
        "map_custom1(x)",
        "map_custom1(x, n_tasks=max)",
        "map_custom1(x, 4)",
        "map_custom1_inplace(x)",
        {"op": "map_custom1", "src": ["x"], "inplace": True},
        {"op": "map_custom1", "src": ["x"], "type": "f32", "ne": [2, 3, 1, 1], "op_params": [16, 1, -1, 0, 32, 1]},
        {"op": "map_custom1", "src": ["x"], "type": "f32", "ne": [2, 3]},
        "custom(x, type=f32, ne=[2, 3])",
        "custom_4d(x, type=f32, ne0=2, ne1=3, ne2=1, ne3=1)",
        "custom_inplace(x)",
        {"op": "custom", "src": ["x"], "type": "f32", "ne": [2, 3]},
        {"op": "custom", "src": ["x"], "type": "f32", "ne": [2, 3, 1, 1], "nb": [4, 8, 24, 24], "view_src": "x"},
    ],
)
def test_a_node_is_computed_by_the_function_it_is_given(node: Any) -> None:
    loaded = scenario(y=node, z="scale(y, s=2)")
    assert loaded.plan().ok
    out = loaded.compute(outputs=["y", "z"], custom={"y": lambda x: x + 1})
    assert np.array_equal(out["y"], VALUES + 1)
    assert np.array_equal(out["z"], 2 * (VALUES + 1))


def test_raw_words_stay_as_they_are() -> None:
    words = [16, 1, 3, 7, 32, 1]
    node = {"op": "map_custom2", "src": ["x", "x"], "op_params": words}
    y = scenario(y=node).model.graphs["main"].nodes[0]
    assert (y.op, list(y.op_params), y.ne) == (Op.MAP_CUSTOM2, words, (2, 3, 1, 1))


def test_sources_come_as_they_stand_with_none_for_an_empty_slot() -> None:
    seen: list[Any] = []

    def fun(*sources: Any) -> Any:
        seen.extend(sources)
        return sources[2].shape[-1]

    out = scenario(y="custom(x, null, i, type=i32, ne=[1, 2])").compute(custom={"y": fun})
    assert [None if s is None else (s.dtype.name, s.shape) for s in seen] == [
        ("float32", (1, 1, 3, 2)),
        None,
        ("int32", (1, 1, 3, 2)),
    ]
    assert out["y"].tolist() == [[[[2], [2]]]]


def test_a_node_without_a_function_is_planned_and_refused_when_computed() -> None:
    loaded = scenario(y="map_custom1(x)")
    assert loaded.plan().ok
    with pytest.raises(NotComputable, match="there is none"):
        loaded.compute()


@pytest.mark.parametrize(
    ("id", "hint"), [("z", "its nodes of custom ops are y"), ("x", "its nodes of custom ops are y")]
)
def test_only_nodes_of_custom_ops_take_functions(id: str, hint: str) -> None:
    with pytest.raises(ScenarioError, match="takes a function") as caught:
        scenario(y="map_custom1(x)", z="scale(y, s=2)").compute(custom={id: abs})
    assert hint in str(caught.value)


def test_an_error_of_the_function_is_the_callers() -> None:
    def fun(a: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        scenario(y="map_custom1(x)").compute(custom={"y": fun})


def test_no_threads_and_too_many_sources_are_ggmls_assertions() -> None:
    with pytest.raises(GgmlAssert, match="n_tasks"):
        scenario(y="map_custom1(x, 0)")
    with pytest.raises(GgmlAssert, match="n_args < GGML_MAX_SRC"):
        scenario(y=f"custom({', '.join(['x'] * 10)}, type=f32, ne=[1])")


def test_the_gradient_of_flash_attention_is_ggmls_abort_unless_it_was_captured() -> None:
    with pytest.raises(GgmlAbort, match="adapt to ggml_flash_attn_ext"):
        scenario(y="flash_attn_back(x, x, x, x, masked=false)")
    written = {"op": "flash_attn_back", "src": ["x", "x", "x", "x"], "type": "f32", "ne": [24]}
    assert scenario(y=written).plan().ok
