"""The OpenCL device of ggml 0.21: it has scans of Mamba-2.

From ggml 0.21.0, src/ggml-opencl/ggml-opencl.cpp: ggml_opencl_supports_op, of a GPU that is no Adreno 7xx.
"""

from __future__ import annotations

from ggmltool.ggml.devices import opencl as before
from ggmltool.ggml.devices.combinators import Rule, all_of, among, by_op, f32, param
from ggmltool.ggml.devices.operands import RESULT

RULES: dict[int, Rule] = before.RULES | by_op(
    {
        "SSM_SCAN": all_of(
            f32(0, 1, 2, 3, 4, 5, RESULT),
            among(3, "ne0", 1),
            among(0, "ne0", 128, 256),
            param(0, (1,), "it keeps no snapshots of the state"),
        ),
    }
)
"""All that OpenCL runs."""
