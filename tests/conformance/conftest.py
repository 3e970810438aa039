"""These tests run the real library beside the engine: they need the extra `oracle`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("libggml") is not None:
        return
    skip = pytest.mark.skip(reason="needs the real ggml: install ggmltool[oracle]")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)
