"""Comparing two backends: a kernel that is wrong on purpose is found at its node, whatever the op."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ggmltool
from ggmltool.ask.compare import record as module
from ggmltool.ask.compare.computed import Told, compare_backends, compare_recorded, make_backend
from ggmltool.ask.compare.record import EXACT, ROUNDED, ComparedGraph, Deviation, is_exact, measure, tolerance_of
from ggmltool.ask.ops.record import RESULT, op_example
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import CUSTOM_OPS, KEY_NAMES, VIEW_OPS, GluOp, Op, UnaryOp
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import KERNELS
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.run.placed import broken, read_injections
from ggmltool.sources.values.files import Sample, log_nodes, parse_eval_log, read_values
from tests.scenarios import scenario_of
from tests.sources.eval_printer import printed

load()

NAN, INF = float("nan"), float("inf")
KERNEL_OPS = [
    name
    for key, name in enumerate(KEY_NAMES[: len(Op)])
    if key in KERNELS and key not in CUSTOM_OPS and key not in VIEW_OPS
] + [name for name in KEY_NAMES[len(Op) :] if op_example(name) is not None]


def compared(source: dict[str, Any], second: GraphCompute | None = None, **more: Any) -> ComparedGraph:
    """The graph `main` on CUDA0 and on the CPU, whose kernels are `second`."""

    def compute(two: tuple[Backend, Backend]) -> GraphCompute:
        if second is None:
            return backend_graph_compute
        wrong = second
        return lambda b, nodes: wrong(b, nodes) if b is two[1] else backend_graph_compute(b, nodes)

    first, other = read_devices(["CUDA0", "CPU"])
    return compare_backends(ggmltool.load(source, ggml=NEWEST), "main", (first, other), compute, **more)


def wrong_at(id: str) -> GraphCompute:
    """Kernels that get the first element of one node wrong."""

    def compute(backend: Backend, nodes: Sequence[Tensor]) -> None:
        for n in nodes:
            backend_graph_compute(backend, [n])
            if n.id == id:
                values = HostArrays().raw(n)
                right = values[0, 0, 0, 0]
                values[0, 0, 0, 0] = right * 2 + 1000 if np.isfinite(right) else 0

    return compute


def between(name: str) -> dict[str, Any]:
    """An op's example with another node before it and one behind it that uses it."""
    source = yaml.safe_load(op_example(name) or "")
    tensors = source.get("contexts", {}).get("inputs", {}).get("tensors", {})
    nodes = source["graphs"]["main"]["nodes"]
    before = {"before": f"dup({next(iter(tensors))})"} if tensors else {}
    source["graphs"]["main"]["nodes"] = {**before, **nodes, "after": f"dup({RESULT})"}
    return dict(source)


@pytest.mark.parametrize("name", KERNEL_OPS)
def test_a_wrong_kernel_is_found_at_its_node(name: str) -> None:
    right = compared(between(name))
    assert right.over == []
    wrong = compared(between(name), wrong_at(RESULT))
    assert [n.id for n in wrong.over] == [RESULT]
    assert wrong.over[0].at == (0, 0, 0, 0)
    assert [n.id for n in wrong.nodes if n.end_to_end.at is not None] == [RESULT, "after"]


MLP: dict[str, Any] = scenario_of(
    {
        "w": {"type": "f16", "ne": [8, 8], "data": {"normal": {"seed": 1}}},
        "x": {"type": "f32", "ne": [8, 3], "data": {"normal": {"seed": 2}}},
    },
    {"n": "rms_norm(x, eps=1e-6)", "side": "sqr(x)", "h": "mul_mat(w, n)", "v": "reshape(h, ne=[24])", "y": "sqr(v)"},
    expand=["side", "y"],
)


def edited(value: float, at: str = "h") -> GraphCompute:
    """Kernels that put a value into the first element of one node."""

    def compute(backend: Backend, nodes: Sequence[Tensor]) -> None:
        backend_graph_compute(backend, nodes)
        for n in nodes:
            if n.id == at:
                HostArrays().raw(n)[0, 0, 0, 0] = value

    return compute


