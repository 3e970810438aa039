"""Recorded devices and the past of a scheduler, as scenarios have them."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.devices.recorded import Heard, RecordedDevice
from ggmltool.scenario.dump import dump

CONTEXTS = {
    "w": {"buft": "NPU0", "usage": "weights", "tensors": {"w": "q4_0[32, 8]"}},
    "i": {"tensors": {"x": "f32[32, 2]"}},
}
GRAPHS = {"main": {"nodes": {"y": "mul_mat(w, x)", "z": "silu(y)"}}}
PRODUCT = "mul_mat(q4_0[32, 8] in NPU0 weights, f32[32, 2]) -> f32[8, 2]"


def source(device: dict[str, Any], **more: Any) -> dict[str, Any]:
    npu = {"name": "NPU0", "profile": "recorded", **device}
    return {"ggmltool": 1, "backends": [npu, "CPU"], "contexts": CONTEXTS, "graphs": GRAPHS, **more}


def device_of(answers: dict[str, Any], **more: Any) -> tuple[RecordedDevice, list[Any]]:
    run = ggmltool.load(source({"answers": answers, **more})).start()
    nodes = run.build("main").nodes
    device = run.backends[0].device
    assert isinstance(device, RecordedDevice)
    return device, nodes


def test_an_answer_is_that_of_the_question() -> None:
    device, (y, z) = device_of({"ops": {PRODUCT: "supports, offloads", "silu(f32[8, 2]) -> f32[8, 2]": "refuses"}})
    assert device.supports_op(y)
    assert device.offload_op(y)
    assert not device.supports_op(z)
    assert device.why_not(z) == "the device said no when it was asked in the process"
    assert device.basis(y).basis is Heard.ASKED


@pytest.mark.parametrize(
    ("asked", "heard", "supported"),
    [
        ({"silu(f32[8, 2] in CPU) -> f32[8, 2]": "supports"}, Heard.SHAPES, True),
        ({"silu(f32[8, 3]) -> f32[8, 3]": "supports", "silu(f32[99]) -> f32[99]": "refuses"}, Heard.TYPES, True),
        ({"silu(f16[8, 2]) -> f16[8, 2]": "supports"}, Heard.OP, True),
        ({"silu(f16[8, 2]) -> f16[8, 2]": "refuses"}, Heard.OP, False),
        ({"relu(f32[8, 2]) -> f32[8, 2]": "supports"}, Heard.NEVER, False),
    ],
)
def test_what_was_not_asked_has_the_nearest_answer(asked: dict[str, str], heard: Heard, supported: bool) -> None:
    device, (_, z) = device_of({"ops": asked})
    assert device.basis(z).basis is heard
    assert device.supports_op(z) is supported
    assert (device.why_not(z) is None) is supported


def test_what_was_not_asked_is_answered_by_the_profile_that_it_is_like() -> None:
    device, (_, z) = device_of({"ops": {"silu(f32[8, 3]) -> f32[8, 3]": "refuses"}}, like="Vulkan")
    assert device.basis(z).basis is Heard.LIKE
    assert device.supports_op(z)
    assert device.graph_optimize is not None


def test_sizes_are_those_that_were_said() -> None:
    sizes = {"NPU0": {"f32[32, 2]": 1024, "mul_mat(q4_0[32, 8], f32[32, 2]) -> f32[8, 2]": 640}}
    run = ggmltool.load(source({"answers": {"ops": {PRODUCT: "supports"}, "sizes": sizes}})).start()
    plan = run.reserve("main")
    assert dict(plan.buffer_sizes)["NPU0"] == 1024 + 640


def test_a_recorded_device_uses_the_buffer_types_that_are_listed() -> None:
    device, _ = device_of({"ops": {}}, supports_bufts=["NPU0"], like="CPU", type="gpu")
    assert [b.name for b in device.bufts] == ["NPU0"]
    assert not device.any_host


def test_what_is_written_is_read() -> None:
    answers = {
        "ops": {PRODUCT: "supports, offloads", "silu(f32[8, 2]) -> f32[8, 2]": "refuses"},
        "sizes": {"NPU0": {"f32[32, 2]": 1024}},
    }
    told = source({"answers": answers, "like": "CUDA", "copies_async": False, "sets_async": True})
    model = ggmltool.load(told).model
    written = dump(model)
    assert written["backends"][0]["answers"] == answers
    assert ggmltool.load(written).model == model


def ordered(nodes: dict[str, str], device: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Nodes of one source each on the device, in the plan's order, and where they lie."""
    words = {id: text.split() for id, text in nodes.items()}
    made = {id: {"op": op, "src": [src], "backend": "NPU0"} for id, (op, src) in words.items()}
    told = source(device) | {"contexts": {"i": {"tensors": {"x": "f32[32]"}}}, "graphs": {"main": {"nodes": made}}}
    loaded = ggmltool.load(dump(ggmltool.load(told).model))
    return [(node.id, node.offset) for node in loaded.plan("main").nodes]


@pytest.mark.parametrize(
    ("nodes", "more", "order"),
    [(["z", "u", "y"], {}, "zuy"), (["z", "u", "y"], {"graph_optimize": False}, "yzu"), (["z", "u"], {}, "yzu")],
)
def test_a_device_leaves_a_split_in_the_order_that_it_had(nodes: list[str], more: dict[str, Any], order: str) -> None:
    found = ordered({"y": "silu x", "z": "neg x", "u": "sqr x"}, {"answers": {"orders": [{"nodes": nodes}]}, **more})
    assert "".join(id for id, _ in found) == order


def test_what_a_device_keeps_has_its_memory_until_then() -> None:
    chain = {"a": "silu x", "b": "neg a", "c": "sqr b", "d": "sqr c"}
    assert [at for _, at in ordered(chain, {})] == [0, 0, 0, 0]
    kept = {"orders": [{"nodes": list(chain), "kept": {"c": ["a", "NPU0#nothing#0"]}}]}
    assert [at for _, at in ordered(chain, {"answers": kept})] == [0, 128, 128, 128]


def test_what_leads_out_of_a_buffer_is_refused_as_by_ggml() -> None:
    place = [1, 0, 1 << 40, 256]
    past = {"nodes": [[place]], "leafs": [place], "buffers": {"CPU": [64]}, "node_ids": [["CPU", 1]]}
    past["leaf_ids"] = [["CPU", 1]]
    told = {**source({}, scheduler={"past": past}), "contexts": {"i": {"tensors": {"x": "f32[8]"}}}}
    told |= {"graphs": {"main": {"nodes": {"y": "silu(x)"}}}, "steps": ["alloc main"]}
    loaded = ggmltool.load(told)
    (plan,) = loaded.start().run(loaded.model.steps)
    assert plan.ok or dict(plan.error or ())["condition"]
