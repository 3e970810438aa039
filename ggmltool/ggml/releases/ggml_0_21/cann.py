"""The CANN device of ggml 0.21: it rotates from the first column on only.

From ggml 0.21.0, src/ggml-cann/ggml-cann.cpp: ggml_backend_cann_supports_op.
"""

from __future__ import annotations

from ggmltool.ggml.devices import cann as before
from ggmltool.ggml.devices.combinators import Rule, all_of, by_op, param
from ggmltool.ggml.op import Op

_FROM_THE_FIRST = param(15, (0,), "it rotates from the first column on only")

RULES: dict[int, Rule] = before.RULES | by_op({"ROPE": all_of(_FROM_THE_FIRST, before.RULES[Op.ROPE])})
"""All that CANN runs."""
