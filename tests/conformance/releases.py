"""The releases that tests judge by their real libraries."""

from __future__ import annotations

from ggmltool.ggml.releases.table import RELEASES

JUDGED = tuple(release.name for release in RELEASES.values() if release.library is not None)
"""All that a package carries the library of, the newest first."""
