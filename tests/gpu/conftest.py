"""For the tests that ask for one: a double of cupy, or a GPU of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from ggmltool.ggml.devices import gpu as gpus
from ggmltool.ggml.devices.gpu import Gpu
from tests.gpu.double import Cupy

Doubles = Callable[..., Cupy]


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Doubles]:
    """Makes a cupy that is found in place of the real one, with as many GPUs of as many bytes as asked for."""

    def make(devices: int = 1, total: int = 1 << 30) -> Cupy:
        cupy = Cupy(devices, total)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "cupyx.scipy.special", cupy.special())
        gpus.find.cache_clear()
        return cupy

    yield make
    gpus.find.cache_clear()


@pytest.fixture
def gpu() -> Gpu:
    """The first GPU of this machine; without one the test is skipped, with the reason."""
    gpus.find.cache_clear()
    found = gpus.find()
    if not found.gpus:
        pytest.skip(f"{found.why}; {found.remedy}")
    return found.gpus[0]
