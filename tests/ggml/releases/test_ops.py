"""What constructors and the CPU do otherwise in another release."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool import GgmlError, ScenarioError
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Tensor

TENSORS = {
    "x": "f32[8, 4]",
    "y": "f32[8, 4]",
    "q": "f32[8, 2, 3]",
    "pos": "i32[3]",
    "streams": "f32[8, 4, 3]",
    "weights": "f32[4, 3]",
    "of_tokens": "f32[8, 3]",
    "large": "f32[1048576, 1024, 2, 1]",
}
BEFORE, NOW = ("0.20.2", "0.21"), ("0.26",)


def node(release: str, written: object) -> Tensor:
    """What a release makes of a node."""
    source = {"ggmltool": 1, "contexts": {"c": {"tensors": TENSORS}}, "graphs": {"main": {"nodes": {"n": written}}}}
    loaded = ggmltool.load(source, ggml=release)
    run = loaded.start()
    run.start()
    return run.build("main").nodes[-1]


def refusal(release: str, written: object) -> str:
    with pytest.raises((ScenarioError, GgmlError)) as caught:
        node(release, written)
    return str(caught.value)


@pytest.mark.parametrize("release", BEFORE)
def test_clamp_was_a_view_of_its_source(release: str) -> None:
    view = node(release, "clamp(x, min=0, max=1)").view_src
    assert view is not None
    assert view.id == "x"


def test_clamp_is_a_tensor_and_its_twin_the_view() -> None:
    assert node("0.26", "clamp(x, min=0, max=1)").view_src is None
    view = node("0.26", "clamp_inplace(x, min=0, max=1)").view_src
    assert view is not None
    assert view.id == "x"


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("swiglu_clamp(x, limit=7)", "ggml 0.20.2 has no op swiglu_clamp; available since 2026-08-31"),
        ("clamp_inplace(x, min=0, max=1)", "ggml 0.20.2 has no clamp_inplace; available since 2026-08-26"),
        ({"op": "clamp_inplace", "src": "x", "min": 0, "max": 1}, "has no clamp_inplace; available since 2026-08-26"),
        ("dsv4_hc_pre_gated(streams, streams, scale=2)", "has no dsv4_hc_pre_gated; available since 2026-09-17"),
        ("dsv4_hc_pre(streams, streams, gated=true)", "dsv4_hc_pre has no gates in ggml 0.20.2; available since"),
        ("dsv4_hc_pre(streams, weights, scale=2)", "dsv4_hc_pre has no scale in ggml 0.20.2; available since"),
        ("dsv4_hc_post(of_tokens, streams, weights)", "a read at the address NULL"),
        (
            "rope(q, pos, n_dims=4, mode=neox, offset=2)",
            "rope has no offset in ggml 0.20.2; available since 2026-08-19",
        ),
        ("mul_mat(x, y, prec=bf16)", "mul_mat has no prec but default and f32 in ggml 0.20.2; available since"),
        ("mul_mat(x, y, prec_b=q8)", "mul_mat has no prec_b in ggml 0.20.2; available since 2026-09-12"),
    ],
    ids=str,
)
def test_an_older_release_says_since_when_there_is_what_it_lacks(written: object, what: str) -> None:
    assert what in refusal("0.20.2", written)
    node("0.26", written)


def test_the_offset_of_rope_is_older_than_the_other_forms() -> None:
    assert node("0.21", "rope(q, pos, n_dims=4, mode=neox, offset=2)").op_params[15] == 2
    assert "has no op swiglu_clamp" in refusal("0.21", "swiglu_clamp(x, limit=7)")


@pytest.mark.parametrize(("written", "what"), [
    ({"op": "sqr", "src": "x", "flags": ["input"]}, "GGML_ASSERT(tensor->op == GGML_OP_NONE) failed"),
    ("acc(x, y, nb1=32, nb2=128, nb3=128, offset=1073741824)", "GGML_ASSERT(offset < (size_t)(1 << 30)) failed"),
    ("repeat_4d(x, 4294967296, 4294967296, 1, 1)", "GGML_ASSERT(INT64_MAX / ne[i] > current_nelements) failed"),
], ids=str)  # fmt: skip
def test_what_ggml_asserts_now(written: object, what: str) -> None:
    assert what in refusal("0.26", written)


def test_what_a_capture_has_flagged_is_not_refused() -> None:
    told: dict[str, Any] = {"op": "sqr", "src": ["x"], "type": "f32", "ne": [8, 4, 1, 1], "flags": ["input"]}
    assert node("0.26", told).flags & 1


def test_permute_lost_the_upper_half_of_a_stride() -> None:
    assert [node(r, "permute(large, 0, 2, 1, 3)").nb[1] for r in RELEASES if r.startswith("0.")] == [
        2**32, 0, 0,
    ]  # fmt: skip


def test_the_scale_of_a_sum_of_streams_is_a_word_since_it_has_one() -> None:
    assert node("0.20.2", "dsv4_hc_pre(streams, weights)").op_params == ()
    assert node("0.26", "dsv4_hc_pre(streams, weights)").op_params == (0x3F800000,)
    assert node("0.26", "dsv4_hc_pre_gated(streams, streams, scale=2)").op_params == (0x40000000, 1)
