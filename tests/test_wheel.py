"""What a wheel has besides the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

from ggmltool.cli.reference import manual_page
from ggmltool.scenario.samples import samples
from tests.cli.conftest import Call

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("ggmltool-*.whl")
    return zipfile.ZipFile(path)


def test_a_wheel_has_the_manual_page_that_the_command_prints(wheel: zipfile.ZipFile, call: Call) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".data/data/share/man/man1/ggmltool.1"))
    page = wheel.read(name).decode()
    assert page == manual_page() == call("man").out


def test_a_wheel_has_every_sample_and_no_tests(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert {f"ggmltool/sample_graphs/{path.name}" for path in samples()} <= set(names)
    assert not [name for name in names if name.startswith(("tests", ".ci"))]


def test_a_wheel_has_the_pages_that_help_shows(wheel: zipfile.ZipFile, call: Call) -> None:
    """U25"""
    assert wheel.read("ggmltool/docs/scenario.md").decode() == call("help", "scenario").out


def test_a_wheel_has_the_reference_data(wheel: zipfile.ZipFile) -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "ggmltool").rglob("*.toml")]
    assert len(files) > 20
    assert set(files) <= set(wheel.namelist())
