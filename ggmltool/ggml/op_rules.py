"""What constructors and kernels do one way in one ggml and the other way in another: switches to turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpRules:
    """The rules of a ggml's ops; by default those of 0.20.2.

    Constructors: ggml_clamp makes a tensor of its own, where it was a view of its source, and ggml_clamp_inplace is the
    view (`clamp_is_new`; the kernel goes by all strides since then). ggml_permute's extents and strides go through a C
    int (`permute_is_int`). ggml_dsv4_hc_pre leaves the scale of its sum and whether its weights are gates in op_params,
    and its kernel reads them (`streams_are_scaled`); ggml_dsv4_hc_post can go without a comb (`comb_is_optional`).

    Rows that ROPE turns have an offset, and without a pair to turn its kernel never ends (`rope_has_offset`).

    Assertions: a tensor's elements are counted (`counts_elements`), ggml_acc's offset is less than 1 GiB
    (`bounds_acc`), only a tensor without an op is flagged as an input (`inputs_are_leafs`).

    The CPU: SCALE, the GLU functions of before and four of UNARY's have bf16 kernels (`has_bf16_functions`). MUL_MAT
    converts an operand of f16 or bf16 where the product is one of f32 (`widens_operand`), and a product with a Hadamard
    matrix takes one of f16 (`transforms_halves`). CONCAT takes whole rows only (`concat_takes_rows`). GET_ROWS_BACK
    looks at its indices (`checks_rows_back`). CONV_TRANSPOSE_2D computes every image of a batch, not only the first
    (`transposes_batches`).
    """

    rope_has_offset: bool = False
    clamp_is_new: bool = False
    permute_is_int: bool = True
    streams_are_scaled: bool = False
    comb_is_optional: bool = False
    counts_elements: bool = False
    bounds_acc: bool = False
    inputs_are_leafs: bool = False
    has_bf16_functions: bool = False
    widens_operand: bool = False
    transforms_halves: bool = False
    concat_takes_rows: bool = False
    checks_rows_back: bool = False
    transposes_batches: bool = False


SHARED = OpRules()
"""Those of the shared engine, which is 0.20.2."""
