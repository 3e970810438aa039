"""Which real library is taken for a release, and what is said where there is none."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.releases.release import Library
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle import lib
from ggmltool.oracle.lib import LIBRARIES, Files, OracleUnavailable, libraries, load, open_library
from ggmltool.structs.mirrors import mirrors_of
from tests.cli.conftest import Call
from tests.needs import has_library, library

ROOT = Path(__file__).resolve().parents[2]
WITH_LIBRARY = [release for release in RELEASES.values() if release.library is not None]
NEWEST = WITH_LIBRARY[0]


@pytest.fixture
def nothing_loaded() -> Iterator[None]:
    load.cache_clear()
    yield
    load.cache_clear()


@pytest.mark.parametrize("release", WITH_LIBRARY, ids=lambda release: release.name)
def test_a_releases_library_is_the_one_that_says_so(release: object) -> None:
    assert isinstance(release, type(DEFAULT))
    real = library(release.name)
    assert release.library is not None
    assert real.version == release.library.version
    assert all(real.exports(function) for function in release.library.exports)


def test_libraries_of_two_releases_live_in_one_process() -> None:
    real = [load(release) for release in WITH_LIBRARY if has_library(release.name)]
    assert len({one.version for one in real}) == len({id(one.base) for one in real}) == len(real)
    assert [one.ggml_version().decode() for one in real] == [one.version for one in real]


@pytest.mark.usefixtures("nothing_loaded")
def test_without_any_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib, "libraries", lambda: iter(()))
    assert NEWEST.library is not None
    with pytest.raises(OracleUnavailable) as caught:
        load(NEWEST)
    name, package = NEWEST.name, NEWEST.library.requirement
    assert str(caught.value) == (
        f"The real library of ggml {name} is missing; no ggml is installed. Install it with `pip install {package}` "
        f"(ggmltool's extra `oracle`); or, beside another version, `pip install --target FOLDER {package}` and "
        f"GGMLTOOL_LIBRARIES=FOLDER"
    )


@pytest.mark.usefixtures("nothing_loaded")
def test_another_version_is_named_and_where_it_lies(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    other = next(r for r in reversed(WITH_LIBRARY) if has_library(r.name))
    real = load(other)
    load.cache_clear()
    monkeypatch.setattr(lib, "libraries", lambda: iter([real.files]))
    wanted = next(r for r in WITH_LIBRARY if r is not other)
    result = call("verify", "--ggml", wanted.name, "matmul", columns=10_000)
    assert result.status == 2
    assert f"missing; found only {real.said} ({real.files.base}). Install it with" in result.err


def test_another_build_of_the_same_version_is_told_by_what_it_lacks() -> None:
    real = library()
    wanted = Library(real.version, "package", exports=("ggml_version", "ggml_nonsense"))
    assert real.differs_from(wanted) == f"{real.said} without ggml_nonsense"
    assert real.differs_from(wanted._replace(version="7.0.0")) == real.said
    assert real.differs_from(wanted._replace(exports=())) == ""


def test_a_release_that_no_package_carries_has_no_judge() -> None:
    without = next(release for release in RELEASES.values() if release.library is None)
    with pytest.raises(
        ggmltool.InspectError, match=f"No package carries the real library of ggml {without.name}; there"
    ):
        ggmltool.load("matmul", ggml=without.name).verify()


def test_a_file_that_is_no_library_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "libggml-base.so"
    path.write_text("no library")
    with pytest.raises(OracleUnavailable, match=r"libggml-base\.so cannot be used: "):
        open_library(Files(path, path))


def test_folders_of_the_variable_are_looked_through_after_the_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LIBRARIES, raising=False)
    installed = list(libraries())
    files = []
    for folder, (package, names) in zip(("b", "a"), lib.PACKAGES.items(), strict=True):
        for name in names[0]:
            path = tmp_path / folder / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        files.append(Files(*(tmp_path / folder / package / name for name in names[0])))
    monkeypatch.setenv(
        LIBRARIES, os.pathsep.join([str(tmp_path / "b"), "", str(tmp_path / "none"), str(tmp_path / "a")])
    )
    assert list(libraries()) == [*installed, *files]


MANY = "ggml_backend_buft_alloc_buffer_n"
COPY, REALLOC = (f"ggml_backend_sched_set_{name}_callback" for name in ("copy", "realloc"))


@pytest.mark.parametrize(
    ("functions", "places"),
    [
        ((), {"context_buffer": 0x400, "debug_realloc": 0x418, "debug_graph_size": 0x41C}),
        (
            (MANY, COPY),
            {"callback_copy": 0x400, "context_buffer": 0x410, "debug_realloc": 0x428, "debug_graph_size": 0x42C},
        ),
        (
            (MANY, COPY, REALLOC),
            {"callback_realloc": 0x410, "debug": 0x434, "debug_graph_size": 0x438, "debug_realloc": 0x440},
        ),
    ],
    ids=["0.20.2", "0.26", "0.27"],
)
def test_the_scheduler_has_the_fields_of_what_the_library_exports(
    functions: tuple[str, ...], places: dict[str, int]
) -> None:
    sched = mirrors_of("0.26.0", functions.__contains__)["ggml_backend_sched"]
    assert {name: getattr(sched, name).offset for name in places} == places


def test_a_buffer_type_has_two_functions_more_where_buffers_are_made_for_many_tensors() -> None:
    before, after = (mirrors_of("0.26.0", has)["ggml_backend_buffer_type"] for has in (lambda _: False, lambda _: True))
    assert (before.device.offset, after.device.offset) == (48, 64)


def test_the_manual_and_the_extras_name_every_library() -> None:
    page = (ROOT / "ggmltool" / "docs" / "compute.md").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for release in WITH_LIBRARY:
        assert release.library is not None
        assert f"| `{release.name}` | `{release.library.requirement}`" in page
        assert not release.library.extra or release.library.requirement in extras[release.library.extra]
