"""The releases of ggml, a line each. One more is a folder beside this file, and a line."""

from __future__ import annotations

from ggmltool.ggml.releases.august_2026.release import RELEASE as AUGUST_2026
from ggmltool.ggml.releases.january_2024.release import RELEASE as JANUARY_2024
from ggmltool.ggml.releases.march_2025.release import RELEASE as MARCH_2025
from ggmltool.ggml.releases.release import Release

RELEASES: dict[str, Release] = {
    release.name: release
    for release in (
        AUGUST_2026,
        MARCH_2025,
        JANUARY_2024,
    )
}
"""By name, the newest first."""

DEFAULT = AUGUST_2026
"""The release that decides by default."""
