"""The single rules of a placement: names, overrides, shares of GPUs, the order of leafs."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from ggmltool.ggml.op import Op
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import BackendSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place import weights
from ggmltool.sources.llama.place.leaf_order import LeafOrder
from ggmltool.sources.llama.place.options import (
    PlaceOptions,
    layer_devices,
    n_cpu_ffn,
    n_cpu_moe,
    overridden,
    parse_overrides,
    split_points,
)
from ggmltool.sources.llama.place.place import Placement, Placer


def gpus(*memory: int | None) -> list[BackendSpec]:
    return [BackendSpec(f"CUDA{i}", "CUDA", memory=m) for i, m in enumerate(memory)]


def test_the_examples_of_the_names() -> None:
    assert doctest.testmod(weights).failed == 0


@pytest.mark.parametrize(
    ("name", "kind", "il", "op"),
    [
        ("token_embd.weight", "input", -1, Op.GET_ROWS),
        ("token_embd_norm.weight", "repeating", 0, Op.MUL),
        ("output.weight", "output", -1, Op.MUL_MAT),
        ("output_norm.weight", "output", -1, Op.MUL),
        ("blk.7.attn_q.bias", "repeating", 7, Op.ADD),
        ("blk.7.ffn_up_exps.bias", "repeating", 7, Op.ADD_ID),
        ("blk.7.attn_sinks.weight", "repeating", 7, Op.SCALE),
        ("blk.7.ssm_a", "repeating", 7, Op.SSM_SCAN),
        ("enc.blk.2.attn_rel_b.weight", "repeating", 2, Op.GET_ROWS),
        ("dec.output_norm.weight", "output", -1, Op.MUL),
    ],
)
def test_a_name_tells_layer_and_op(name: str, kind: str, il: int, op: Op) -> None:
    weight = weights.weight_of(name)
    assert (weight.kind, weight.il, weights.tested_op(weight, None)) == (kind, il, op)


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (0, "C C C C C"),
        (1, "C C C C 0"),
        (3, "C C 0 0 1"),
        (5, "0 0 0 1 1"),
        (-1, "0 0 0 1 1"),
        (99, "0 0 0 1 1"),
    ],
)
def test_the_last_layers_go_to_the_gpus_in_their_order(n: int, expected: str) -> None:
    devices = layer_devices(4, gpus(1 << 30, 1 << 30), "CPU", PlaceOptions(n))
    assert " ".join(d[-1].replace("U", "C") for d in (*devices.layers, devices.output)) == expected


def test_shares_are_those_of_ts_else_of_the_memory_else_equal() -> None:
    assert split_points(gpus(1, 1), (3, 1)) == [0.75, 1]
    assert split_points(gpus(8, 24), ()) == [0.25, 1]
    assert split_points(gpus(8, None), ()) == [0.5, 1]
    assert split_points(gpus(8, 8, 8), (1,)) == [1, 1, 1]
    # As llama.cpp's floats have it, not as doubles would.
    assert split_points(gpus(1, 1, 1), (1, 1, 1))[0] == 0.3333333432674408


def test_the_first_override_that_is_found_counts() -> None:
    rules = [*parse_overrides("ffn_up=CUDA1,ffn=CPU"), *n_cpu_moe(2)]
    names = ["blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "blk.1.attn_q.weight"]
    assert {name: o.buft for name, o in overridden(names, rules).items()} == {names[0]: "CUDA1", names[1]: "CPU"}
    assert overridden(["blk.1.ffn_up_exps.weight", "blk.11.ffn_up_exps.weight"], n_cpu_moe(2)).keys() == {
        "blk.1.ffn_up_exps.weight"
    }
    assert overridden(["blk.3.x"], parse_overrides("blk\\.[[:digit:]]\\.=CPU"))
    assert overridden(["a[b"], parse_overrides("[[a]=CPU"))


@pytest.mark.parametrize("text", ["", "a", "=CPU", "a=", "a=CPU,", "[=CPU", "a++=CPU", r"a\Z=CPU"])
def test_what_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(PlaceError):
        parse_overrides(text)


def test_the_calls_that_built_a_graph_are_found_again() -> None:
    """The product of a weight and the last node: ggml meets the weight before everything that the node needs."""
    src = {"a": ["w", "x"], "k": ["a", "cache"], "b": ["v", "a"], "y": ["w", "b"]}
    order = LeafOrder(src, ["a", "k", "b", "y"], ["w", "x", "unused", "cache", "v"])
    assert order.roots == ["a", "unused", "k", "y"]
    assert order.of({}) == ["w", "x", "unused", "cache", "v"]
    assert order.of({"y": ["w2", "b"]}) == ["w", "x", "unused", "cache", "w2", "v"]


def placed(tensors: dict[str, object], nodes: dict[str, object], **more: object) -> Placement:
    """A placement of weights of a scenario on one GPU, all layers."""
    scenario = {
        "ggmltool": 1,
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": tensors},
            "inputs": {"tensors": {"x": {"type": "f32", "ne": [64, 8], "flags": ["input"]}}},
        },
        "graphs": {"main": {"nodes": nodes}},
        **more,
    }
    return Placer(load_spec(scenario), gpus(1 << 30)).place(PlaceOptions())


def test_a_model_with_more_layers_than_anybody_has_is_refused() -> None:
    with pytest.raises(PlaceError, match="it would have 999999999 layers; the limit is 10000"):
        placed({"blk.999999998.w": "f32[64, 64]"}, {"y": "mul_mat(blk.999999998.w, x)"})
    with pytest.raises(PlaceError, match="layers"):
        placed({"w": "f32[64, 64]"}, {"y": "mul_mat(w, x)"}, meta={"n_layer": 1 << 40})


def test_numbers_of_any_length_in_names_are_names() -> None:
    digits = "9" * 900
    placement = placed({f"blk.{digits}.w": "f32[64, 64]"}, {f"norm-{digits}": f"mul_mat(blk.{digits}.w, x)"})
    assert [t.layer for t in placement.tensors] == ["0"]


@pytest.mark.parametrize(
    ("mode", "rows", "buft"),
    [("auto", 1 << 20, "CPU"), ("auto", 1 << 19, "CUDA0"), ("on", 64, "CPU"), ("off", 1 << 20, "CUDA0")],
)
def test_per_layer_embeddings_are_read_as_they_are_needed(mode: Any, rows: int, buft: str) -> None:
    """Above 4 GiB, or as -lzm says; they stay in the file's pages even where -ot says otherwise."""
    name = "per_layer_token_embd.weight"
    nodes = {"y": {"op": "get_rows", "src": [name, "ids"]}}
    scenario = {
        "ggmltool": 1,
        "ggml": "0.26",
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": {name: {"type": "f32", "ne": [2048, rows]}}},
            "inputs": {"tensors": {"ids": {"type": "i32", "ne": [8], "flags": ["input"]}}},
        },
        "graphs": {"main": {"nodes": nodes}},
    }
    options = PlaceOptions(overrides=tuple(parse_overrides("per_layer=CUDA0")), lazy_mode=mode)
    (tensor,) = Placer(load_spec(scenario), gpus(64 << 30)).place(options).tensors
    assert tensor.buft == buft
    (tensor,) = Placer(load_spec({**scenario, "ggml": "0.20.2"}), gpus(64 << 30)).place(options).tensors
    assert tensor.buft == "CUDA0"


