"""Every sample on the real library: plans, debug text and refusals are those of the engine."""

from __future__ import annotations

from pathlib import Path

import ggmltool
from ggmltool.oracle import run
from tests.conformance.compare import compare_runs
from tests.conformance.run import engine_run, judge, planning_only


def test_the_real_library_plans_a_sample_as_the_engine_does(sample: Path, release: str) -> None:
    loaded = ggmltool.load(sample, ggml=release)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert plans
    assert judge(plans, texts, run(model, 2, values=False)) == []


def test_writing_to_a_tensor_without_a_buffer_ends_the_real_library_too(release: str) -> None:
    loaded = ggmltool.load("buffer-not-set", ggml=release)
    plans = loaded.run()
    assert plans[-1]["error"]["message"] == 'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed'
    assert compare_runs(plans, run(loaded.model).plans) == []