def test_an_error_is_followed_through_a_view() -> None:
    found = compared(MLP, wrong_at("h"))
    assert [n.id for n in found.over] == ["h"]
    assert [n.id for n in found.nodes if n.end_to_end.at is not None] == ["h", "y"]
    assert [n.index for n in found.nodes] == [0, 1, 2, 4]
    assert found.n_nodes == 5


def test_a_tolerance_is_of_an_op_and_its_types() -> None:
    found = compared(MLP)
    assert {n.id: n.tolerance for n in found.nodes} == {"n": 1e-7, "side": 1e-7, "h": 5e-4, "y": 1e-7}
    assert {n.tolerance for n in compared(MLP, tolerance=0.25).nodes} == {0.25}


BEHIND_A_PRODUCT: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "w": {"tensors": {"w": {"type": "q4_0", "ne": [64, 64], "data": {"normal": {"seed": 1, "std": 2}}}}},
        "in": {"tensors": {"x": {"type": "f32", "ne": [64, 8], "data": {"normal": {"seed": 3}}}}},
    },
    "graphs": {"main": {"nodes": {"a": "mul_mat(w, x)", "b": "silu(a)", "y": "mul_mat(w, b)"}}},
}


def test_gelu_in_place_of_silu_is_found_behind_a_quantized_product() -> None:
    """U5: the error is within what a product may have, and yet the kernel is wrong."""
    scenario = ggmltool.load(BEHIND_A_PRODUCT)
    wrong = read_injections(["b=gelu"], scenario.model.graphs["main"], "<dict>")
    first, second = read_devices(["CUDA0", "CPU"])
    found = compare_backends(
        scenario, "main", (first, second), lambda two: broken(backend_graph_compute, two[1], wrong, "<dict>")
    )
    nodes = {n.id: n for n in found.nodes}
    assert [n.id for n in found.over] == ["b"]
    assert 1e-7 < nodes["b"].nmse < 5e-4
    assert nodes["y"].nmse == 0 < nodes["y"].end_to_end.nmse


INPLACE: dict[str, Any] = scenario_of(
    {
        "x": {"type": "f32", "ne": [8, 4], "data": {"normal": {"seed": 1}}},
        "cache": {"type": "f32", "ne": [8, 6], "data": {"fill": 0.5}},
        "rows": {"type": "i64", "ne": [4], "data": [0, 2, 3, 5]},
    },
    {
        "a": "sqr(x)",
        "b": {"op": "scale", "src": ["a"], "s": 3.0, "inplace": True},
        "kept": "set_rows(cache, b, rows)",
        "part": "view(kept, ne=[8, 2], nb=[32], offset=64)",
        "y": "sum_rows(part)",
    },
)


@pytest.mark.parametrize("wrong", ["a", "b", "kept", "y"])
def test_nodes_in_place_and_into_a_cache_are_judged_by_themselves(wrong: str) -> None:
    assert compared(INPLACE).over == []
    found = compared(INPLACE, wrong_at(wrong))
    assert [n.id for n in found.over] == [wrong]


def test_the_second_side_goes_on_with_its_own_values_whatever_was_tried_from_the_first_ones() -> None:
    second = wrong_at("a")
    end_to_end = {n.id: n.end_to_end for n in compared(INPLACE, second).nodes}
    whole = {n.id: n.end_to_end for n in compared(INPLACE, second, tests=["kept", "y"]).nodes}
    assert {id: end_to_end[id] for id in whole} == whole


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_on_one_side_only_is_an_error(value: float) -> None:
    found = compared(MLP, edited(value), tolerance=1e9)
    first = found.over[0]
    assert first.id == "h"
    assert (first.misplaced, first.not_finite) == (1, (0, 1))
    assert first.at == (0, 0, 0, 0)


