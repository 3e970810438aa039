"""The samples that the real libraries can be asked about."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ggmltool.scenario import samples as shipped

_NAMED = re.compile(r"^ggml: *[\"']?([^\s\"'#]+)", re.MULTILINE)


@cache
def samples(release: str) -> tuple[Path, ...]:
    """All samples but those that are for another ggml, by name."""
    return tuple(path for path in shipped.samples() if _release_of(path) in (None, release))


def _release_of(path: Path) -> str | None:
    """The release that a sample names; those in JSON name none."""
    found = _NAMED.search(path.read_text("utf-8")) if path.suffix == ".yaml" else None
    return found[1] if found else None
