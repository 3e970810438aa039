"""What is told of one release only: the TOML files in its folder, beside the parts of its engine."""

from __future__ import annotations

from typing import TypeVar

from ggmltool.data import exists, load
from ggmltool.ggml.releases import table
from ggmltool.ggml.releases.release import Release

T = TypeVar("T")


def own_data(release: Release, name: str, type: type[T]) -> T | None:
    """The data of a file in the folder of a release; None where it has none, and is as the release that it is like."""
    package = f"{table.__package__}.{release.folder}"
    return load(name, type, package) if exists(name, package) else None