def test_what_is_not_finite_in_the_same_places_agrees() -> None:
    source = {**MLP, "contexts": {"c": {"tensors": {**MLP["contexts"]["c"]["tensors"]}}}}
    values = [NAN, INF, -INF, *[1.0] * 21]
    source["contexts"]["c"]["tensors"]["x"] = {"type": "f32", "ne": [8, 3], "data": values}
    found = compared(source)
    assert found.over == []
    assert found.nodes[0].not_finite == (3, 3)


def test_with_test_nodes_only_they_are_compared() -> None:
    found = compared(MLP, wrong_at("h"), tests=["side", "y"])
    assert [(n.id, n.ok) for n in found.nodes] == [("side", True), ("y", False)]
    assert found.whole


def test_tensors_without_data_get_values_and_indices_stay_zero() -> None:
    source = scenario_of({"t": "f16[8, 4]", "ids": "i32[3]", "unused": "f32[4]"}, {"y": "get_rows(t, ids)"})
    found = compared(source, edited(0.0, "y"))
    assert (found.made_up, found.zero) == (["t"], ["ids"])
    assert found.nodes[0].largest_error > 0


def test_a_backend_that_does_not_run_an_op_is_named() -> None:
    source = scenario_of({"x": "f32[8, 4, 4]"}, {"y": "win_part(x, w=2)", "z": "sqr(y)"})
    assert [n.not_run_by for n in compared(source).nodes] == [("CUDA0",), ()]


def test_the_first_difference_of_integers_is_over_any_tolerance() -> None:
    source = scenario_of({"x": {"type": "f32", "ne": [8], "data": {"arange": {}}}}, {"y": "argsort(x, order=desc)"})
    assert compared(source, edited(6, "y"), tolerance=10.0).over[0].largest_error == 1
    assert compared(source, edited(7, "y")).over == []


def inject(*texts: str) -> ComparedGraph:
    scenario = ggmltool.load(MLP)
    wrong = read_injections(texts, scenario.model.graphs["main"], "<dict>")
    first, second = read_devices(["CUDA0", "CPU"])
    return compare_backends(
        scenario, "main", (first, second), lambda two: broken(backend_graph_compute, two[1], wrong, "<dict>")
    )


@pytest.mark.parametrize(
    ("text", "first"), [("n=norm", "n"), ("side=sqrt", "side"), ("y=silu", "y"), ("h=out_prod", None), ("y=ABS", "y")]
)
def test_the_kernel_of_another_op_is_found(text: str, first: str | None) -> None:
    if first is None:
        with pytest.raises(ScenarioError, match="the kernel of OUT_PROD cannot compute h, a MUL_MAT"):
            inject(text)
    else:
        assert inject(text).over[0].id == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h", "not an injection; expected NODE=OP"),
        ("=add", "not an injection"),
        ("hh=add", 'no node "hh"; did you mean "h'),
        ("h=mulmat", 'mulmat is not an op; did you mean "mul_mat"'),
        ("h=mul_mat", "h is a MUL_MAT already"),
        ("v=add", "v is a RESHAPE, which computes nothing"),
        ("h=view", "view has no kernel of its own"),
        ("h=unary", "unary has no kernel of its own"),
        ("x=add", 'no node "x"'),
    ],
)
def test_an_injection_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        inject(text)


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


NAN, INF = float("nan"), float("inf")


def tensor(values: Any, type: str = "f32") -> Tensor:
    array = np.asarray(values)
    shape = (1, 1, 1, *array.shape)[-4:]
    t = Tensor(TYPES[type], (shape[3], shape[2], shape[1], shape[0]))
    t.buffer = Buffer(BufferType("CPU", "CPU"), max(t.nbytes, 1), AddressSpace())
    t.data = t.buffer.base
    if t.nbytes:
        HostArrays().raw(t)[...] = array.reshape(shape)
    return t


def deviation(a: Any, b: Any, type: str = "f32") -> Deviation:
    return measure(tensor(a, type), tensor(b, type))