def test_the_dense_feed_forward_weights_of_the_first_layers_can_stay_on_the_cpu() -> None:
    names = [f"blk.{i}.ffn_{part}.weight" for i in (1, 2, 11) for part in ("up", "down_exps", "norm")]
    assert list(overridden(names, n_cpu_ffn(2))) == ["blk.1.ffn_up.weight"]
    assert [o.option for o in n_cpu_ffn(2)] == ["--n-cpu-ffn 2"]
    assert n_cpu_ffn(0) == []


def test_two_weights_of_one_name_stay_two() -> None:
    tensors = {"a": {"type": "f32", "ne": [64, 64], "name": "w"}, "b": {"type": "f32", "ne": [64, 32], "name": "w"}}
    placement = placed(dict(tensors), {"y": "mul_mat(a, x)", "z": "mul_mat(b, y)"})
    assert [t.id for t in placement.tensors] == ["a", "b"]


def test_a_view_of_a_weight_goes_where_the_weight_goes() -> None:
    tensors = {
        "blk.0.w": {"type": "f32", "ne": [64, 64]},
        "part": {"type": "f32", "ne": [64, 32], "view_src": "blk.0.w", "view_offs": 0},
    }
    (context, _) = placed(dict(tensors), {"y": "mul_mat(part, x)"}).model.contexts
    assert [t.id for t in context.tensors] == ["blk.0.w", "part"]


