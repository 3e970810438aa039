"""Estimates of placements with experts on the CPU, against two that were published with the names of both devices."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.estimate.bench_models import bench_model
from tests.sources.library import needs_library
from tests.sources.real_models import real

pytestmark = needs_library

SOURCES = "https://github.com/AlexsJones/llmfit/pull/755", "https://github.com/AlexsJones/llmfit/pull/775"
"""An RTX 2080 and a Core i9-10900X: tokens of an answer in a second, for one request of a server."""


@pytest.mark.parametrize(
    ("model", "layers", "measured"), [("qwen3-30b-a3b q4_K_M", 36, 36.7), ("gpt-oss-20b mxfp4", 12, 36.4)]
)
def test_experts_on_the_cpu_are_met_within_a_factor_and_a_half(model: str, layers: int, measured: float) -> None:
    path = real("qwen3-30b-a3b") if model.startswith("qwen3") else bench_model(model)
    captured = capture(path, CaptureOptions(n_ctx=4096, phase="both"))
    placed = ggmltool.load(captured.scenario).place(n_cpu_moe=layers, device=["RTX 2080", "CPU=Core i9-10900X"])
    speeds = placed.as_dict()["speeds"]["tokens_per_second"]
    assert measured / 1.1 < speeds["mid"] < 1.5 * measured
