"""What tests need that pip does not bring. Where it is missing they skip, or fail where CI is set (`.ci/run`)."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle.lib import Lib, OracleUnavailable, load
from ggmltool.oracle.vulkan import Vulkan, VulkanUnavailable, vulkan
from tests.attach.programs import NoProgram, c_program

Made = TypeVar("Made")

EVERY = "--every-release"
"""The option of pytest for suites of all releases that a library judges."""


def program(name: str, package: str) -> pytest.MarkDecorator:
    """Marks tests that start a program, which is in a package of the system."""
    missing = shutil.which(name) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"needs {name}: install the system's package {package}")


def library(release: str = DEFAULT.name) -> Lib:
    """The real ggml of a release; without it the test, or the module that asks, is skipped."""
    try:
        return load(RELEASES[release])
    except OracleUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing), allow_module_level=True)


def real_vulkan() -> Vulkan:
    """The real Vulkan backend; without it the test that asks is skipped."""
    try:
        return vulkan()
    except VulkanUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def compiled(release: str = "0.20.2", *, debug: bool = False, stripped: bool = False, renamed: bool = False) -> Path:
    """The tests' program in C, linked with the ggml of a release; without compiler or library the test is skipped."""
    return made(lambda: c_program(release, debug=debug, stripped=stripped, renamed=renamed))


def made(program: Callable[[], Made]) -> Made:
    """A program of `tests.attach.programs`; where it cannot be made the test is skipped."""
    try:
        return program()
    except NoProgram as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def attachable() -> Path:
    """The tests' program in C, with gdb to look at it; without either the test is skipped."""
    if shutil.which("gdb") is None and not os.environ.get("CI"):
        pytest.skip("needs gdb: install the system's package gdb")
    return compiled()


def has_library(release: str = DEFAULT.name) -> bool:
    """Whether the real ggml of a release is here."""
    try:
        load(RELEASES[release])
    except OracleUnavailable:
        return False
    return True


def draws_png() -> bool:
    """Whether the extra that makes pixels of a drawing is here, as it has to be where CI is set."""
    return bool(os.environ.get("CI")) or importlib.util.find_spec("resvg_py") is not None


needs_resvg = pytest.mark.skipif(not draws_png(), reason="needs resvg_py: pip install 'ggmltool[png]'")
needs_dot = program("dot", "graphviz")
needs_groff = program("groff", "groff")
needs_bash = program("bash", "bash")
needs_chromium = program("chromium", "chromium")
needs_gdb = program("gdb", "gdb")
needs_gdbserver = program("gdbserver", "gdbserver")
needs_gcc = program("gcc", "gcc")