def test_the_error_is_the_squared_error_by_the_squares_of_the_first() -> None:
    found = deviation([[3.0, 4.0], [0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]])
    assert found.nmse == pytest.approx(1 / 25)
    assert (found.largest_error, found.at, found.values) == (1.0, (1, 1, 0, 0), (0.0, 1.0))
    assert found.within(0.05)
    assert not found.within(0.03)


def test_equal_values_have_no_error_zeros_too() -> None:
    for values in ([1.0, 2.0], [0.0, 0.0], [], [NAN, INF, -INF]):
        found = deviation(values, values)
        assert (found.nmse, found.at, found.misplaced) == (0.0, None, 0)
        assert found.within(0.0)


def test_an_error_against_zeros_is_over_any_tolerance() -> None:
    assert deviation([0.0, 0.0], [0.0, 1e-30]).nmse == INF


@pytest.mark.parametrize(("a", "b"), [(NAN, 1.0), (1.0, NAN), (INF, -INF), (NAN, INF), (INF, 3e38)])
def test_what_is_not_finite_must_be_alike(a: float, b: float) -> None:
    found = deviation([1.0, a], [1.0, b])
    assert (found.misplaced, found.at) == (1, (1, 0, 0, 0))
    assert not found.within(1e30)


def test_integers_must_be_equal_also_where_a_double_cannot_tell_them_apart() -> None:
    assert deviation([5, 2**60], [5, 2**60], "i64").within(0.0, exact=True)
    found = deviation([5, 2**60], [5, 2**60 + 1], "i64")
    assert (found.largest_error, found.at) == (1.0, (1, 0, 0, 0))
    assert not found.within(1e9, exact=True)
    assert is_exact(tensor([5], "i64"))


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(2, 3, 5, 7)).astype(np.float32)
    b = a.copy()
    b[1, 2, 3, 4] += 1
    b[0, 0, 0, 0] += 0.5
    b[1, 0, 0, 1] = NAN
    whole = deviation(a, b)
    monkeypatch.setattr(module, "_BLOCK", 8)
    parts = deviation(a, b)
    assert parts.at == whole.at == (1, 0, 0, 1)
    assert (parts.largest_error, parts.misplaced, parts.not_finite) == (whole.largest_error, 1, (0, 1))
    assert parts.nmse == pytest.approx(whole.nmse)


@pytest.mark.parametrize(
    ("op", "types", "allowed"),
    [
        (Op.MUL_MAT, ("f32", "f32"), ROUNDED),
        (Op.MUL, ("f32", "f32"), EXACT),
        (Op.SOFT_MAX, ("f32",), 1e-6),
        (Op.MUL_MAT, ("f16", "f32"), ROUNDED),
        (Op.MUL_MAT, ("q8_0", "f32"), ROUNDED),
        (Op.ADD, ("bf16", "f32"), ROUNDED),
        (Op.GET_ROWS, ("q8_0", "i32"), EXACT),
        (Op.CPY, ("f16", "f32"), EXACT),
        (Op.VIEW, ("f16",), EXACT),
    ],
)
def test_a_tolerance_is_that_of_ggmls_own_tests_for_the_op_and_its_types(
    op: Op, types: tuple[str, ...], allowed: float
) -> None:
    node = Tensor(TYPES["f32"], (32, 1, 1, 1), op=op, src=[Tensor(TYPES[t], (32, 1, 1, 1)) for t in types])
    assert tolerance_of(node) == allowed


@pytest.mark.parametrize(
    ("op", "function", "allowed"),
    [
        (Op.UNARY, UnaryOp.GELU, ROUNDED),
        (Op.UNARY, UnaryOp.GELU_ERF, EXACT),
        (Op.GLU, GluOp.GEGLU_QUICK, ROUNDED),
        (Op.GLU, GluOp.SWIGLU, EXACT),
    ],
)
def test_functions_from_a_table_of_halves_may_be_further_off(op: Op, function: int, allowed: float) -> None:
    node = Tensor(TYPES["f32"], (32, 1, 1, 1), op=op, op_params=(int(function),))
    node.src = [Tensor(TYPES["f32"], (32, 1, 1, 1))]
    assert tolerance_of(node) == allowed
