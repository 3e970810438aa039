"""The releases that tests judge by their real libraries, and the samples that these can be asked about.

    python -m tests.conformance.releases

prints the packages with libraries that the extra `test` leaves out, since of each package it can name one version only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import requires
from pathlib import Path
from typing import Any, TypeVar

from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import Lib
from ggmltool.scenario import samples as shipped

Test = TypeVar("Test", bound=Callable[..., None])

JUDGED = tuple(release.name for release in RELEASES.values() if release.library is not None)
"""All that a package carries the library of, the newest first."""


def seeds_of(release: str, n: int) -> range:
    """`n` seeds for a release, which no other has: what they share is the same engine."""
    first = n * JUDGED.index(release)
    return range(first, first + n)


def in_turn(argument: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """A test of each value, judged by one of the releases in turn, or with `--every-release` by each."""

    def mark(test: Test) -> Test:
        test.in_turn = (argument, tuple(values))  # type: ignore[attr-defined]
        return test

    return mark


@cache
def release_of(lib: Lib) -> Release:
    """The release that a library is of."""
    return next(r for r in RELEASES.values() if r.library is not None and not lib.differs_from(r.library))


def left_out() -> list[str]:
    """The packages with the library of a release that are not in the extra `test`."""
    asked = [requirement.replace('"', "'").partition("; ") for requirement in requires("ggmltool") or ()]
    tested = {package for package, _, when in asked if when == "extra == 'test'"}
    needed = [RELEASES[name].library for name in JUDGED]
    return [library.requirement for library in needed if library is not None and library.requirement not in tested]


_NAMED = re.compile(r"^ggml: *[\"']?([^\s\"'#]+)", re.MULTILINE)


@cache
def samples(release: str) -> tuple[Path, ...]:
    """All samples but those that are for another ggml, by name."""
    named = {
        path: _NAMED.search(path.read_text("utf-8") if path.suffix == ".yaml" else "") for path in shipped.samples()
    }
    return tuple(path for path, found in named.items() if found is None or found[1] == release)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{package}\n" for package in left_out()))
