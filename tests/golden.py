"""Golden files: what a view or a command printed once and should print again, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

UPDATE = "GGMLTOOL_UPDATE_GOLDEN"
"""Set to 1 to write what comes out now instead of comparing; then look at the diff before you accept it."""


def check_golden(path: Path, actual: str | bytes) -> None:
    """Compare with the golden file, or write it when asked to."""
    data = actual.encode("utf-8", "surrogateescape") if isinstance(actual, str) else actual
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return
    assert path.exists(), f"{path} is missing; {UPDATE}=1 writes it"
    assert data.decode("utf-8", "replace") == path.read_bytes().decode("utf-8", "replace")
    assert data == path.read_bytes()
