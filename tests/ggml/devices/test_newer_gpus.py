"""Metal, SYCL, OpenCL and CANN of ggml 0.21 and 0.26: what they say otherwise than before, and what it takes."""

from __future__ import annotations

import pytest

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder


def device(profile: str, release: str, *features: str) -> Device:
    of = profiles_of(RELEASES[release])[profile].but(has=frozenset(features) if features else None)
    return make_device(of, "D", make_buft(of, "D", "D"))


def attention(
    b: Builder, keys: int, values: int, queries: int = 32, kv: str = "f16", groups: int = 2, n_kv_max: int = 0
) -> Tensor:
    """256 keys of two heads, `groups` queries for each, and a mask."""
    q = b.leaf("q", keys, queries, 2 * groups)
    k, v = b.leaf("k", keys, 256, 2, type=kv), b.leaf("v", values, 256, 2, type=kv)
    mask = b.leaf("mask", 256, queries, type="f16")
    params = (0, 0, 0, 0, n_kv_max)
    return b.node("n", Op.FLASH_ATTN_EXT, q, k, v, mask, ne=(values, 2 * groups, queries), params=params)


def product(b: Builder, weights: str, by: str, columns: int, rows: int = 512, **of: int) -> Tensor:
    w, x = b.leaf("w", 512, rows, type=weights), b.leaf("x", 512, columns, type=by)
    return b.node("n", Op.MUL_MAT, w, x, ne=(rows, columns), type="f32", params=(0, of.get("hint", 0)))


@pytest.mark.parametrize("release", ["0.21", "0.26"])
def test_metal_always_leaves_room_for_f16_copies_of_k_and_v(release: str) -> None:
    b = Builder()
    n = attention(b, 128, 128)
    before = device("Metal", "0.20.2").buft.get_alloc_size(n)
    assert device("Metal", release).buft.get_alloc_size(n) == before + 2 * (2 * 128 * 256 * 2)
    k = n.src[1]
    assert k is not None
    shared = b.view("shared", k, 96, 256, 2)
    one_copy = b.node("m", Op.FLASH_ATTN_EXT, *n.src[:2], shared, n.src[3], ne=n.ne, params=n.op_params)
    assert device("Metal", release).buft.get_alloc_size(one_copy) == (
        device("Metal", "0.20.2").buft.get_alloc_size(one_copy) + 2 * 128 * 256 * 2
    )


def test_metal_takes_larger_keys_than_values_where_it_has_a_kernel() -> None:
    metal = device("Metal", "0.26")
    assert metal.supports_op(attention(Builder(), 192, 128))
    n = attention(Builder(), 256, 128)
    assert device("Metal", "0.21").supports_op(n)
    assert metal.why_not(n) == "no kernel for heads of 256 in K and 128 in V"


def test_metal_multiplies_by_f16_what_has_a_kernel_for_it() -> None:
    metal = device("Metal", "0.26")
    assert metal.supports_op(product(Builder(), "q4_0", "f16", 9))
    assert metal.supports_op(product(Builder(), "f16", "f16", 1))
    few = product(Builder(), "q4_0", "f16", 8)
    assert device("Metal", "0.21").supports_op(few)
    assert metal.why_not(few) == "ne[1] of source 1 is 8, less than 9, and source 1 is f16"
    assert metal.why_not(product(Builder(), "bf16", "f16", 9)) == "source 0 is bf16, and source 1 is f16"
    assert metal.why_not(product(Builder(), "tq1_0", "f32", 9)) == "source 0 is tq1_0, for which it has no kernel"
    hadamard = product(Builder(), "f32", "f16", 1, hint=1)
    assert metal.supports_op(hadamard)
    old = device("Metal", "0.26", "bfloat", "simdgroup_reduction")
    assert old.supports_op(hadamard)
    assert old.why_not(product(Builder(), "q4_0", "f16", 9)) == (
        "this GPU has no matrices of a simdgroup, which MUL_MAT of q4_0 by f16 needs"
    )


def test_metal_keeps_what_scales_a_product_by_expert_behind_it() -> None:
    b = Builder()
    n = b.node("n", Op.MUL_MAT_ID, b.leaf("w", 64, 64, 4), b.leaf("x", 64, 2, 3), b.leaf("ids", 2, 3, type="i32"))
    assert device("Metal", "0.26").buft.get_alloc_size(n) == device("Metal", "0.21").buft.get_alloc_size(n) + 1032


def test_sycl_asks_for_the_scratch_memory_of_attention() -> None:
    n = attention(Builder(), 128, 128, kv="q8_0")
    copies = 2 * 128 * 256 * 2
    assert device("SYCL", "0.21").buft.get_alloc_size(n) == n.nbytes
    assert device("SYCL", "0.26").buft.get_alloc_size(n) == n.nbytes + 2 * copies
    # oneDNN takes Q and its result as f16, too, and the scale.
    with_onednn = n.nbytes + 2 * copies + 2 * (2 * 128 * 32 * 4) + 128
    assert device("SYCL", "0.26", "onednn").buft.get_alloc_size(n) == with_onednn


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_sycl_has_kernels_for_every_two_types_of_k_and_v(release: str) -> None:
    b = Builder()
    k, v = b.leaf("k", 128, 256, 2, type="q5_0"), b.leaf("v", 128, 256, 2, type="q4_1")
    n = b.node("n", Op.FLASH_ATTN_EXT, b.leaf("q", 128, 1, 2), k, v, ne=(128, 2), params=(0, 0, 0))
    assert device("SYCL", release).supports_op(n)


def test_metal_and_sycl_connect_without_a_combination() -> None:
    b = Builder()
    x, hyper, weights = b.leaf("x", 8, 2), b.leaf("h", 8, 4, 2), b.leaf("w", 4, 2)
    n = b.node("n", Op.DSV4_HC_POST, x, hyper, weights, ne=(8, 4, 2))
    assert device("Metal", "0.26").supports_op(n)
    assert device("SYCL", "0.26").supports_op(n)


def test_opencl_multiplies_many_columns_where_it_has_a_kernel_for_that() -> None:
    opencl = device("OpenCL", "0.26")
    assert opencl.supports_op(product(Builder(), "q4_K", "f32", 512))
    assert opencl.supports_op(product(Builder(), "q4_K", "f32", 511, rows=96))
    n = product(Builder(), "q4_K", "f32", 512, rows=96)
    assert device("OpenCL", "0.21").supports_op(n)
    assert opencl.why_not(n) == "it has no kernel for 512 columns by q4_K of 512 x 96"
    assert opencl.why_not(product(Builder(), "mxfp4", "f32", 512)) == (
        "it has no kernel for 512 columns by mxfp4 of 512 x 512"
    )


def test_cann_rotates_from_the_first_column_on() -> None:
    b = Builder()
    n = b.node("n", Op.ROPE, b.leaf("x", 64, 2, 4), b.leaf("pos", 4, type="i32"), params=(0, 64, 0, *(0,) * 12, 16))
    assert device("CANN", "0.20.2").supports_op(n)
    for release in ("0.21", "0.26"):
        assert device("CANN", release).why_not(n) == "it rotates from the first column on only"


def test_an_rpc_device_has_events_and_takes_what_the_host_writes_without_a_wait() -> None:
    before, now = device("RPC", "0.21"), device("RPC", "0.26")
    assert (before.events, before.sets_async) == (False, False)
    assert (now.events, now.sets_async, now.copies_async) == (True, True, False)
