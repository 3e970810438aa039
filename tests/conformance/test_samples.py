"""Every sample on the real library: plans, debug text and refusals are those of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("libggml")

import ggmltool
from ggmltool.oracle import run
from ggmltool.scenario.samples import sample_name
from tests.conformance.compare import compare_runs
from tests.conformance.run import engine_run, judge, planning_only
from tests.conformance.samples import samples


@pytest.mark.parametrize("path", samples(), ids=sample_name)
def test_the_real_library_plans_a_sample_as_the_engine_does(path: Path) -> None:
    loaded = ggmltool.load(path)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert plans
    assert judge(plans, texts, run(model, 2)) == []


def test_writing_to_a_tensor_without_a_buffer_ends_the_real_library_too() -> None:
    loaded = ggmltool.load(next(p for p in samples() if sample_name(p) == "buffer-not-set"))
    plans = loaded.run()
    assert plans[-1]["error"]["message"] == 'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed'
    assert compare_runs(plans, run(loaded.model).plans) == []
