"""Models of real shapes are captured from their headers alone, as large as they are published."""

from __future__ import annotations

import pytest

from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.sources.fake_gpus import FakeGpu, Settings
from tests.sources.library import needs_library
from tests.sources.real_models import REAL_MODELS, real
from tests.sources.test_place import check

pytestmark = needs_library

PUBLISHED = {
    "gemma-270m": (0.27, 18),
    "gemma-27b": (27.0, 62),
    "glm-4.5-air": (106.0, 46),
    "llama-70b": (70.6, 80),
    "mamba-2.8b": (2.77, 64),
    "nemotron-49b": (49.9, 80),
    "qwen2vl-7b": (7.6, 28),
    "qwen3-30b-a3b": (30.5, 48),
}
"""Billions of parameters, and layers."""


def test_every_model_has_a_published_size() -> None:
    assert set(PUBLISHED) == set(REAL_MODELS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_is_captured_from_its_header(name: str) -> None:
    path = real(name)
    facts = capture(path, CaptureOptions(n_ctx=4096, phase="both")).facts
    billions, layers = PUBLISHED[name]
    assert facts["n_layer"] == layers
    assert facts["n_params"] / 1e9 == pytest.approx(billions, rel=0.01)
    assert path.stat().st_size > facts["model_size"]
    assert path.stat().st_blocks * 512 < 1 << 20


SPLITS = {
    "llama-70b": (20, 14, 28, 15),
    "mamba-2.8b": (),
    "nemotron-49b": (20, 14, 28, 15),
    "qwen3-30b-a3b": (30, 16),
}
"""-ts, a share for each GPU."""


@pytest.mark.parametrize("name", SPLITS)
def test_a_model_of_real_shape_is_placed_as_llama_cpp_does(name: str) -> None:
    gpus = [FakeGpu(f"CUDA{i}", memory=(24 - 4 * i) << 30) for i in range(max(len(SPLITS[name]), 1))]
    n_gpu_layers = PUBLISHED[name][1] - 3
    check(real(name), gpus, Settings(n_gpu_layers, tensor_split=SPLITS[name], options=CaptureOptions(n_ctx=4096)))