def test_a_tied_weight_lies_twice_where_its_layers_are_apart() -> None:
    tensors = {"token_embd.weight": "f32[64, 100]", "output_norm.weight": "f32[64]"}
    nodes = {
        "embd": {"op": "get_rows", "src": ["token_embd.weight", "ids"]},
        "h": "mul(embd, output_norm.weight)",
        "result_output": "mul_mat(token_embd.weight, h)",
    }
    scenario = {
        "ggmltool": 1,
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": tensors},
            "inputs": {"tensors": {"ids": {"type": "i32", "ne": [8], "flags": ["input"]}}},
        },
        "graphs": {"main": {"nodes": nodes}},
    }
    placer = Placer(load_spec(scenario), gpus(1 << 30))
    model = placer.place(PlaceOptions()).model
    assert {c.name: [t.id for t in c.tensors] for c in model.contexts if c.buft} == {
        "w_CPU": ["token_embd.weight"],
        "w_CUDA0": ["token_embd.weight~CUDA0", "output_norm.weight"],
    }
    assert model.graphs["main"].nodes[-1].src == ("token_embd.weight~CUDA0", "h")
    again = Placer(model, gpus(1 << 30))
    assert [w.id for w in again.parts.weights] == ["token_embd.weight", "output_norm.weight"]
    back = again.place(PlaceOptions(0)).model
    assert [(c.name, [t.id for t in c.tensors]) for c in back.contexts if c.buft] == [("w_CPU", list(tensors))]
    assert back.graphs["main"].nodes[-1].src == ("token_embd.weight", "h")


def test_a_view_of_what_lies_elsewhere_is_no_model_s() -> None:
    """Found by mutation: a view in the cache, of an input."""
    contexts = {"in": {"tensors": {"a": "f32[4]"}}, "kv": {"buft": "CPU", "tensors": {"c": {"view_src": "a"}}}}
    graphs = {"main": {"nodes": {"y": "sqr(c)"}}}
    model = load_spec({"ggmltool": 1, "backends": ["CPU"], "contexts": contexts, "graphs": graphs})
    with pytest.raises(PlaceError, match="c is a view of a, which lies in another buffer"):
        Placer(model, []).place(PlaceOptions())


def test_assignments_to_backends_that_are_not_placed_on_are_left_out() -> None:
    """Found by mutation: an input that the scenario assigns to an accelerator."""
    x = {"type": "f32", "ne": [4], "backend": "ACC"}
    contexts = {"in": {"tensors": {"x": x}}, "w": {"buft": "CPU", "usage": "weights", "tensors": {"w": x}}}
    graphs = {"main": {"nodes": {"y": "add(x, w)"}}}
    backends = [{"name": "ACC", "type": "accel"}, "CPU"]
    model = load_spec({"ggmltool": 1, "backends": backends, "contexts": contexts, "graphs": graphs})
    placement = Placer(model, gpus(1 << 30)).place(PlaceOptions())
    assert {t.backend for t in placement.model.tensors()} == {None}
