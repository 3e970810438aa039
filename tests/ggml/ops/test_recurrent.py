"""Laws of the recurrent ops: a sequence in two parts, states on the way, heads by themselves; and their refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.ggml.errors import GgmlAssert, NotComputable
from tests.ggml.ops.test_kernels import compute

Arrays = dict[str, Any]

SIZE, HEADS = 8, 3
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def rows(rng: np.random.Generator, tokens: int, low: float = -0.3, high: float = 0.3) -> Any:
    return rng.uniform(low, high, (tokens, HEADS, SIZE)).astype(np.float32)


def linear(name: str, rng: np.random.Generator, tokens: int) -> list[Any]:
    """The sources per token of an op, the decay between 0 and 1; wkv6's `tf` apart."""
    n, decay = {"rwkv_wkv6": (4, 3), "gated_linear_attn": (4, 3), "rwkv_wkv7": (6, 1)}[name]
    return [rows(rng, tokens, 0, 1) if i == decay else rows(rng, tokens) for i in range(n)]


def run_linear(name: str, per_token: list[Any], first: Any, state: Any) -> tuple[Any, Any]:
    """The outputs [tokens, HEADS * SIZE] and the state behind them."""
    sources = [*per_token[:3], first, *per_token[3:]] if name == "rwkv_wkv6" else per_token
    more = (0.5,) if name == "gated_linear_attn" else ()
    out = compute(name, *sources, state.reshape(1, -1), *more)
    tokens = len(per_token[0])
    return out[:tokens], out[tokens:]


