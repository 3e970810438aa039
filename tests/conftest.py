"""Settings of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

from ggmltool.ggml.devices import gpus
from tests.another_cpu import another_cpu

# How long an example takes says nothing on a busy machine.
settings.register_profile("ggmltool", deadline=None)
settings.load_profile("ggmltool")

OTHER = "--another-cpu"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OTHER, action="store_true", help="compute as another CPU would: other roundings, other order")


@pytest.fixture(autouse=True)
def _cpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --another-cpu values are those of one."""
    if not request.config.getoption(OTHER):
        yield
        return
    with another_cpu():
        yield


if find_spec("cupy") is not None:

    @pytest.fixture(autouse=True)
    def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """The values of tests are numpy's, whatever is in the machine; those in tests/gpu look for themselves."""
        if request.path.parent.name != "gpu":
            monkeypatch.setattr(
                gpus, "find", lambda: gpus.Found(gpus.Gpus(), "tests use no GPU", "run it outside of them")
            )
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
