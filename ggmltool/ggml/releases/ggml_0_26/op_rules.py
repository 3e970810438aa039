"""Rules on ops that several devices have in ggml 0.26, and had not before."""

from __future__ import annotations

from ggmltool.ggml.devices.combinators import holds
from ggmltool.ggml.devices.operands import word

_PREC_F32 = 10

NO_F32_PRECISION = holds(
    "ggml_prec_set_src asks for f32 precision, which it does not have for experts", lambda op: word(op, 3) != _PREC_F32
)
"""MUL_MAT_ID, whose source 1 may be rounded."""
