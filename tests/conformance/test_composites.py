"""Functions of ggml's that build several nodes: the same nodes, in the graph's order, and the same values."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import COMPOSITES
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.oracle import run
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.prototypes import constructors
from ggmltool.scenario.nodes.nodes import constructor_of
from tests.conformance.ops_case import nmse
from tests.conformance.releases import release_of

Shape = tuple[str, list[int]]

PLANE = {"s0": 2, "s1": 1, "p0": 1, "p1": 0, "d0": 1, "d1": 2}
SPACE = {"IC": 2, "s0": 1, "s1": 2, "s2": 1, "p0": 1, "p1": 0, "p2": 1, "d0": 2, "d1": 1, "d2": 1}

CASES: list[tuple[str, Shape, Shape | None, dict[str, int]]] = [
    *(("conv_1d", (t, [3, 4, 5]), ("f32", [20, 4, 2]), {"s0": 2, "p0": 1, "d0": 1}) for t in ("f32", "f16", "bf16")),
    ("conv_1d", ("f16", [3, 4, 5]), ("f32", [20, 4]), {"s0": 1, "p0": 0, "d0": 2}),
    ("conv_1d_ph", ("f16", [5, 4, 3]), ("f32", [20, 4]), {"s": 1, "d": 1}),
    ("conv_1d_dw", ("f16", [3, 1, 4]), ("f32", [20, 4]), {"s0": 1, "p0": 1, "d0": 1}),
    ("conv_1d_dw_ph", ("f16", [3, 1, 4]), ("f32", [20, 4]), {"s0": 1, "d0": 1}),
    ("conv_2d_sk_p0", ("f16", [2, 2, 3, 5]), ("f32", [8, 6, 3, 2]), {}),
    ("conv_2d_s1_ph", ("f16", [3, 3, 3, 5]), ("f32", [8, 6, 3, 2]), {}),
    *(("conv_2d_im2col", (t, [3, 2, 3, 5]), ("f32", [8, 6, 3, 2]), PLANE) for t in ("f32", "f16", "bf16")),
    *(("conv_2d_dw_im2col", (t, [3, 2, 1, 4]), ("f32", [8, 6, 4, 2]), PLANE) for t in ("f16", "bf16")),
    *(("conv_3d_im2col", (t, [3, 2, 2, 10]), ("f32", [8, 6, 5, 4]), SPACE) for t in ("f32", "f16", "bf16")),
    ("argsort_top_k", ("f32", [16, 3]), None, {"k": 4}),
]


def scenario(
    name: str, a: Shape, b: Shape | None, params: dict[str, int], long: bool = False, ggml: str = DEFAULT.name
) -> Any:
    tensors = {
        id: {"type": s[0], "ne": s[1], "flags": ["input"], "data": {"normal": {"seed": i}}}
        for i, (id, s) in enumerate((("a", a), ("b", b)))
        if s is not None
    }
    node: Any = {"op": name, "src": list(tensors), **params}
    if not long:
        node = f"{name}({', '.join([*tensors, *(f'{k}={v}' for k, v in params.items())])})"
    return ggmltool.load(
        {
            "ggmltool": 1,
            "ggml": ggml,
            "contexts": {"inputs": {"tensors": tensors}},
            "graphs": {"main": {"nodes": {"y": node, "z": {"op": "cont", "src": ["y"], "flags": ["output"]}}}},
            "steps": ["alloc main", "compute main", {"get": ["z"]}],
        }
    )


def bound(lib: Lib, function: str, result: Any, *arguments: Any) -> Any:
    called = getattr(lib.base, function)
    called.restype, called.argtypes = result, list(arguments)
    return called


def in_the_library(lib: Lib, name: str, a: Shape, b: Shape | None, params: dict[str, int]) -> list[tuple[Any, ...]]:
    """The nodes of the library's graph."""
    n_nodes = bound(lib, "ggml_graph_n_nodes", ctypes.c_int, ctypes.c_void_p)
    node_of = bound(lib, "ggml_graph_node", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    with lib.context() as ctx:
        sources = [lib.tensor(ctx, TYPES[s[0]], tuple(s[1] + [1] * (4 - len(s[1])))) for s in (a, b) if s is not None]
        graph = lib.graph(ctx, [lib.call(name.removesuffix("_im2col"), ctx, *sources, *params.values())])
        nodes = [lib.fields(node_of(graph, i)) for i in range(n_nodes(graph))]
    return [(Op(n["op"]).name, n["type"], n["ne"], n["nb"], n["op_params"]) for n in nodes]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_nodes_are_ggmls(case: Any, long: bool, lib: Lib) -> None:
    built = scenario(*case, long=long, ggml=release_of(lib).name).model.graphs["main"].nodes[:-1]
    ours = [(Op(n.op).name, n.type.name, n.ne, n.nb, (*n.op_params, *[0] * 16)[:16]) for n in built]
    assert ours == in_the_library(lib, *case)
    assert built[-1].id == "y"
    assert [n.id for n in built[:-1]] == [f"y.{i}" for i in range(1, len(built))]


@pytest.mark.parametrize("case", [case for case in CASES if case[1][0] != "bf16"], ids=str)
def test_the_values_are_ggmls(case: Any, release: str) -> None:
    loaded = scenario(*case, ggml=release)
    ours, theirs = loaded.compute()["z"], run(loaded.model).values[0]["z"]
    assert ours.shape == theirs.shape
    assert nmse(ours, theirs) < 1e-6


def test_every_function_of_ggmls_that_makes_nodes_has_a_name_here() -> None:
    of_no_op = {"dup_tensor", "view_tensor"}
    for name in set(constructors()) - of_no_op:
        constructor, inplace = constructor_of(name)
        assert inplace == (name.endswith("_inplace") and name != constructor.name)


def test_all_of_them_are_tried() -> None:
    assert {case[0] for case in CASES} == set(COMPOSITES)


def test_inner_nodes_take_ids_that_nobody_has() -> None:
    nodes = {"y": "argsort_top_k(x, k=2)", "y.1": "cont(y)", "z": "argsort_top_k(x, k=2)"}
    tensors = {"x": {"type": "f32", "ne": [8, 2], "data": np.arange(16).tolist()}}
    loaded = ggmltool.load(
        {"ggmltool": 1, "contexts": {"c": {"tensors": tensors}}, "graphs": {"main": {"nodes": nodes}}}
    )
    assert [n.id for n in loaded.model.graphs["main"].nodes] == ["y.2", "y", "y.1", "z.1", "z"]
    assert loaded.compute(outputs=["y.1"])["y.1"].reshape(2, 2).tolist() == [[7, 6], [7, 6]]


def test_too_many_places_are_ggmls_assertion() -> None:
    with pytest.raises(GgmlAssert, match="k") as caught:
        scenario("argsort_top_k", ("f32", [3]), None, {"k": 4})
    assert caught.value.function == "ggml_argsort_top_k"
