"""What a program gives in place of a file: names, steps, data, sources; and what it gets for wrong ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml import errors
from ggmltool.ggml.errors import Breach, GgmlAssert, GgmlError, LineAssert
from ggmltool.scenario.errors import Place, ScenarioError
from ggmltool.scenario.run.run import Run

SCENARIO: dict[str, Any] = {
    "ggmltool": 1,
    "backends": ["CPU"],
    "contexts": {"c": {"buft": "CPU", "tensors": {"x": "f32[2]"}}},
    "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
}


@pytest.mark.parametrize("source", [None, 3, b"", [], 1.5, object()])
def test_what_is_no_source_is_told_so(source: Any) -> None:
    with pytest.raises(ScenarioError, match=f"a scenario cannot be of type {type(source).__name__}; give a path"):
        ggmltool.load(source)


WRONG: dict[str, tuple[Callable[[ggmltool.Scenario], Any], str]] = {
    "plan of a number": (lambda s: s.plan(graph=1), "the name of a graph must be text, not the number 1"),  # type: ignore[arg-type]
    "plan of a list": (lambda s: s.plan(graph=[]), "the name of a graph must be text, not a list"),  # type: ignore[arg-type]
    "reserve": (lambda s: s.start().reserve("mian"), 'no graph is called "mian"; did you mean "main"?'),
    "alloc": (lambda s: s.start().alloc("nowhere"), 'no graph is called "nowhere"; its graphs are main'),
    "build": (lambda s: s.start().build("mian"), 'no graph is called "mian"'),
    "compute": (lambda s: s.start().compute("mian"), 'no graph is called "mian"'),
    "get": (lambda s: s.start().get("z"), 'there is no tensor "z"'),
    "get of None": (lambda s: s.start().get(None), "the id of a tensor must be text, not null"),  # type: ignore[arg-type]
    "set": (lambda s: s.start().set("why", [1, 2]), 'there is no tensor "why"'),
    "set of what does not fit": (lambda s: s.start().set("x", [1]), "data of x: data has 1 values; f32[2] has 2"),
    "set of None": (lambda s: s.start().set("x", None), "data of x: data must be a list or a map, not null"),
    "steps that are text": (lambda s: s.run("alloc main"), "steps must be a list, not the text"),
    "steps that are a number": (lambda s: s.run(3), "steps must be a list, not the number 3"),  # type: ignore[arg-type]
    "outputs": (lambda s: s.compute(outputs=["z"]), 'graph main has no tensor "z"'),
    "outputs that are numbers": (lambda s: s.compute(outputs=[1]), "the id of a tensor must be text"),  # type: ignore[list-item]
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_name_is_a_scenario_error(kind: str) -> None:
    call, message = WRONG[kind]
    with pytest.raises(ScenarioError) as caught:
        call(ggmltool.load(SCENARIO))
    assert message in str(caught.value)


def test_a_run_takes_data_as_a_file_has_it_or_an_array() -> None:
    run = ggmltool.load(SCENARIO).start(values=True)
    for data in ([1, 2], {"arange": {"start": 1}}, np.array([1, 2])):
        run.set("x", {"fill": 0})
        run.set("x", data)
        assert run.get("x").ravel().tolist() == [1, 2]


def _with_place() -> ScenarioError:
    error = ScenarioError("wrong", "a.yaml", Place(3, 4), "right", "text")
    error.add_note("seen")
    return error


def _of_ggml(kind: type[GgmlError]) -> GgmlError:
    if issubclass(kind, LineAssert):
        return kind("f", "ggml.c", 3, "a == b", "why", "printed")
    error = kind("f", "a == b", "why").of("chunks", 17)
    error.where = "a.yaml:1:2: x"
    return error


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GgmlError)]


@pytest.mark.parametrize("error", [_with_place(), *map(_of_ggml, KINDS)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_errors_are_copied_and_pickled_whole(again: Callable[[Exception], Exception], error: Exception) -> None:
    other = again(error)
    assert type(other) is type(error)
    assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
    if isinstance(other, GgmlAssert) and not isinstance(other, LineAssert):
        assert other.breach == Breach("chunks", 17)


def test_a_run_says_that_it_is_for_one_thread() -> None:
    run = ggmltool.load(SCENARIO).start()
    assert isinstance(run, Run)
    assert "one thread at a time" in (Run.__doc__ or "")
    assert "Several threads may use" in (ggmltool.Scenario.__doc__ or "")


def test_a_tensor_that_no_graph_makes_has_no_memory() -> None:
    """R4: `set` in a scenario without graphs."""
    tensors = {"scale": "f32[3]"}
    step = {"set": {"scale": {"fill": 1}}}
    scenario = {"ggmltool": 1, "contexts": {"c": {"tensors": tensors}}, "steps": [step]}
    run = ggmltool.load(scenario).start(values=True)
    with pytest.raises(GgmlAssert, match="tensor buffer not set"):
        run.set("scale", {"fill": 1})


@pytest.mark.parametrize("value", [np.array(["a"]), np.zeros((2, 2)), object()])
def test_a_number_that_is_none_of_python_s(value: object) -> None:
    """An array as a format version."""
    with pytest.raises(ScenarioError, match=r"must be an integer, not a \w+"):
        ggmltool.load(SCENARIO | {"ggmltool": value})


@pytest.mark.parametrize(
    ("type_", "data", "values"),
    [
        ("f32", {"arange": {"start": 10**30}}, [1e30, 1e30]),
        ("f32", {"arange": {"start": 0.5, "step": 10**20}}, [0.5, 1e20]),
        ("i64", {"arange": {"start": -(1 << 63), "step": (1 << 63) - 1}}, [-(1 << 63), -1]),
        ("f32", {"normal": {"std": -0.0}}, [0, 0]),
    ],
)
def test_data_at_the_edge_of_numbers(type_: str, data: object, values: list[float]) -> None:
    """R4: `arange` from 1e30, numpy's normal of -0.0."""
    tensors = {"x": {"type": type_, "ne": [2], "data": data}}
    scenario = SCENARIO | {"contexts": {"c": {"buft": "CPU", "tensors": tensors}}, "graphs": {}}
    found = ggmltool.load(scenario).start(values=True).get("x").ravel()
    assert found.tolist() == np.array(values, found.dtype).tolist()


ARRAY = np.zeros((2, 2))


@pytest.mark.parametrize(
    "changed",
    [
        {"contexts": {"c": {"buft": ARRAY, "tensors": {"x": "f32[2]"}}}},
        {"graphs": {"main": {"nodes": {"y": {"op": ARRAY, "src": ["x"]}}}}},
        {"graphs": {"main": {"nodes": {"y": {"op": "sqr", "src": ARRAY}}}}},
        {"graphs": {"main": {"nodes": {"y": {"op": "sqr", "src": ["x"], "ne": ARRAY}}}}},
        {"backends": [{"name": "G", "supports": {"only": ARRAY}}, "CPU"]},
        {"backends": [{"name": "G", "offload_min_batch": ARRAY}, "CPU"]},
    ],
)
def test_an_array_where_none_belongs_is_told(changed: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="must be"):
        ggmltool.load(SCENARIO | changed)


def test_a_range_without_ends_is_none() -> None:
    """Found by mutation: `uniform` from infinity to infinity."""
    data = {"uniform": {"low": float("inf"), "high": float("inf")}}
    contexts = {"c": {"tensors": {"x": {"type": "f32", "ne": [2], "data": data}}}}
    with pytest.raises(ScenarioError, match="low and high must be finite, not inf"):
        ggmltool.load(SCENARIO | {"contexts": contexts})
