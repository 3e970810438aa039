"""What constructors and kernels do one way in one ggml and the other way in another: switches to turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpRules:
    """The rules of a ggml's ops; by default those of 0.20.2."""

    rope_has_offset: bool = False
    """Rows that ROPE turns have an offset, and without a pair to turn its kernel never ends."""
    clamp_is_new: bool = False
    """ggml_clamp makes a tensor of its own, where it was a view of its source, and ggml_clamp_inplace is the view; the
    kernel goes by all strides since then."""
    permute_is_int: bool = True
    """ggml_permute's extents and strides go through a C int."""
    streams_are_scaled: bool = False
    """ggml_dsv4_hc_pre leaves the scale of its sum and whether its weights are gates in op_params, and its kernel reads
    them."""
    comb_is_optional: bool = False
    """ggml_dsv4_hc_post can go without a comb."""
    counts_elements: bool = False
    """An assertion counts a tensor's elements."""
    bounds_acc: bool = False
    """ggml_acc's offset is less than 1 GiB."""
    inputs_are_leafs: bool = False
    """Only a tensor without an op is flagged as an input."""
    has_bf16_functions: bool = False
    """On the CPU SCALE, the GLU functions of before and four of UNARY's have bf16 kernels."""
    widens_operand: bool = False
    """MUL_MAT converts an operand of f16 or bf16 where the product is one of f32."""
    transforms_halves: bool = False
    """A product with a Hadamard matrix takes an operand of f16."""
    concat_takes_rows: bool = False
    """CONCAT takes whole rows only."""
    checks_rows_back: bool = False
    """GET_ROWS_BACK looks at its indices."""
    transposes_batches: bool = False
    """CONV_TRANSPOSE_2D computes every image of a batch, not only the first."""


SHARED = OpRules()
"""Those of the shared engine, which is 0.20.2."""
