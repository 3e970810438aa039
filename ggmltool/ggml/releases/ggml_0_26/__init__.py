"""ggml 0.26.0, as llama.cpp b11549 carries it; b11434 has the same number, and copies used experts itself."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.op import INPLACE_OPS, Op
from ggmltool.ggml.releases.ggml_0_21 import RELEASE as BEFORE
from ggmltool.ggml.releases.release import Library, Near

RELEASE = replace(
    BEFORE,
    name="0.26",
    date="2026-10-10",
    commit="",
    folder="ggml_0_26",
    like=BEFORE,
    build="b11549",
    library=Library("0.26.0", "xllamacpp==2026.10.11549", "oracle", ("ggml_backend_sched_set_copy_callback",)),
    near=(
        Near(
            ("0.27", "0.27.0", "b11739"),
            "ggml_conv_1d ends in permute(0, 2, 1, 3), one node more, programs can have a callback for reallocations, "
            "and some lines of the log are new",
        ),
        Near(("b11434",), "its scheduler copies the used experts itself, and host weights in the order of the inputs"),
    ),
    rules=replace(
        BEFORE.rules,
        inplace_ops=INPLACE_OPS | {Op.CLAMP},
        expanding_ops=frozenset((Op.FLASH_ATTN_EXT, Op.MUL_MAT, Op.MUL_MAT_ID, Op.CUMSUM, Op.ARGSORT, Op.TOP_K)),
        full_split_ends=False,
        copies_leafs_last=True,
        weights_last=True,
        keeps_for_devices=True,
        copies_used_experts=False,
    ),
    ops=replace(
        BEFORE.ops,
        clamp_is_new=True,
        permute_is_int=False,
        streams_are_scaled=True,
        comb_is_optional=True,
        counts_elements=True,
        bounds_acc=True,
        inputs_are_leafs=True,
        has_bf16_functions=True,
        widens_operand=True,
        transforms_halves=True,
        concat_takes_rows=True,
        checks_rows_back=True,
        transposes_batches=True,
    ),
)