@pytest.mark.parametrize("name", ["rwkv_wkv6", "rwkv_wkv7", "gated_linear_attn"])
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_a_sequence_in_two_parts_is_the_sequence(name: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    tokens = data.draw(st.integers(2, 9))
    cut = data.draw(st.integers(1, tokens - 1))
    per_token, first = linear(name, rng, tokens), rows(rng, 1)[0]
    state = rng.uniform(-1, 1, (HEADS, SIZE, SIZE)).astype(np.float32)
    whole, last = run_linear(name, per_token, first, state)
    before, between = run_linear(name, [t[:cut] for t in per_token], first, state)
    behind, end = run_linear(name, [t[cut:] for t in per_token], first, between)
    np.testing.assert_allclose(np.concatenate((before, behind)), whole, **CLOSE)
    np.testing.assert_allclose(end, last, **CLOSE)


@pytest.mark.parametrize("name", ["rwkv_wkv6", "rwkv_wkv7", "gated_linear_attn"])
def test_sequences_side_by_side_do_not_touch_each_other(name: str) -> None:
    rng = np.random.default_rng(1)
    per_token, first = linear(name, rng, 6), rows(rng, 1)[0]
    state = rng.uniform(-1, 1, (2, HEADS * SIZE * SIZE)).astype(np.float32)
    sources = [*per_token[:3], first, *per_token[3:]] if name == "rwkv_wkv6" else per_token
    both = compute(name, *sources, state, *((0.5,) if name == "gated_linear_attn" else ()))
    for i in range(2):
        alone, end = run_linear(name, [t[3 * i : 3 * i + 3] for t in per_token], first, state[i])
        np.testing.assert_allclose(both[3 * i : 3 * i + 3], alone, **CLOSE)
        np.testing.assert_allclose(both[6 + SIZE * i : 6 + SIZE * (i + 1)], end, **CLOSE)


def delta(rng: np.random.Generator, tokens: int) -> Arrays:
    shape = (1, tokens, HEADS, SIZE)
    return {
        "q": rng.uniform(-0.4, 0.4, shape),
        "k": rng.uniform(-0.4, 0.4, shape),
        "v": rng.uniform(-1, 1, shape),
        "g": rng.uniform(-2, 0, (1, tokens, HEADS, 1)),
        "beta": rng.uniform(0, 1, (1, tokens, HEADS, 1)),
        "state": rng.uniform(-1, 1, (1, HEADS, SIZE, SIZE)),
    }


def scan(rng: np.random.Generator, tokens: int) -> Arrays:
    return {
        "s": rng.uniform(-1, 1, (1, HEADS, SIZE, 4)),
        "x": rng.uniform(-1, 1, (1, tokens, HEADS, SIZE)),
        "dt": rng.uniform(-3, 25, (1, tokens, HEADS)),
        "A": rng.uniform(-1, -0.1, (HEADS, 1)),
        "B": rng.uniform(-1, 1, (1, tokens, 1, 4)),
        "C": rng.uniform(-1, 1, (1, tokens, 1, 4)),
    }


def run_scan(a: Arrays, keep: int) -> Any:
    kinds = "f32 f32 f32 f32 f32 f32 i32"
    return compute("ssm_scan", *a.values(), np.zeros(1, np.int32), keep, types=kinds).reshape(-1)


def run_delta(a: Arrays, keep: int) -> Any:
    return compute("gated_delta_net", *a.values(), keep).reshape(-1)


def shortened(a: Arrays, tokens: int) -> Arrays:
    """The first tokens only."""
    fixed = ("s", "A", "state")
    return {name: values if name in fixed else values[:, :tokens] for name, values in a.items()}


@pytest.mark.parametrize(("make", "run"), [(delta, run_delta), (scan, run_scan)])
def test_the_states_that_are_kept_are_those_after_fewer_tokens(make: Any, run: Any) -> None:
    a = make(np.random.default_rng(2), 6)
    kept = run(a, 4)
    n = HEADS * SIZE * (SIZE if make is delta else 4)
    outputs, states = kept[: 6 * HEADS * SIZE], kept[6 * HEADS * SIZE :].reshape(4, n)
    np.testing.assert_allclose(outputs, run(a, 1)[: 6 * HEADS * SIZE], **CLOSE)
    for slot in range(4):
        np.testing.assert_allclose(states[slot], run(shortened(a, 6 - slot), 1)[-n:], **CLOSE)


@pytest.mark.parametrize(("make", "run"), [(delta, run_delta), (scan, run_scan)])
def test_states_of_tokens_that_never_were_are_left_alone(make: Any, run: Any) -> None:
    out = run(make(np.random.default_rng(3), 2), 5)
    n = HEADS * SIZE * (SIZE if make is delta else 4)
    states = out[2 * HEADS * SIZE :].reshape(5, n)
    assert states[:2].all()
    assert not states[2:].any()


def test_a_triangular_system_is_solved() -> None:
    rng = np.random.default_rng(4)
    a = (rng.uniform(-0.3, 0.3, (2, 7, 7)) + 2 * np.eye(7)).astype(np.float32)
    b = rng.uniform(-1, 1, (2, 7, 3)).astype(np.float32)
    np.testing.assert_allclose(np.tril(a) @ compute("solve_tri", a, b), b, **CLOSE)


def test_a_zero_on_the_diagonal_gives_infinities() -> None:
    out = compute("solve_tri", [[0.0, 0.0], [1.0, 1.0]], [[1.0], [1.0]])
    assert out.tolist() == [np.inf, -np.inf]


def test_a_window_slides_over_the_tokens() -> None:
    out = compute("ssm_conv", [[1.0, 2, 3, 4], [1, 0, 0, 1]], [[1.0, 10, 100], [1, 1, 1]])
    assert out.tolist() == [[321, 1], [432, 1]]


def test_streams_are_mixed_as_their_matrix_says() -> None:
    x, residual = [[1.0, 2.0]], [[[10.0, 20.0], [30.0, 40.0]]]
    out = compute("dsv4_hc_post", x, residual, [[1.0, 100.0]], [[[1.0, 0.0], [0.5, 2.0]]])
    assert out.tolist() == [[1 + 10 + 15, 2 + 20 + 20], [100 + 60, 200 + 80]]
    assert compute("dsv4_hc_pre", residual, [[1.0, 0.5]]).tolist() == [25, 40]


@pytest.mark.parametrize("n_iter", [1, 20])
def test_the_matrix_has_columns_that_sum_to_one(n_iter: int) -> None:
    rng = np.random.default_rng(5)
    out = compute("dsv4_hc_comb", rng.standard_normal((9, 24)), [1.0, 1.0, 1.0], rng.standard_normal(24), 1e-6, n_iter)
    np.testing.assert_allclose(out.sum(axis=-2), 1, rtol=1e-5)
    rows_too = np.allclose(out.sum(axis=-1), 1, rtol=1e-2)
    assert rows_too == (n_iter > 1)


def test_of_all_variants_ggml_solves_one() -> None:
    with pytest.raises(GgmlAssert, match="lower && left && !uni"):
        compute("solve_tri", [[1.0]], [[1.0]], lower=False)


def test_a_state_that_is_not_there_is_named() -> None:
    a = scan(np.random.default_rng(6), 2)
    with pytest.raises(NotComputable, match="there is no state 1"):
        compute("ssm_scan", *a.values(), np.ones(1, np.int32), 1, types="f32 f32 f32 f32 f32 f32 i32")
