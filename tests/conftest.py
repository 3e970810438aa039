"""Settings of all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from ggmltool.ggml.devices import gpu as gpus
from ggmltool.oracle.vulkan import Vulkan
from tests.cli.conftest import call
from tests.needs import EVERY, real_vulkan
from tests.shared import folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Tests run beside one another, and their products are small: threads would wait for each other. Numpy is here already
# and reads no variable any more; programs that tests start do.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# How long an example takes says nothing on a busy machine.
settings.register_profile("ggmltool", deadline=None)
settings.load_profile("ggmltool")

__all__ = ["call"]

OTHER, NOTE, NOTED = "--another-cpu", "--note-values", "--only-noted"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OTHER, action="store_true", help="compute as another CPU would: other roundings, other order")
    parser.addoption(EVERY, action="store_true", help="judge ops and tables of every release, not of two alone")
    parser.addoption(NOTE, metavar="FILE", help="append the names of the tests that compute values to FILE")
    parser.addoption(NOTED, metavar="FILE", help="run the tests alone that are named in FILE")


def pytest_configure(config: pytest.Config) -> None:
    threadpool_limits(1)
    shared = folder()
    # Hundreds of programs are started: each module of ours is compiled for the first of them, also where the sources'
    # folders are to stay as they are.
    starts_programs = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if starts_programs and os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared / "bytecode")
    # A shell that runs the tests in the background has ^C ignored, and so would all programs that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = [name for name in ("libggml", "xllamacpp", "hatchling") if find_spec(name) is None]
    if missing and os.environ.get("CI"):
        raise pytest.UsageError(f"{' and '.join(missing)} must be there: install ggmltool[test]")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto` has a worker more than there are processors: tests of screens, of gdb and of children mostly wait."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`-n` gives each worker tests that follow one another: what a module prepares is prepared once or twice."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@cache
def _noted(file: str) -> frozenset[str]:
    return frozenset(Path(file).read_text("utf-8").splitlines())


@cache
def _modules(file: str) -> frozenset[str]:
    """The modules of the tests that are noted."""
    return frozenset(name.partition("::")[0] for name in _noted(file))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    file = config.getoption(NOTED)
    if file is None or not collection_path.is_file():
        return None
    return True if collection_path.relative_to(config.rootpath).as_posix() not in _modules(file) else None


LONG = (
    "tests/test_readme.py",
    "tests/vulkan/",
    "tests/estimate/test_calibration.py",
    "tests/sources/test_search_wider.py",
)
"""Where single tests take ten seconds and more."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The long ones come first: at the end the other workers would wait for them.
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    file = config.getoption(NOTED)
    if file is None:
        return
    noted = _noted(file)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in noted])
    items[:] = [item for item in items if item.nodeid in noted]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is made while tests are collected stays: nobody looks for what could be let go."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    # What was collected stays: the garbage collector need not look at it again, nor a fork copy it.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _cpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --another-cpu values are those of one; with --note-values it is noted who reads any."""
    file = request.config.getoption(NOTE)
    if not request.config.getoption(OTHER) and file is None:
        yield
        return
    from tests.another_cpu import another_cpu, reads_values

    if file is None:
        with another_cpu():
            yield
        return
    with reads_values() as read:
        yield
    if read:
        with Path(file).open("a", encoding="utf-8") as stream:
            stream.write(f"{request.node.nodeid}\n")


if find_spec("cupy") is not None:

    @pytest.fixture(autouse=True)
    def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """The values of tests are numpy's, whatever is in the machine; those in tests/gpu look for themselves."""
        if request.path.parent.name != "gpu":
            monkeypatch.setattr(
                gpus, "find", lambda: gpus.Found(gpus.Gpus(), "tests use no GPU", "run it outside of them")
            )
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session")
def vulkan() -> Vulkan:
    """The real Vulkan backend."""
    return real_vulkan()


@pytest.fixture(scope="module")
def warmed() -> Iterator[None]:
    """The processes of a module that captures many models are forked from one that has imported what they need."""
    from tests.sources.warm import warm

    with warm():
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. Its driver keeps the thread's event loop, which other modules want: it ends with a module."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()
