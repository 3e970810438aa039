"""Comparing with values that another backend computed: files, and logs that show some elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ask.compare.computed import make_backend
from ggmltool.ask.compare.record import ComparedGraph
from ggmltool.ask.compare.recorded import Told, compare_recorded
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import ScenarioError
from ggmltool.sources.values.files import Sample, log_nodes, parse_eval_log, read_values
from tests.sources.eval_printer import printed

MODEL: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "w": {
            "tensors": {
                "w": {"type": "q8_0", "ne": [64, 64], "data": {"normal": {"seed": 1, "std": 0.4}}},
                "cache": {"type": "f16", "ne": [64, 32]},
                "rows": {"type": "i64", "ne": [8], "data": {"arange": {}}},
            }
        },
        "in": {"tensors": {"x": {"type": "f32", "ne": [64, 8], "data": {"normal": {"seed": 3}}}}},
    },
    "graphs": {
        "main": {
            "nodes": {
                "n": "rms_norm(x, eps=1e-6)",
                "a": "mul_mat(w, n)",
                "b": "silu(a)",
                "kept": "set_rows(cache, b, rows)",
                "part": "view(kept, ne=[64, 8], nb=[128], offset=0)",
                "c": "cast(part, type=f32)",
                "d": "mul_mat(w, c)",
                "e": {"op": "add", "src": ["d", "x"], "inplace": True},
                "order": "argsort(e, order=asc)",
                "y": "rms_norm(e, eps=1e-6)",
            }
        }
    },
}
NODES = ["n", "a", "b", "kept", "c", "d", "e", "order", "y"]


def with_op(**ops: str) -> dict[str, Any]:
    """The model whose nodes have other ops: what a backend with a wrong kernel computes."""
    nodes = {**MODEL["graphs"]["main"]["nodes"], **ops}
    return {**MODEL, "graphs": {"main": {"nodes": nodes}}}


def computed(source: dict[str, Any], noise: float = 0.0) -> dict[str, Any]:
    """What a backend computes that rounds a little differently."""
    values = ggmltool.load(source).compute(outputs=NODES)
    random = np.random.default_rng(7)
    return {
        id: v if v.dtype.kind == "i" or id == "kept" else v * (1 + noise * random.standard_normal(v.shape, np.float32))
        for id, v in values.items()
    }


def recorded(told: dict[str, Told], **more: Any) -> ComparedGraph:
    scenario = ggmltool.load(MODEL)
    backend = make_backend(scenario.model, read_devices(["CPU"])[0])
    return compare_recorded(scenario, "main", backend, backend_graph_compute, told, {}, seed=None, **more)


def whole(values: dict[str, Any]) -> dict[str, Told]:
    return {id: (lambda v=v: v) for id, v in values.items()}


def logged(values: dict[str, Any]) -> dict[str, Told]:
    model = ggmltool.load(MODEL).model
    ops = {"n": "RMS_NORM", "a": "MUL_MAT", "b": "SILU", "kept": "SET_ROWS", "c": "CPY", "d": "MUL_MAT", "e": "ADD"}
    ops |= {"order": "ARGSORT", "y": "RMS_NORM"}
    text = "".join(printed(id, "f32", ops[id], [], v) for id, v in values.items())
    samples = log_nodes(parse_eval_log(text.splitlines()), model, "main", "log").samples
    assert samples
    return dict(samples)


def test_values_of_the_same_kernels_are_equal() -> None:
    found = recorded(whole(computed(MODEL)))
    assert [n.id for n in found.nodes] == NODES
    assert not any(n.at or n.end_to_end.at for n in found.nodes)
    assert not any(n.through or n.shown for n in found.nodes)


WRONG = {"b": "gelu(a)", "n": "norm(x, eps=1e-6)", "y": "l2_norm(e, eps=1e-6)", "e": "sub(d, x)"}


@pytest.mark.parametrize("id", WRONG)
@pytest.mark.parametrize("noise", [0.0, 1e-5])
@pytest.mark.parametrize("way", [whole, logged])
def test_a_wrong_kernel_is_the_only_one_that_is_named(id: str, noise: float, way: Any) -> None:
    """U6: from its own recorded inputs, or from a log that shows some elements of each node."""
    found = recorded(way(computed(with_op(**{id: WRONG[id]}), noise)))
    over = [n.id for n in found.over if n.id != "order"]
    assert over == [id]
    assert {n.id for n in found.nodes} <= set(NODES)


@pytest.mark.parametrize("noise", [0.0, 1e-5, 1e-4])
def test_a_log_of_another_rounding_has_no_wrong_kernel(noise: float) -> None:
    found = recorded(logged(computed(MODEL, noise)))
    assert [n.id for n in found.over] == []
    assert {n.id: n.shown for n in found.nodes}["y"] == 36


def test_what_is_not_told_is_judged_with_the_next_that_is() -> None:
    values = computed(with_op(b="gelu(a)"))
    told = whole({id: values[id] for id in ("a", "d", "y")})
    found = recorded(told)
    assert [n.id for n in found.nodes] == ["a", "d", "y"]
    assert [n.id for n in found.over] == ["d"]
    assert {n.id: n.through for n in found.nodes} == {"a": ("n",), "d": ("b", "kept", "c"), "y": ("e",)}


def test_a_sum_alone_can_tell() -> None:
    values = computed(MODEL)
    shifted = values["b"] + 0.5
    empty = np.zeros(0, dtype=np.int64)
    right = Sample(np.arange(2), values["b"].reshape(-1)[:2].astype(np.float64), 5e-5, float(values["b"].sum()))
    wrong = Sample(np.arange(2), values["b"].reshape(-1)[:2].astype(np.float64), 5e-5, float(shifted.sum()))
    nothing = Sample(empty, empty.astype(np.float64), 5e-5)
    assert recorded({"b": right}).over == []
    assert [n.id for n in recorded({"b": wrong}).over] == ["b"]
    assert recorded({"b": nothing}).nodes == []


def write(folder: Path, values: dict[str, Any]) -> None:
    for id, v in values.items():
        np.save(folder / f"{id}.npy", v)


def test_npy_files_go_by_id_by_name_and_by_the_number_of_a_name(tmp_path: Path) -> None:
    nodes = {
        "first": {"op": "sqr", "src": ["x"], "name": "Q/cur"},
        "second": {"op": "sqr", "src": ["first"], "name": "Q/cur"},
        "y": "sqr(second)",
    }
    model = ggmltool.load({**MODEL, "graphs": {"main": {"nodes": nodes}}}).model
    write(tmp_path, {"Q%2Fcur": np.ones((8, 64)), "Q%2Fcur~2": np.full((1, 1, 8, 64), 2.0), "y": np.zeros(512), "z": 1})
    found = read_values(tmp_path, model, "main")
    assert {id: read().reshape(-1)[0] for id, read in found.values.items()} == {"first": 1, "second": 2, "y": 0}
    assert found.unknown == ["z"]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("a", np.zeros((64, 8)), r"a.npy: the values of a have the shape \[64, 8\].*\[8, 64\]; transpose it"),
        ("a", np.zeros((3, 8)), r"the shape is ne reversed: \[8, 64\]"),
        ("other", np.zeros(3), "there are no values of a node of graph main"),
        ("a", np.array(["text"]), "not numbers"),
    ],
)
def test_files_that_are_not_the_tensors_are_refused(tmp_path: Path, name: str, array: Any, message: str) -> None:
    write(tmp_path, {name: array})
    with pytest.raises(ScenarioError) as caught:
        read_values(tmp_path, ggmltool.load(MODEL).model, "main")
    import re

    assert re.search(message, f"{caught.value} {caught.value.expected}", re.DOTALL)


def test_a_folder_without_files_and_what_is_no_gguf_are_refused(tmp_path: Path) -> None:
    model = ggmltool.load(MODEL).model
    with pytest.raises(ScenarioError, match="no npy file in this folder"):
        read_values(tmp_path, model, "main")
    (tmp_path / "x.gguf").write_bytes(b"nothing")
    with pytest.raises(ScenarioError, match="not a GGUF file"):
        read_values(tmp_path / "x.gguf", model, "main")
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ScenarioError, match=r"manifest\.json is not one"):
        read_values(tmp_path, model, "main")


def test_a_gguf_file_has_values_of_any_type(tmp_path: Path) -> None:
    import gguf

    values = computed(MODEL)
    writer = gguf.GGUFWriter(str(tmp_path / "v.gguf"), "values")
    writer.add_tensor("b", values["b"][0, 0])
    writer.add_tensor("d", values["d"][0, 0].astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = ggmltool.load(MODEL).model
    found = read_values(tmp_path / "v.gguf", model, "main")
    result = recorded(dict(found.values))
    assert [n.id for n in result.nodes] == ["b", "d"]
    assert result.over == []
    assert result.nodes[0].at is None
