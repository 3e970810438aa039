"""The samples that the real library can be asked about: those that are for its own release of ggml."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import ggmltool
from ggmltool.ggml.version import VERSION
from ggmltool.scenario import samples as shipped


@cache
def samples() -> tuple[Path, ...]:
    """All samples but those for an older ggml, by name."""
    return tuple(path for path in shipped.samples() if ggmltool.load(path).model.ggml == VERSION)
