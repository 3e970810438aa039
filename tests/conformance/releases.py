"""The releases that tests judge by their real libraries."""

from __future__ import annotations

from functools import cache

from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import Lib

JUDGED = tuple(release.name for release in RELEASES.values() if release.library is not None)
"""All that a package carries the library of, the newest first."""


@cache
def release_of(lib: Lib) -> Release:
    """The release that a library is of."""
    return next(r for r in RELEASES.values() if r.library is not None and not lib.differs_from(r.library))
