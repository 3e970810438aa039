"""Backends, buffer types and scheduler options."""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.ggml.op import Op, keys_of
from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.spec import BackendSpec, BufferTypeSpec, SchedulerSpec
from ggmltool.scenario.values import as_size


@pytest.mark.parametrize(
    ("name", "profile"),
    [("CPU", "CPU"), ("CUDA0", "CUDA"), ("CUDA17", "CUDA"), ("BLAS", "BLAS"), ("MyNPU", "custom"), ("CPU2", "custom")],
)
def test_a_name_tells_the_profile(name: str, profile: str) -> None:
    assert read_backends([name]) == [BackendSpec(name, profile)]


def test_a_map_overrides_what_it_names() -> None:
    (spec,) = read_backends(
        [
            {
                "name": "X",
                "profile": "custom",
                "type": "igpu",
                "alignment": 64,
                "max_size": "1.5GiB",
                "row_padding": 512,
                "host": True,
                "supports": {"except": ["rope", "unary"]},
                "supports_bufts": ["CPU"],
                "offload_min_batch": 32,
                "events": True,
                "memory": "24GB",
                "engine": "numpy",
            }
        ]
    )
    assert (spec.type, spec.alignment, spec.max_size, spec.memory) == ("igpu", 64, 3 << 29, 24 * 10**9)
    assert spec.supports is not None
    assert spec.supports.exclude
    assert spec.supports.keys == {int(Op.ROPE), *keys_of("unary")}
    assert (spec.offload_min_batch, spec.never_offloads, spec.events, spec.engine) == (32, False, True, "numpy")


@pytest.mark.parametrize("never", [None, "never"])
def test_a_batch_of_null_is_never(never: object) -> None:
    (spec,) = read_backends([{"name": "CUDA0", "offload_min_batch": never}])
    assert (spec.offload_min_batch, spec.never_offloads) == (None, True)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (5, 5), ("5", 5), ("1K", 1024), ("1KiB", 1024), ("1kB", 1000), ("2 GiB", 2 << 30), ("512MiB", 512 << 20),
        ("24GB", 24 * 10**9), ("0.5T", 1 << 39), ("7B", 7), ("1e3", None), ("GiB", None), ("-1", None), (-1, None),
        (True, None), ("9" * 50, None), (None, None),
    ],
)  # fmt: skip
def test_sizes(text: object, size: int | None) -> None:
    if size is None:
        with pytest.raises(Exception, match="the size must be"):
            as_size(text, "the size")
    else:
        assert as_size(text, "the size") == size


def load(**parts: Any) -> Any:
    return load_spec({"ggmltool": 1, **parts})


def test_the_cpu_alone_is_the_default() -> None:
    model = load()
    assert (model.backends, model.contexts, model.graphs, model.steps) == ([BackendSpec("CPU", "CPU")], [], {}, [])
    assert model.scheduler == SchedulerSpec(None, False, True)


def test_further_buffer_types_can_be_named_by_contexts_and_backends() -> None:
    model = load(
        backends=[{"name": "X", "supports_bufts": ["R"]}, "CPU"],
        buffer_types={"R": {"device": "CPU", "host": False, "ops": ["mul_mat", "mul_mat_id"]}},
        contexts={"c": {"buft": "R", "usage": "weights", "tensors": {"w": "f32[4]"}}},
    )
    ops = frozenset((int(Op.MUL_MAT), int(Op.MUL_MAT_ID)))
    assert model.buffer_types == [BufferTypeSpec("R", "CPU", 128, None, 0, False, ops)]
    assert (model.contexts[0].buft, model.contexts[0].usage) == ("R", "weights")


def test_blas_uses_the_cpus_buffers() -> None:
    assert load(backends=["BLAS", "CPU"], contexts={"c": {"buft": "CPU", "tensors": {}}}).contexts[0].buft == "CPU"


def test_scheduler_options() -> None:
    assert load(scheduler={"graph_size": 4096, "parallel": True, "op_offload": False}).scheduler == SchedulerSpec(
        4096, True, False
    )


def test_a_buffer_type_can_be_of_a_device_that_the_scheduler_was_not_given() -> None:
    """It has the memory of its kind, unless the file says otherwise."""
    written = {"CUDA3": {"device": "CUDA3"}, "MTL0": {"device": "MTL0", "alignment": 64}, "NPU": {"device": "NPU"}}
    model = load(backends=["CUDA0", "CPU"], buffer_types=written)
    assert model.buffer_types == [
        BufferTypeSpec("CUDA3", "CUDA3", 128, None, 512, False, None),
        BufferTypeSpec("MTL0", "MTL0", 64, None, 0, False, None),
        BufferTypeSpec("NPU", "NPU", 128, None, 0, False, None),
    ]


