"""What the CPU device runs, op by op (FACTS 2a)."""

from __future__ import annotations

import pytest

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES, profile_of_name
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder

CONDITIONAL = {
    Op.CPY, Op.SET_ROWS, Op.MUL_MAT, Op.SOFT_MAX_BACK, Op.IM2COL_BACK, Op.GET_ROWS_BACK, Op.OUT_PROD, Op.CONV_2D,
    Op.SSM_SCAN,
}  # fmt: skip
ALL = sorted(TYPES)


def make() -> Device:
    profile = PROFILES["CPU"]
    return make_device(profile, "CPU", make_buft(profile, "CPU", "CPU"))


def leaf(type: str, *ne: int) -> Tensor:
    return Builder().leaf("x", *(ne or (256, 4)), type=type)


def runs(op: Op, *src: Tensor, type: str = "f32", params: tuple[int, ...] = ()) -> bool:
    return make().supports_op(Builder().node("n", op, *src, type=type, params=params))


@pytest.mark.parametrize("op", [op for op in Op if op not in CONDITIONAL])
def test_an_op_without_a_condition_runs_whatever_its_types(op: Op) -> None:
    assert runs(op, leaf("tq1_0"), leaf("i16"), type="q4_K")


@pytest.mark.parametrize("op", [Op.CPY, Op.SET_ROWS])
@pytest.mark.parametrize("type", ALL)
def test_it_writes_every_type_but_those_whose_quantization_needs_a_search(op: Op, type: str) -> None:
    refused = {"iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m"}
    assert runs(op, leaf("f32"), leaf("i64"), type=type) == (type not in refused)


@pytest.mark.parametrize("type", ALL)
def test_it_multiplies_every_type_by_f32_and_by_the_type_it_would_convert_to(type: str) -> None:
    assert runs(Op.MUL_MAT, leaf(type), leaf("f32"))
    partners = {b for b in ALL if runs(Op.MUL_MAT, leaf(type), leaf(b))}
    assert partners == {"f32", TYPES[type].vec_dot_type or "f32"}


def test_products_with_chosen_matrices_run_always() -> None:
    assert runs(Op.MUL_MAT_ID, leaf("q4_0"), leaf("f16"))


@pytest.mark.parametrize(("bias", "yes"), [(0.0, True), (-0.0, True), (8.0, False)])
def test_the_gradient_of_soft_max_runs_without_alibi_only(bias: float, yes: bool) -> None:
    params = (float_bits(1.0), float_bits(bias))
    assert runs(Op.SOFT_MAX_BACK, leaf("f32"), leaf("f32"), params=params) == yes
    assert not runs(Op.SOFT_MAX_BACK, leaf("f32"), leaf("f16"), params=params)
    assert not runs(Op.SOFT_MAX_BACK, leaf("f16"), leaf("f32"), params=params)


@pytest.mark.parametrize("a", ["f32", "f16", "bf16", "q8_0"])
def test_gradients_of_rows_and_im2col_are_for_f32_and_f16(a: str) -> None:
    assert runs(Op.GET_ROWS_BACK, leaf(a), leaf("i32")) == (a in ("f32", "f16"))
    assert runs(Op.IM2COL_BACK, leaf("f32"), leaf(a)) == (a in ("f32", "f16"))
    assert not runs(Op.IM2COL_BACK, leaf("f16"), leaf(a))


def test_an_outer_product_of_half_or_quantized_rows_needs_equal_batches() -> None:
    assert runs(Op.OUT_PROD, leaf("f32", 8, 4), leaf("f32", 8, 4, 3))
    for type in ("f16", "q8_0"):
        assert runs(Op.OUT_PROD, leaf(type, 32, 4, 3), leaf("f32", 8, 4, 3))
        assert not runs(Op.OUT_PROD, leaf(type, 32, 4), leaf("f32", 8, 4, 3))
    assert not runs(Op.OUT_PROD, leaf("bf16", 8, 4), leaf("f32", 8, 4))
    assert not runs(Op.OUT_PROD, leaf("f32", 8, 4), leaf("f16", 8, 4))
    assert not runs(Op.OUT_PROD, leaf("f32", 8, 4), leaf("f32", 8, 4), type="f16")


def test_a_direct_convolution_needs_a_contiguous_kernel() -> None:
    kernel = leaf("f16", 3, 3, 2, 2)
    assert runs(Op.CONV_2D, kernel, leaf("f32"))
    kernel.set_layout(kernel.ne, (2, 8, 24, 48))
    assert not runs(Op.CONV_2D, kernel, leaf("f32"))


@pytest.mark.parametrize(("k", "a0", "yes"), [(1, 16, True), (4, 1, True), (4, 16, False), (0, 16, False)])
def test_a_state_space_scan_needs_one_step_or_a_scalar_decay(k: int, a0: int, yes: bool) -> None:
    src = [leaf("f32"), leaf("f32"), leaf("f32"), leaf("f32", a0, 4)]
    assert runs(Op.SSM_SCAN, *src, params=(k,)) == yes


def test_its_memory_is_host_memory_aligned_to_32_bytes() -> None:
    cpu = make()
    assert (cpu.type, cpu.buft.alignment, cpu.buft.host, cpu.any_host) == ("cpu", 32, True, True)
    assert cpu.offload_min_batch is None


def test_profiles_are_found_by_backend_name() -> None:
    assert [profile_of_name(n) for n in ("CPU", "BLAS", "CUDA0", "CUDA12", "CUDA", "CPU0", "GPU", "cuda0")] == [
        "CPU", "BLAS", "CUDA", "CUDA", "CUDA", "custom", "custom", "custom",
    ]  # fmt: skip
    further = ("Metal", "MTL0", "Vulkan1", "SYCL0", "RPC0", "RPC1[h:50052]", "OpenCL", "CANN0")
    assert [profile_of_name(n) for n in further] == [
        "Metal", "Metal", "Vulkan", "SYCL", "RPC", "RPC", "OpenCL", "CANN",
    ]  # fmt: skip
