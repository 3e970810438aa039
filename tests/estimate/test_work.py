"""What nodes take, against numbers made by hand and the formulas of ggml's test-backend-ops (op_flops, op_size)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.estimate.work import VIEW, Cells, NodeWork, RateKind, used_experts, work_of
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor
from tests.estimate.tensors import leaf, node, view


def work(n: Tensor, cached: int | None = None) -> NodeWork:
    return work_of([n], Cells([n], cached))[0]


def test_a_product_reads_its_weights_once() -> None:
    found = work(node(Op.MUL_MAT, leaf("q4_K", 4096, 11008), leaf("f32", 4096, 512), ne=(11008, 512)))
    weights, columns, result = 11008 * 4096 // 256 * 144, 4096 * 512 * 4, 11008 * 512 * 4
    assert found == NodeWork(RateKind.QUANTIZED, weights + columns + result, 2 * 11008 * 512 * 4096, 512)


@pytest.mark.parametrize(
    ("type", "kind"),
    [("f16", RateKind.F16), ("bf16", RateKind.BF16), ("f32", RateKind.F32), ("iq2_xs", RateKind.QUANTIZED)],
)
def test_a_product_goes_by_the_type_of_its_weights(type: str, kind: RateKind) -> None:
    assert work(node(Op.MUL_MAT, leaf(type, 256, 8), leaf("f32", 256, 3), ne=(8, 3))).kind is kind


def test_planes_that_share_weights_are_columns_of_them() -> None:
    found = work(node(Op.MUL_MAT, leaf("f16", 64, 32, 2), leaf("f32", 64, 5, 8), ne=(32, 5, 8)))
    assert found.columns == 20
    assert found.operations == 2 * 64 * 32 * 5 * 8


def test_only_used_experts_are_read() -> None:
    """128 experts, 8 for each of 2 tokens: 8 are certain, the next token finds 120/128 of its own elsewhere."""
    experts, ids = leaf("q8_0", 2048, 768, 128), leaf("i32", 8, 2)
    found = work(node(Op.MUL_MAT_ID, experts, leaf("f32", 2048, 1, 2), ids, ne=(768, 8, 2)))
    used = 8 + 8 * 120 / 128
    assert found.nbytes == pytest.approx(used * 768 * 2048 // 32 * 34 + 2048 * 2 * 4 + 8 * 2 * 4 + 768 * 8 * 2 * 4)
    assert found.operations == 2 * 768 * 2048 * 2 * 8
    assert found.columns == pytest.approx(16 / used)


@given(st.integers(1, 300), st.integers(1, 16), st.integers(1, 600))
def test_a_batch_uses_at_least_what_a_token_does_and_at_most_all(n_expert: int, per_token: int, n_tokens: int) -> None:
    used = used_experts(n_expert, per_token, n_tokens)
    assert min(per_token, n_expert) <= used * (1 + 1e-9)
    assert used <= min(n_expert, per_token * n_tokens) * (1 + 1e-9)


def test_get_rows_reads_the_rows_that_are_named() -> None:
    found = work(node(Op.GET_ROWS, leaf("q6_K", 4096, 32000), leaf("i32", 512), ne=(4096, 512)))
    assert found.nbytes == 512 * (4096 // 256 * 210 + 4096 * 4 + 4)


def test_set_rows_writes_the_rows_that_are_named() -> None:
    cache = leaf("f16", 1024, 32768)
    found = work(node(Op.SET_ROWS, leaf("f32", 1024, 512), leaf("i64", 512), cache, ne=(1024, 32768), type="f16"))
    assert found.nbytes == 512 * (1024 * 4 + 1024 * 2 + 8)


def test_a_view_takes_nothing() -> None:
    assert work(view(leaf("f32", 64, 64), 64, 2)) == VIEW


def test_an_element_of_a_row_that_is_repeated_is_read_once() -> None:
    found = work(node(Op.MUL, leaf("f32", 4096, 512), leaf("f32", 4096), ne=(4096, 512)))
    assert found.nbytes == 4 * (2 * 4096 * 512 + 4096)


def attention(cached: int | None, cells: int = 4096, tokens: int = 512) -> NodeWork:
    k_cache, v_cache = leaf("f16", 1024, cells), leaf("f16", 1024, cells)
    rows = [
        node(Op.SET_ROWS, leaf("f32", 1024, tokens), leaf("i64", tokens), c, ne=(1024, cells), type="f16")
        for c in (k_cache, v_cache)
    ]
    for row, c in zip(rows, (k_cache, v_cache), strict=True):
        row.view_src = c
    k, v = view(k_cache, 128, cells, 8), view(v_cache, 128, cells, 8)
    mask = leaf("f16", cells, tokens, user=True)
    nodes = [*rows, k, v, node(Op.FLASH_ATTN_EXT, leaf("f32", 128, tokens, 32), k, v, mask, ne=(128, 32, tokens))]
    return work_of(nodes, Cells(nodes, cached))[-1]


def test_flash_attention_of_a_full_cache_is_what_ggml_counts() -> None:
    found = attention(None)
    assert found.operations == 2 * 32 * 512 * (128 + 128) * 4096
    q, k, mask = 128 * 512 * 32 * 4, 128 * 4096 * 8 * 2, 4096 * 512 * 2
    assert found.nbytes == 2 * q + 2 * k + mask
    assert found.kind is RateKind.ATTENTION


def test_of_a_cache_only_the_filled_cells_are_read() -> None:
    """100 tokens and one more are shown as 256 cells, of which 101 are looked at."""
    full, found = attention(None, tokens=1), attention(100, tokens=1)
    q = 2 * 128 * 32 * 4
    assert found.nbytes - q == pytest.approx((full.nbytes - q) * 256 / 4096)
    assert found.operations == pytest.approx(full.operations * 101 / 4096)


def test_a_prompt_looks_at_half_of_itself() -> None:
    assert attention(0).operations == pytest.approx(attention(None).operations * 256.5 / 4096)


def test_a_cache_is_never_read_beyond_its_end() -> None:
    """A sliding window's cache is smaller than the context."""
    assert attention(100_000) == attention(None)