def test_a_context_names_the_buffer_types_that_its_devices_have() -> None:
    names = ("CPU_REPACK", "AMX", "CPU_Mapped", "CPU_HBM", "CUDA_Host", "MTL0_Private", "MTL0_Mapped", "Vulkan_Host")
    model = load(
        backends=["CUDA0", "MTL0", "Vulkan1", "CPU"],
        contexts={name: {"buft": name, "tensors": {f"t{i}": "f32[4]"}} for i, name in enumerate(names)},
    )
    assert model.buffer_types == []
    bufts = make_bufts(model)
    assert {name: bufts[name].device for name in names} == {
        "CPU_REPACK": "CPU", "AMX": "CPU", "CPU_Mapped": "CPU", "CPU_HBM": "CPU", "CUDA_Host": "CUDA0",
        "MTL0_Private": "MTL0", "MTL0_Mapped": "MTL0", "Vulkan_Host": "Vulkan1",
    }  # fmt: skip
    cuda, metal, vulkan, cpu = (b.device for b in make_backends(model, bufts))
    usable = {
        d.name: sorted(name for name in names if d.supports_buft(bufts[name])) for d in (cuda, metal, vulkan, cpu)
    }
    assert usable == {
        "CUDA0": [],
        "MTL0": ["MTL0_Mapped", "MTL0_Private"],
        "Vulkan1": [],
        "CPU": ["AMX", "CPU_HBM", "CPU_Mapped", "CPU_REPACK", "CUDA_Host", "Vulkan_Host"],
    }


def test_types_that_nobody_names_are_not_made_unless_asked_for() -> None:
    model = load(backends=["MTL0", "CPU"])
    assert list(make_bufts(model)) == ["MTL0", "CPU"]
    assert "CPU_REPACK" in make_bufts(model, all_known=True)


def test_a_type_that_the_scenario_defines_goes_before_a_known_one() -> None:
    model = load(
        buffer_types={"CPU_REPACK": {"device": "CPU", "alignment": 512}},
        contexts={"c": {"buft": "CPU_REPACK", "tensors": {"t": "f32[4]"}}},
    )
    buft = make_bufts(model)["CPU_REPACK"]
    assert (buft.alignment, buft.rule) == (512, None)


def test_pinned_memory_is_a_devices_where_the_scenario_says_so() -> None:
    model = load(backends=[{"name": "CUDA0", "supports_bufts": ["CUDA_Host"]}, "CPU"])
    bufts = make_bufts(model)
    assert make_backends(model, bufts)[0].device.supports_buft(bufts["CUDA_Host"])


def test_metal_without_unified_memory_has_private_memory_by_default() -> None:
    model = load(backends=[{"name": "MTL0", "buft": "MTL0_Private"}, "CPU"])
    device = make_backends(model, make_bufts(model))[0].device
    assert (device.buft.name, device.buft.alignment) == ("MTL0_Private", 32)


@pytest.mark.parametrize(
    ("buft", "hint"),
    [
        ("CPU_REPAK", 'did you mean "CPU_REPACK"?'),
        ("CUDA_Hots", 'did you mean "CUDA_Host"?'),
        ("nothing", "expected one of CUDA0, CPU"),
        ("MTL0_Private", "expected one of CUDA0, CPU"),
    ],
)
def test_a_type_that_no_device_has_is_answered_with_the_nearest(buft: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(backends=["CUDA0", "CPU"], contexts={"c": {"buft": buft, "tensors": {}}})
    assert caught.value.expected == hint


@pytest.mark.parametrize(
    "backend",
    [
        {"name": "CPU", "features": ["neon", "i8mm"]},
        {"name": "CPU", "features": []},
        {"name": "MTL0", "features": ["bfloat"], "graph_optimize": False},
        {"name": "Vulkan0", "max_tensor_size": 1 << 30, "graph_optimize": True},
    ],
)
def test_what_the_hardware_has_survives_writing_and_reading(backend: dict[str, Any]) -> None:
    backends = [backend] if backend["name"] == "CPU" else [backend, "CPU"]
    model = load(backends=backends)
    assert load_spec(dump(model)).backends == model.backends
    written = dump(model)["backends"][0]
    assert {key: written[key] for key in backend} == {**backend, **_sorted(backend)}


def _sorted(backend: dict[str, Any]) -> dict[str, Any]:
    return {"features": sorted(backend["features"])} if "features" in backend else {}
