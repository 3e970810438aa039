"""Backends, buffer types and scheduler options."""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.ggml.op import Op, keys_of
from ggmltool.scenario.backends import read_backends
from ggmltool.scenario.load import load_model
from ggmltool.scenario.model import BackendSpec, BufferTypeSpec, SchedulerSpec
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
    return load_model({"ggmltool": 1, **parts})


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
