"""A dumped model loads as the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlError
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import ScenarioSpec
from tests.scenario.texts import load_nodes

GRAPHS = Path(__file__).parents[3] / "shared" / "graphs"
GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "2025-03"
SAMPLES = Path(__file__).parents[2] / "sample_graphs"


def check_round_trip(model: ScenarioSpec) -> None:
    written = dump(model)
    assert load_spec(written, model.folder) == model
    assert load_spec(json.loads(json.dumps(written)), model.folder) == model


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.*")), ids=lambda p: p.name)
def test_samples_come_back(path: Path) -> None:
    check_round_trip(load_spec(path))


def test_everything_that_can_be_said_comes_back() -> None:
    model = load_spec(
        {
            "ggmltool": 1,
            "name": "all",
            "backends": [
                {
                    "name": "X", "type": "accel", "alignment": 64, "max_size": "1MiB", "row_padding": 8, "host": True,
                    "supports": {"only": ["unary", "add", "swiglu"]}, "supports_bufts": ["CPU", "R"],
                    "offload_min_batch": 8, "events": True, "memory": 5, "engine": "numpy",
                },
                {"name": "CUDA0", "offload_min_batch": None, "supports": {"except": ["glu", "silu"]}},
                {"name": "Y", "buft": "X"},
                "CPU",
            ],
            "buffer_types": {"R": {"device": "CPU", "max_size": 10, "ops": ["mul_mat"]}, "S": {"device": "X"}},
            "scheduler": {"graph_size": 100, "parallel": True},
            "contexts": {
                "c": {
                    "buft": "R", "usage": "weights",
                    "tensors": {
                        "a": {"type": "f32", "ne": [4], "data": [1, 2.5, 3, 4], "name": "", "flags": ["param", "loss"]},
                        "b": {"type": "q8_0", "ne": [32], "data": {"normal": {"seed": 3}}, "backend": "CPU"},
                        "v": {"view_src": "a", "view_offs": 4, "ne": [2]},
                        "n" * 100: "f16[2, 0]",
                        "ä" * 40: "f16[2, 0]",
                    },
                },
                "d": {"tensors": {"x": {"type": "i8", "ne": [2, 2], "nb": [1, 4], "data": {"base64": "AQIDBA=="}}}},
            },
            "graphs": {"g h": {"nodes": {"s": "cast(v, f16)", "t": "swiglu(a)"}, "expand": ["t", "x"]}, "e": {}},
            "steps": ["reserve g h", "alloc g h", {"set": {"a": {"fill": 1}}}, {"get": ["s", "x"]}, "reset"],
        }
    )  # fmt: skip
    check_round_trip(model)


def test_a_dump_is_plain_enough_for_yaml(tmp_path: Path) -> None:
    model = load_spec(SAMPLES / "matmul.yaml")
    path = tmp_path / "dumped.yaml"
    path.write_text(yaml.safe_dump(dump(model)), encoding="utf-8")
    assert load_spec(path) == model


UNARY = ["sqr({0})", "sqrt_inplace({0})", "silu({0})", "scale({0}, 0.5)", "cont({0})", "dup({0})", "transpose({0})",
         "permute({0}, 0, 2, 1, 3)", "reshape({0}, ne=[4, 4])", "view({0}, [2, 2], [8], 4)", "cast({0}, f16)",
         "sum({0})", "{{op: reshape, src: [{0}], ne: [16], flags: [output]}}", "rms_norm_inplace({0}, eps=1e-6)",
         "{{op: flash_attn_back, src: [{0}], type: f32, ne: [4, 2]}}"]  # fmt: skip
BINARY = ["add({0}, {1})", "mul_mat({0}, {1})", "cpy({0}, {1})", "soft_max_ext({0}, {1}, 0.5)", "mul_inplace({0}, {1})",
          "concat({0}, {1}, 1)", "{{op: add, src: [{0}, {1}], name: '', backend: CPU}}"]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_random_graphs_come_back(data: st.DataObject) -> None:
    ids = ["s4", "t4"]
    nodes = ["s4: f32[4, 4]", "t4: {type: f32, ne: [4, 4], flags: [input]}"]
    for i in range(data.draw(st.integers(0, 8))):
        form = data.draw(st.sampled_from(UNARY + BINARY))
        node = f"n{i}: {form.format(*data.draw(st.lists(st.sampled_from(ids), min_size=2, max_size=2)))}"
        try:
            load_nodes(*nodes, node)
        except (GgmlError, ScenarioError):
            continue
        nodes.append(node)
        ids.append(f"n{i}")
    graph: dict[str, Any] = yaml.safe_load("\n".join(nodes).replace("f32[4, 4]", "'f32[4, 4]'", 1))
    check_round_trip(load_spec({"ggmltool": 1, "graphs": {"g": {"nodes": graph}}}))


@given(st.sampled_from(sorted(TYPES)), st.lists(st.integers(0, 300), min_size=1, max_size=4), st.text(min_size=1))
def test_any_tensor_comes_back(type: str, ne: list[int], name: str) -> None:
    tensor = {"type": type, "ne": ne, "name": name}
    try:
        model = load_spec({"ggmltool": 1, "contexts": {"c": {"tensors": {"t": tensor}}}})
    except ScenarioError as e:
        partial = ne[0] % TYPES[type].block_size != 0
        assert "control character" in str(e) or (partial and "blocks" in str(e))  # noqa: PT017
        return
    check_round_trip(model)


@pytest.mark.skipif(not GRAPHS.exists(), reason="no captured graphs beside the project")
def test_captured_graphs_come_back_and_are_what_they_say() -> None:
    for path in sorted(GRAPHS.glob("*-ngl2.json.gz"))[:12]:
        model = load_spec(path)
        assert load_spec(dump(model)) == model


@pytest.mark.skipif(not GOLDEN.exists(), reason="no golden plans beside the project")
def test_scenarios_of_golden_plans_load() -> None:
    import gzip

    for path in sorted(GOLDEN.glob("*.json.gz"))[::8]:
        with gzip.open(path) as stream:
            check_round_trip(load_spec(json.load(stream)["scenario"]))


@pytest.mark.parametrize(
    "data",
    [{"fill": "inf"}, {"fill": float("-inf")}, [float("inf"), 1], {"normal": {"mean": float("inf")}}, {"fill": "nan"}],
)
def test_what_no_json_has_is_written_as_a_word(data: object) -> None:
    """Found by mutation: `place --format scenario` of infinite data."""
    contexts = {"c": {"tensors": {"x": {"type": "f32", "ne": [2], "data": data}}}}
    steps = ["alloc g", {"set": {"x": data}}]
    model = load_spec(
        {"ggmltool": 1, "contexts": contexts, "graphs": {"g": {"nodes": {"y": "sqr(x)"}}}, "steps": steps}
    )
    text = json.dumps(dump(model), allow_nan=False)
    again = load_spec(json.loads(text))
    assert repr(again.contexts) == repr(model.contexts)
    assert repr(again.steps) == repr(model.steps)
