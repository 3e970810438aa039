"""Where real libraries are: in installed packages, and in the folders that GGMLTOOL_LIBRARIES names."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LIBRARIES = "GGMLTOOL_LIBRARIES"
"""The environment variable with further folders, each made by `pip install --target`, separated by os.pathsep."""

PACKAGES = {
    "libggml": (("lib64/libggml-base.so", "lib64/libggml-cpu.so"), ("lib/libggml-base.so", "lib/libggml-cpu.so")),
    "xllamacpp": (("xllamacpp.abi3.so", "xllamacpp.abi3.so"),),
}
"""Packages that carry a ggml: the files that have its base and its CPU backend."""


class Files(NamedTuple):
    """A library on disk: what has its base, and what its CPU backend (often the same file)."""

    base: Path
    cpu: Path


def libraries() -> Iterator[Files]:
    """All that are there, the installed ones first."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from _in_package(name, Path(place))
    for folder in _folders():
        for name in PACKAGES:
            yield from _in_package(name, Path(folder) / name)


def places(package: str) -> Iterator[Path]:
    """Where a package is: installed, then in the folders."""
    spec = importlib.util.find_spec(package)
    yield from map(Path, (spec.submodule_search_locations or ()) if spec else ())
    yield from (Path(folder) / package for folder in _folders())


def _folders() -> list[str]:
    return [folder for folder in os.environ.get(LIBRARIES, "").split(os.pathsep) if folder]


def _in_package(name: str, folder: Path) -> Iterator[Files]:
    for base, cpu in PACKAGES[name]:
        files = Files(folder / base, folder / cpu)
        if files.base.exists() and files.cpu.exists():
            yield files
            return
