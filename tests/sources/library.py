"""Whether llama.cpp is here, in the release whose graphs the tests expect (newer ones build some of them otherwise)."""

from __future__ import annotations

import importlib.metadata

import pytest

RELEASE = "2026.8.10566"


def _installed() -> str:
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return ""


HAS_LIBRARY = _installed() == RELEASE

needs_library = pytest.mark.skipif(
    not HAS_LIBRARY, reason=f"needs llama.cpp: the package xllamacpp {RELEASE}, of the extra test"
)
