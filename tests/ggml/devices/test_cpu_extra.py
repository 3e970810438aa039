"""What the CPU runs of packed weights, by what the CPU has (FACTS 2a), and what they take."""

from __future__ import annotations

import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import extra_names, make_buft, make_device, make_extra_buft
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder

CPU = PROFILES["CPU"]
HOST = make_buft(CPU, "CPU", "CPU")
CUDA = make_buft(PROFILES["CUDA"], "CUDA0", "CUDA0")


def machine(*features: str) -> tuple[Device, dict[str, BufferType]]:
    cpu = CPU.but(has=frozenset(features))
    bufts = {n: make_extra_buft(cpu, e, n, "CPU") for n, e in extra_names(cpu, "CPU").items()}
    return make_device(cpu, "CPU", HOST, bufts.values()), bufts


def put(t: Tensor, buft: BufferType) -> Tensor:
    tensor_alloc(Buffer(buft, buft.get_alloc_size(t), AddressSpace()), t, 0)
    return t


def product(buft: BufferType, type: str = "q4_0", rows: int = 8, x: str = "f32", k: int = 256) -> Tensor:
    b = Builder()
    w = put(b.leaf("w", k, rows, type=type), buft)
    return b.node("n", Op.MUL_MAT, w, b.leaf("x", k, 2, type=x), ne=(rows, 2), type="f32")


AVX2 = {"q4_0": 8, "q4_K": 8, "iq4_nl": 8, "mxfp4": 8}
NEON = {"q4_0": 4, "q8_0": 4, "iq4_nl": 4, "mxfp4": 4, "q4_K": 8, "q5_K": 8, "q6_K": 8}
I8MM = {"q4_0": 4, "q8_0": 4, "q4_K": 8, "q5_K": 8, "q6_K": 8}
ALL = ("f16", "q4_0", "q4_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl", "iq4_xs", "mxfp4")


@pytest.mark.parametrize(
    ("features", "groups"),
    [
        (("avx2",), AVX2),
        (("avx2", "avx512"), {**AVX2, "q2_K": 8}),
        (("neon", "dotprod"), NEON),
        (("neon", "i8mm"), I8MM),
        (("sve256", "i8mm"), {"q4_0": 8}),
        (("neon",), {}),
        (("rvv256",), {"q4_0": 16, "q4_K": 16, "q2_K": 16, "iq4_nl": 16, "q8_0": 16}),
        ((), {}),
    ],
)
def test_packed_products_run_by_instruction_set_type_and_number_of_rows(
    features: tuple[str, ...], groups: dict[str, int]
) -> None:
    device, bufts = machine(*features)
    for type in ALL:
        for rows in (1, 4, 6, 8, 12, 16, 48):
            runs = device.supports_op(product(bufts["CPU_REPACK"], type, rows))
            assert runs == (type in groups and rows % groups[type] == 0), (type, rows)


def test_of_packed_weights_nothing_but_products_runs() -> None:
    device, bufts = machine("avx2")
    b = Builder()
    w = put(b.leaf("w", 256, 8, type="q4_0"), bufts["CPU_REPACK"])
    assert device.why_not(b.node("n", Op.GET_ROWS, w, b.leaf("i", 4, type="i32"))) == (
        "out of CPU_REPACK it runs MUL_MAT and MUL_MAT_ID, no GET_ROWS"
    )
    assert device.supports_op(b.view("v", w))
    assert device.why_not(b.node("n", Op.ADD, b.leaf("x", 256, 8), w)) is not None
    # The fifth source is not looked at.
    others = [b.leaf(f"x{i}", 8) for i in range(4)]
    assert device.supports_op(b.node("n", Op.RWKV_WKV6, *others, w))
    assert not device.supports_op(b.node("n", Op.RWKV_WKV6, *others[:3], w))


def test_the_other_operand_is_f32_and_on_the_host() -> None:
    device, bufts = machine("avx2")
    assert device.why_not(product(bufts["CPU_REPACK"], x="f16")) == "source 1 is f16, not f32"
    n = product(bufts["CPU_REPACK"])
    x = n.src[1]
    assert x is not None
    put(x, CUDA)
    assert device.why_not(n) == "source 1 lies in CUDA0, which is not host memory"


def test_experts_are_a_stack_of_matrices_and_weights_of_a_product_one() -> None:
    device, bufts = machine("avx2")
    b = Builder()
    stack = (256, 8, 4)
    for ne, op, runs in (((256, 8), Op.MUL_MAT_ID, False), (stack, Op.MUL_MAT_ID, True), (stack, Op.MUL_MAT, False)):
        w = put(b.leaf("w", *ne, type="q4_0"), bufts["CPU_REPACK"])
        assert device.supports_op(b.node("n", op, w, b.leaf("x", 256, 2), ne=(8, 2), type="f32")) == runs


@pytest.mark.parametrize(
    ("type", "k", "rows", "runs"),
    [
        ("q4_0", 32, 32, True), ("q4_0", 32, 16, False), ("q8_0", 64, 64, True), ("q4_K", 256, 32, True),
        ("iq4_xs", 256, 32, True), ("f16", 16, 32, True), ("f16", 24, 32, False), ("f32", 32, 32, False),
        ("q5_0", 32, 32, False),
    ],
)  # fmt: skip
def test_amx_multiplies_whole_tiles(type: str, k: int, rows: int, runs: bool) -> None:
    device, bufts = machine("avx2")
    assert device.supports_op(product(bufts["AMX"], type, rows, k=k)) == runs


def test_amx_packs_one_matrix_whatever_the_further_extents() -> None:
    _, bufts = machine()
    size = bufts["AMX"].get_alloc_size
    b = Builder()
    assert size(b.leaf("a", 64, 8, type="q4_0")) == 8 * 2 * 18
    assert size(b.leaf("a", 64, 8, type="q8_0")) == 8 * 2 * (34 + 4)
    assert size(b.leaf("a", 256, 8, 3, type="q4_K")) == 8 * (144 + 4)
    assert size(b.leaf("a", 256, 8, type="iq4_xs")) == 8 * (136 + 2)
    assert size(b.leaf("a", 256, 8, 3, type="f16")) == 256 * 8 * 3 * 2


def test_packed_memory_is_the_cpus_alone_and_not_the_hosts() -> None:
    device, bufts = machine("avx2")
    blas = make_device(PROFILES["BLAS"], "BLAS", HOST)
    assert {n: (b.host, device.supports_buft(b), blas.supports_buft(b)) for n, b in bufts.items()} == {
        "CPU_REPACK": (False, True, False),
        "AMX": (False, True, False),
        "CPU_Mapped": (True, True, True),
        "CPU_HBM": (True, True, True),
    }
    assert all(b.alignment == 32 for b in bufts.values())
