"""Whether a llama.cpp is here whose graphs can be captured, and those of other months in GGMLTOOL_LIBRARIES."""

from __future__ import annotations

import pytest

from ggmltool.sources.llama.capture.packages import find
from ggmltool.sources.llama.errors import LlamaUnavailable


def has(wanted: str = "") -> bool:
    """Whether a package is there: NAME==VERSION, or any."""
    try:
        find(wanted)
    except LlamaUnavailable:
        return False
    return True


HAS_LIBRARY = has()

needs_library = pytest.mark.skipif(not HAS_LIBRARY, reason="needs llama.cpp: the package xllamacpp, of the extra test")
