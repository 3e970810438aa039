"""What the CUDA device runs and what its tensors take (FACTS 1c, 2b)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.cuda import Kernel, best_kernel
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import float_bits
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder

ALL = sorted(TYPES)
FLOATS = ("f32", "f16", "bf16")


def make(name: str = "CUDA0") -> Device:
    profile = PROFILES["CUDA"]
    return make_device(profile, name, make_buft(profile, name, name))


CUDA = make()


def leaf(type: str = "f32", *ne: int) -> Tensor:
    return Builder().leaf("x", *(ne or (256, 4)), type=type)


def gaps(t: Tensor) -> Tensor:
    """The same tensor with a gap behind each row."""
    nb1 = t.nb[1] + t.type.type_size
    t.set_layout(t.ne, (t.nb[0], nb1, nb1 * t.ne[1], nb1 * t.ne[1] * t.ne[2]))
    return t


def transposed(t: Tensor) -> Tensor:
    t.set_layout((t.ne[1], t.ne[0], t.ne[2], t.ne[3]), (t.nb[1], t.nb[0], t.nb[2], t.nb[3]))
    return t


def runs(
    op: Op, *src: Tensor | None, type: str = "f32", params: tuple[int, ...] = (), ne: tuple[int, ...] | None = None
) -> bool:
    return CUDA.supports_op(Builder().node("n", op, *src, type=type, params=params, ne=ne))


def test_products_want_rows_whose_elements_touch() -> None:
    assert runs(Op.MUL_MAT, gaps(leaf()), gaps(leaf()))
    assert not runs(Op.MUL_MAT, transposed(leaf()), leaf())
    assert not runs(Op.MUL_MAT, leaf(), transposed(leaf()))


def test_a_cast_is_judged_by_its_own_type() -> None:
    n = Builder().node("n", Op.CPY, leaf("q4_K"), type="f32")
    n.src.append(n)
    assert not CUDA.supports_op(n)
    n.src[0] = leaf("q4_0")
    assert CUDA.supports_op(n)


def test_the_gradient_of_repeat_is_f32_with_at_most_32768_matrices() -> None:
    assert runs(Op.REPEAT_BACK, leaf("f32", 1, 1, 256, 128))
    assert not runs(Op.REPEAT_BACK, leaf("f32", 1, 1, 257, 128))
    assert not runs(Op.REPEAT_BACK, leaf(), type="f16")


def test_quantized_tensors_with_gaps_between_batches_are_joined_in_the_first_three_dimensions() -> None:
    odd = leaf("q8_0", 32, 2, 2, 2)
    odd.set_layout(odd.ne, (34, 34, 68, 1000))
    assert runs(Op.CONCAT, odd, leaf("q8_0", 32, 2, 2, 2), type="q8_0", params=(2,))
    assert not runs(Op.CONCAT, odd, leaf("q8_0", 32, 2, 2, 2), type="q8_0", params=(3,))


def test_a_state_space_scan_has_the_shapes_of_mamba_2_or_of_mamba() -> None:
    def scan(state: tuple[int, ...], decay: int, b: int = 1, k: int = 1) -> bool:
        src = [leaf("f32", *state), leaf(), leaf(), leaf("f32", decay, 4), leaf("f32", 16, b)]
        return runs(Op.SSM_SCAN, *src, params=(k,))

    assert scan((128, 16, 4), 1)
    assert scan((256, 32, 4), 1)
    assert not scan((64, 16, 4), 1)
    assert not scan((128, 8, 4), 1)
    assert scan((16, 1, 128), 16)
    assert not scan((16, 1, 64), 16)
    assert not scan((16, 1, 128), 16, b=2)
    assert not scan((16, 1, 128), 16, k=2)


@pytest.mark.parametrize("op", [Op.ROPE, Op.ROPE_BACK])
def test_rope_wants_elements_that_touch_and_no_gaps_between_batches(op: Op) -> None:
    odd = leaf("f32", 8, 4, 2, 2)
    odd.set_layout(odd.ne, (4, 64, 512, 1024))
    assert runs(op, odd)
    odd.set_layout(odd.ne, (4, 64, 512, 2048))
    assert not runs(op, odd)
    assert not runs(op, transposed(leaf()))


def test_a_source_in_another_cuda_devices_memory_refuses_every_op_even_a_view() -> None:
    b = Builder()
    here, there, host = b.leaf("here", 4), b.leaf("there", 4), b.leaf("host", 4)
    tensor_alloc(Buffer(CUDA.buft, 64, AddressSpace()), here, 0)
    tensor_alloc(Buffer(make("CUDA1").buft, 64, AddressSpace()), there, 0)
    tensor_alloc(Buffer(BufferType("CPU", "CPU", host=True), 64, AddressSpace()), host, 0)
    assert CUDA.supports_op(b.node("a", Op.ADD, here, host))
    assert not CUDA.supports_op(b.node("b", Op.ADD, here, there))
    assert not CUDA.supports_op(b.view("v", there))
    assert CUDA.supports_op(b.view("w", here))


def test_it_asks_for_ops_from_32_rows_on() -> None:
    b = Builder()
    assert CUDA.offload_op(b.node("n", Op.MUL_MAT, b.leaf("x", 4, 32)))
    assert not CUDA.offload_op(b.node("n", Op.MUL_MAT, b.leaf("x", 4, 31, 9)))
    assert not CUDA.offload_op(b.node("n", Op.GET_ROWS, b.leaf("x", 4, 1000)))


@given(st.sampled_from(ALL), st.integers(1, 5), st.integers(1, 3))
def test_quantized_rows_are_padded_to_512_elements(type: str, blocks: int, rows: int) -> None:
    t = leaf(type, blocks * TYPES[type].block_size, rows)
    rest = t.ne[0] % 512
    extra = t.type.row_size(512 - rest) if t.type.quantized and rest else 0
    assert CUDA.buft.get_alloc_size(t) == t.nbytes + extra


def attention(
    head: int = 128,
    q_rows: int = 1,
    k_rows: int = 256,
    gqa: int = 1,
    type: str = "f16",
    *,
    v_head: int | None = None,
    v_type: str | None = None,
    mask: bool = True,
    bias: float = 0.0,
    q_batch: int = 1,
) -> Tensor:
    b = Builder()
    q = b.leaf("q", head, q_rows, 2 * gqa, q_batch)
    k = b.leaf("k", head, k_rows, 2, type=type)
    v = b.leaf("v", v_head or head, k_rows, 2, type=v_type or type)
    m = b.leaf("m", k_rows, q_rows, type="f16") if mask else None
    params = (float_bits(1.0), float_bits(bias))
    return b.node("n", Op.FLASH_ATTN_EXT, q, k, v, m, ne=(v_head or head, 2 * gqa, q_rows), type="f32", params=params)


@pytest.mark.parametrize("head", [40, 64, 72, 80, 96, 112, 128, 256])
def test_attention_has_kernels_for_the_usual_head_sizes(head: int) -> None:
    assert best_kernel(attention(head)) is not Kernel.NONE
    assert best_kernel(attention(head, v_head=head // 2)) is Kernel.NONE


@pytest.mark.parametrize(("head", "v_head", "gqa"), [(192, 128, 8), (320, 256, 32), (512, 512, 2), (576, 512, 2)])
def test_large_heads_want_grouped_queries_and_a_mask(head: int, v_head: int, gqa: int) -> None:
    def kernel(**more: object) -> Kernel:
        return best_kernel(attention(head, 8, gqa=gqa, v_head=v_head, **more))  # type: ignore[arg-type]

    assert kernel() is Kernel.MMA
    assert kernel(mask=False) is Kernel.NONE
    assert kernel(bias=8.0) is Kernel.NONE
    assert kernel(k_rows=100) is Kernel.NONE
    assert best_kernel(attention(head, 8, gqa=1, v_head=v_head)) is Kernel.NONE


@pytest.mark.parametrize("head", [32, 48, 160, 224, 384])
def test_other_head_sizes_have_none(head: int) -> None:
    assert best_kernel(attention(head)) is Kernel.NONE


@pytest.mark.parametrize("type", ALL)
def test_keys_and_values_have_one_type_of_five(type: str) -> None:
    kinds = ("f32", "f16", "bf16", "q4_0", "q8_0")
    n = attention(256, type=type)
    assert (best_kernel(n) is not Kernel.NONE) == (type in kinds)
    assert CUDA.supports_op(n) == (type in kinds)
    assert best_kernel(attention(256, type="f16", v_type="q8_0")) is Kernel.NONE


CHOICES: list[tuple[str, Callable[[], Tensor], Kernel]] = [
    ("one row of queries", lambda: attention(128, 1), Kernel.VEC),
    ("two rows of queries", lambda: attention(128, 2), Kernel.MMA),
    ("two rows on a quantized cache", lambda: attention(128, 2, type="q8_0"), Kernel.VEC),
    ("three rows on a quantized cache", lambda: attention(128, 3, type="q8_0"), Kernel.MMA),
    ("a cache that is not padded", lambda: attention(128, 1, k_rows=100), Kernel.MMA),
    ("many queries a key on a long cache", lambda: attention(128, 1, 8192, gqa=8), Kernel.MMA),
    ("the same without a mask", lambda: attention(128, 1, 8192, gqa=8, mask=False), Kernel.VEC),
    ("several sequences with grouped queries", lambda: attention(128, 1, gqa=2, q_batch=2), Kernel.MMA),
    ("several sequences", lambda: attention(128, 1, q_batch=2), Kernel.VEC),
    ("heads of 80", lambda: attention(80, 1), Kernel.MMA),
    ("heads of 40", lambda: attention(40, 1), Kernel.TILE),
    ("heads of 72", lambda: attention(72, 64), Kernel.TILE),
]


OTHERS: list[tuple[str, tuple[str, ...], Callable[[], Tensor], Kernel]] = [
    ("Ampere: one row", ("turing",), lambda: attention(128, 1, gqa=2), Kernel.MMA),
    ("Ampere: one row, keys of their own", ("turing",), lambda: attention(128, 1, gqa=1), Kernel.VEC),
    ("Ampere: two rows on a quantized cache", ("turing",), lambda: attention(128, 2, type="q8_0"), Kernel.MMA),
    ("Ampere: one row on a quantized cache", ("turing",), lambda: attention(128, 1, type="q8_0"), Kernel.VEC),
    ("Pascal: a prompt", (), lambda: attention(128, 64), Kernel.TILE),
    ("RDNA: a prompt", ("wmma",), lambda: attention(128, 64, gqa=2), Kernel.MMA),
    ("RDNA: a prompt, keys of their own", ("wmma",), lambda: attention(128, 64, gqa=1), Kernel.TILE),
    ("RDNA: a prompt with large heads", ("wmma",), lambda: attention(256, 64, gqa=2), Kernel.TILE),
    ("RDNA: few rows, but many heads a key", ("wmma",), lambda: attention(128, 2, gqa=8), Kernel.MMA),
    ("RDNA: two rows on a quantized cache", ("wmma",), lambda: attention(128, 2, gqa=2, type="q8_0"), Kernel.VEC),
    ("CDNA: nine rows with small heads", ("mfma",), lambda: attention(64, 9, gqa=1), Kernel.MMA),
    ("CDNA: eight rows with small heads", ("mfma",), lambda: attention(64, 8, gqa=1), Kernel.TILE),
    ("CDNA: 17 rows", ("mfma",), lambda: attention(128, 17, gqa=1), Kernel.MMA),
    ("CDNA: 64 rows with large heads", ("mfma",), lambda: attention(256, 64, gqa=1), Kernel.TILE),
    ("CDNA: heads of 40", ("mfma",), lambda: attention(40, 64, gqa=1), Kernel.TILE),
]


@pytest.mark.parametrize(("has", "make_node", "kernel"), [c[1:] for c in OTHERS], ids=[c[0] for c in OTHERS])
def test_other_gpus_take_other_kernels(has: tuple[str, ...], make_node: Callable[[], Tensor], kernel: Kernel) -> None:
    assert best_kernel(make_node(), frozenset(has)) is kernel


def test_the_room_behind_attention_depends_on_what_the_gpu_has() -> None:
    n = attention(128, 2, type="q8_0")
    sizes = {}
    for features in ((), ("turing",), ("turing", "ada")):
        buft = make_buft(PROFILES["CUDA"].but(has=frozenset(features)), "CUDA0", "CUDA0")
        sizes[features] = buft.get_alloc_size(n)
    assert sizes[()] == sizes["turing", "ada"] == n.nbytes < sizes[("turing",)]


@pytest.mark.parametrize(("make_node", "kernel"), [c[1:] for c in CHOICES], ids=[c[0] for c in CHOICES])
def test_the_kernel_of_attention_depends_on(make_node: Callable[[], Tensor], kernel: Kernel) -> None:
    assert best_kernel(make_node()) is kernel


def test_a_mask_for_each_head_has_no_kernel() -> None:
    n = attention()
    m = n.src[3]
    assert m is not None
    m.set_layout((256, 1, 2, 1), (2, 512, 512, 1024))
    assert best_kernel(n) is Kernel.NONE


def test_queries_that_do_not_share_keys_evenly_are_ggmls_assertion() -> None:
    n = attention(gqa=1)
    n.src[0] = leaf("f32", 128, 1, 3)
    with pytest.raises(GgmlAssert) as error:
        CUDA.supports_op(n)
    assert error.value.condition == "Q->ne[2] % K->ne[2] == 0"


def test_attention_on_an_f16_cache_takes_its_result_only() -> None:
    for rows in (1, 64):
        n = attention(128, rows)
        assert CUDA.buft.get_alloc_size(n) == n.nbytes


def test_attention_on_a_quantized_cache_takes_f16_copies_of_it_where_many_rows_are_computed_at_once() -> None:
    n = attention(128, 64, 512, type="q8_0")
    copy = 2 * 128 * 512 * 2
    assert CUDA.buft.get_alloc_size(n) == n.nbytes + 2 * copy
    assert CUDA.buft.get_alloc_size(attention(128, 1, 512, type="q8_0")) == 128 * 2 * 4


def test_the_copies_begin_at_multiples_of_128_bytes() -> None:
    n = attention(80, 1, 101, type="q8_0")
    copy = 2 * 80 * 101 * 2
    assert (n.nbytes, copy % 128) == (640, 64)
    assert CUDA.buft.get_alloc_size(n) == 640 + copy + 64 + copy
    n.set_layout((80, 1, 1, 1), (4, 320, 320, 320))
    assert CUDA.buft.get_alloc_size(n) == 384 + copy + 64 + copy


def test_f32_caches_are_copied_by_every_kernel() -> None:
    n = attention(128, 1, 256, type="f32")
    assert best_kernel(n) is Kernel.VEC
    assert CUDA.buft.get_alloc_size(n) == n.nbytes + 2 * (2 * 128 * 256 * 2)


def test_values_that_are_a_view_of_the_keys_are_not_copied_twice() -> None:
    n = attention(576, 8, gqa=2, v_head=512, type="q8_0")
    b = Builder()
    k = n.src[1]
    assert k is not None
    v = b.ctx.new_tensor(k.type, (512, 256, 2), k, 0)
    v.set_layout(v.ne, k.nb)
    n.src[2] = v
    assert CUDA.buft.get_alloc_size(n) == n.nbytes + 2 * 576 * 256 * 2
    v.view_src, v.view_offs = leaf("q8_0", 576, 256, 2), 0
    assert CUDA.buft.get_alloc_size(n) == n.nbytes + 2 * (576 + 512) * 256 * 2


def test_its_memory_is_aligned_to_128_bytes_and_not_the_hosts() -> None:
    assert (CUDA.type, CUDA.buft.alignment, CUDA.buft.host, CUDA.any_host) == ("gpu", 128, False, False)
    assert CUDA.events
