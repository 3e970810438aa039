"""The releases of ggml, a line each. One more is a folder beside this file, and a line; the first is the default."""

from __future__ import annotations

from typing import TypeVar

from ggmltool.data import exists, load
from ggmltool.ggml.releases.ggml_0_20_2 import RELEASE as GGML_0_20_2
from ggmltool.ggml.releases.ggml_0_21 import RELEASE as GGML_0_21
from ggmltool.ggml.releases.ggml_0_26 import RELEASE as GGML_0_26
from ggmltool.ggml.releases.january_2024 import RELEASE as JANUARY_2024
from ggmltool.ggml.releases.march_2025 import RELEASE as MARCH_2025
from ggmltool.ggml.releases.release import Release

RELEASES: dict[str, Release] = {
    release.name: release
    for release in (
        GGML_0_26,
        GGML_0_21,
        GGML_0_20_2,
        MARCH_2025,
        JANUARY_2024,
    )
}
"""By name, the newest first."""

NEWEST = next(iter(RELEASES.values()))
"""The release that has all that a scenario can say."""

DEFAULT = NEWEST
"""The release that decides by default."""

BY_NAME: dict[str, Release] = {name: release for release in RELEASES.values() for name in release.names}
"""By all names that a release goes by: its own, the whole version, its build of llama.cpp."""


def listed() -> str:
    """The names of all releases for a sentence, the newest first, and which one decides by default."""
    *names, last = (f"{name} (the default)" if release is DEFAULT else name for name, release in RELEASES.items())
    return f"{', '.join(names)} or {last}"


def nearly(name: str) -> str:
    """What there is to say of a ggml that is none of the releases and decides almost as one of them; "" of others."""
    for release in RELEASES.values():
        for near in release.near:
            if name in near.names:
                return f"it decides as {release.name} does, but {near.but}; write {release.name}"
    return ""


T = TypeVar("T")


def own_data(release: Release, name: str, type: type[T]) -> T | None:
    """The data of a file in the folder of a release; None where it has none, and is as the release that it is like."""
    package = f"{__package__}.{release.folder}"
    return load(name, type, package) if exists(name, package) else None
