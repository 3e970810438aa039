"""Scenarios of January 2024: steps, keys that only it has, values, and what a file of another version becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlError
from ggmltool.scenario.run.devices import registry_of
from ggmltool.scenario.run.measured import MeasuredRun

DATA = [[1, 2], [3, 4]]


def document(**more: Any) -> dict[str, Any]:
    return {
        "ggmltool": 1,
        "ggml": "2024-01",
        "backends": ["GPU0", "CPU"],
        "contexts": {
            "w": {"buft": "GPU0", "usage": "weights", "tensors": {"w": {"type": "f32", "ne": [2, 2], "data": DATA}}},
            "in": {"tallocr": "CPU", "tensors": {"x": {"type": "f32", "ne": [2, 2], "data": DATA}}},
            "late": {"tensors": {"b": {"type": "f32", "ne": [2, 2], "data": DATA}}},
        },
        "graphs": {"main": {"nodes": {"y": "mul_mat(w, x)", "r": "sqr(y)", "z": "add(r, b)"}}},
        **more,
    }


def test_the_default_steps_measure_and_compute() -> None:
    model = ggmltool.load(document()).model
    assert [str(s) for s in model.steps] == ["measure main", "compute main"]


@pytest.mark.parametrize("graph", ["main", None])
def test_values_are_those_of_today(graph: str | None) -> None:
    z = ggmltool.load(document()).compute(graph)["z"]
    x = np.array(DATA, np.float32)
    np.testing.assert_allclose(z[0, 0], (x @ x.T) ** 2 + x)


def test_any_node_can_be_read_although_nothing_keeps_it() -> None:
    values = ggmltool.load(document()).compute("main", ["y", "r", "z"])
    np.testing.assert_allclose(values["r"], values["y"] ** 2)


def test_times_are_those_of_every_backend() -> None:
    scenario = ggmltool.load(document())
    run = scenario.start(values=True)
    assert isinstance(run, MeasuredRun)
    for step in scenario.steps():
        run.step(step)
    assert [t.backend for t in run.times] == ["GPU0", "CPU"]
    assert all(t.copy_us >= 0 and t.compute_us >= 0 for t in run.times)


def test_a_tensor_in_an_allocator_is_placed_before_the_graph_and_given_back_in_it() -> None:
    plan = ggmltool.load(document()).plan()
    leaf = next(t for t in plan.leafs if t.id == "x")
    assert (leaf.backend, leaf.buffer, leaf.offset) == ("CPU", "CPU", 0)
    cpu = next(t for t in plan.tallocs if t.backend == "CPU")
    assert cpu.max_size == 64
    assert cpu.free_blocks[0][0] == 0


def test_malloc_may_put_cpu_buffers_beside_a_boundary() -> None:
    plan = ggmltool.load(document(cpu_base_misalign=40)).plan()
    assert next(t for t in plan.leafs if t.id == "x").offset == 24
    assert next(t for t in plan.tallocs if t.backend == "CPU").align_offset == 24


def test_a_file_of_today_is_put_into_its_words() -> None:
    today = document(steps=["reserve main", "alloc main", "compute main", "alloc main", "compute main"])
    del today["ggml"]
    del today["contexts"]["in"]["tallocr"]
    today["graphs"]["main"]["nodes"]["z"] = {"op": "add", "src": ["r", "b"], "flags": ["output"]}
    today["scheduler"] = {"parallel": True}
    model = ggmltool.load(today, ggml="2024-01").model
    assert [str(s) for s in model.steps] == ["measure main", "compute main", "compute main"]
    assert set(model.left_out) == {"scheduler.parallel", "flags"}


def test_its_own_file_is_put_into_words_of_today() -> None:
    scenario = ggmltool.load(document(), ggml="0.20.2")
    assert [str(s) for s in scenario.model.steps] == ["reserve main", "alloc main", "compute main"]
    assert scenario.model.left_out == ("contexts.in.tallocr",)
    assert scenario.plan().ok


def test_a_tensor_that_comes_with_the_graph_cannot_be_set_before() -> None:
    scenario = ggmltool.load(document(steps=["measure main", {"set": {"x": DATA}}, "compute main"]))
    plans = scenario.run()
    assert plans[-1]["error"]["condition"] == 'tensor->data != NULL && "tensor not allocated"'


def test_weights_can_be_set_between_graphs() -> None:
    steps = ["measure main", {"set": {"w": [[0, 0], [0, 0]]}}, "compute main", {"get": "z"}]
    scenario = ggmltool.load(document(steps=steps))
    run = scenario.start(values=True)
    *_, values = [run.step(step) for step in scenario.steps()]
    assert isinstance(values, dict)
    np.testing.assert_allclose(values["z"][0, 0], DATA)


@pytest.mark.parametrize("step", ["compute", "alloc", "measure", "reserve"])
def test_plans_can_be_asked_for_by_both_names(step: str) -> None:
    plan = ggmltool.load(document()).plan(step=step)
    assert plan.step == {"alloc": "compute", "reserve": "measure"}.get(step, step)
    assert plan.as_dict()["ggml"] == "2024-01"


def test_computing_on_memory_of_another_device_is_refused() -> None:
    nodes = {"y": {"op": "sqr", "src": ["w"], "backend": "CPU"}, "v": "view(y, ne=[2], offset=0)"}
    plan = ggmltool.load(document(graphs={"main": {"nodes": nodes}})).compute("main", ["y"])
    np.testing.assert_allclose(plan["y"][0, 0], np.array(DATA) ** 2)
    view = {"v": {"op": "view", "src": ["w"], "ne": [2], "offset": 0, "backend": "CPU"}, "y": "sqr(v)"}
    view["y"] = {"op": "sqr", "src": ["v"], "backend": "CPU"}
    with pytest.raises(GgmlError, match="CPU cannot read"):
        ggmltool.load(document(graphs={"main": {"nodes": view}})).compute("main", ["y"])


def test_the_registry_has_the_cpu_first() -> None:
    model = ggmltool.load(document(backends=["GPU0", "Metal", "CUDA1", "CPU"])).model
    registry = registry_of(model)
    assert [(e.name, e.init_name) for e in registry.entries] == [
        ("CPU", "ggml_backend_reg_cpu_init"),
        ("CUDA1", "ggml_backend_reg_cuda_init"),
        ("Metal", "ggml_backend_reg_metal_init"),
        ("GPU0", ""),
    ]
    assert registry.init_backend_from_str("CUDA1:whatever").device.buft.name == "CUDA1"
    assert registry.entries[0].default_buffer_type.slack == 64


@pytest.mark.parametrize(("kind", "line"), [("set", 197), ("get", 207)])
def test_each_access_to_a_tensor_without_memory_is_its_own_assertion(kind: str, line: int) -> None:
    steps: list[Any] = ["measure main", {"get": ["x"]} if kind == "get" else {"set": {"x": {"fill": 1}}}]
    run = ggmltool.load(document(steps=steps)).start(values=True)
    error = dict(run.run(run.model.steps)[-1].error or ())
    assert error["function"] == f"ggml_backend_tensor_{kind}"
    assert error["message"].startswith(f"GGML_ASSERT: ggml-backend.c:{line}: ")