def test_attention_without_flash_attention_reads_the_filled_cells() -> None:
    cells, tokens = 1024, 4
    cache = leaf("f16", 64, cells)
    written = node(Op.SET_ROWS, leaf("f32", 64, tokens), leaf("i64", tokens), cache, ne=(64, cells), type="f16")
    written.view_src = cache
    k = view(cache, 64, cells)
    kq = node(Op.MUL_MAT, k, leaf("f32", 64, tokens), ne=(cells, tokens))
    soft = node(Op.SOFT_MAX, kq, leaf("f32", cells, tokens, user=True), ne=(cells, tokens))
    transposed = view(cache, cells, 64)
    kqv = node(Op.MUL_MAT, transposed, soft, ne=(64, tokens))
    nodes = [written, k, kq, soft, kqv]
    works = work_of(nodes, Cells(nodes, 200))
    for i, columns in ((2, 64), (4, 64)):
        assert works[i].operations == 2 * columns * tokens * 256
        assert works[i].kind is RateKind.ATTENTION
    assert works[3].nbytes == 3 * 256 * tokens * 4


def test_operations_of_rarer_ops_are_what_ggml_counts() -> None:
    solve = node(Op.SOLVE_TRI, leaf("f32", 10, 10, 4, 3), leaf("f32", 3, 10, 4, 3), ne=(3, 10, 4, 3))
    assert work(solve).operations == 10 * 11 * 3 * 12
    indexer = node(Op.LIGHTNING_INDEXER, leaf("f32", 128, 64, 7), leaf("f16", 128, 1, 256), ne=(256, 7))
    assert work(indexer).operations == ((2 * 128 + 2) * 64 + 1) * 256 * 7
    conv = node(Op.CONV_2D, leaf("f16", 3, 3, 16, 8), leaf("f32", 64, 32, 16, 2), ne=(62, 30, 8, 2))
    assert work(conv).operations == 62 * 30 * 8 * 2 * (2 * 16 * 9 - 1)


def test_linear_attention_steps_a_square_of_state_for_every_head_and_token() -> None:
    wkv = node(Op.RWKV_WKV6, *(leaf("f32", 64, 32, 7) for _ in range(3)), ne=(64 * 32, 7))
    assert work(wkv).operations == 6 * 64 * 64 * 32 * 7
    q, k, v = leaf("f32", 128, 16, 7), leaf("f32", 128, 16, 7), leaf("f32", 128, 32, 7)
    assert work(node(Op.GATED_DELTA_NET, q, k, v, ne=(128 * 32, 7))).operations == 6 * 128 * 128 * 32 * 7


def test_the_state_of_a_sequence_is_read_once_not_that_of_all() -> None:
    """Mamba-2: 4 sequences' states are there, one is stepped."""
    states = leaf("f32", 128, 64, 80, 4)
    x, dt, a = leaf("f32", 64, 80, 7, 1), leaf("f32", 80, 7, 1), leaf("f32", 1, 80)
    b, c, ids = leaf("f32", 128, 1, 7, 1), leaf("f32", 128, 1, 7, 1), leaf("i32", 1)
    result = 64 * 80 * 7 + 128 * 64 * 80
    found = work(node(Op.SSM_SCAN, states, x, dt, a, b, c, ids, ne=(result,)))
    others = 64 * 80 * 7 + 80 * 7 + 80 + 2 * 128 * 7 + 1
    assert found.nbytes == 4 * (128 * 64 * 80 + others + result)
