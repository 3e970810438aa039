"""Random scenarios on GPUs, whose cupy is a double: the values of numpy, the same refusals, and no races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.scenario.run.devices import computing, make_backends, make_bufts
from ggmltool.scenario.run.run import Run
from tests.conformance.fuzz import scenario
from tests.gpu.conftest import Doubles

BLOCK = 20


def with_engine(source: dict[str, Any], engine: str) -> dict[str, Any]:
    """The scenario, computed by `engine` on all backends that it can stand for, and by numpy on the others."""
    backends = [{"name": b} if isinstance(b, str) else dict(b) for b in source["backends"]]
    asked = {**source, "backends": [b | {"engine": engine} for b in backends]}
    model = ggmltool.load(asked).model
    bufts = make_bufts(model)
    for backend, found in zip(
        asked["backends"], computing(model, make_backends(model, bufts), bufts.values()), strict=True
    ):
        if found.refusal:
            backend["engine"] = "numpy"
    return asked


def first_values(source: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """The run up to the values that are read first, or up to a refusal."""
    loaded = ggmltool.load(source)
    run = loaded.start(values=True)
    for step in loaded.steps():
        got = run.step(step)
        if isinstance(got, dict):
            return run, got
        if run.plans and not run.plans[-1].ok:
            break
    return run, {}


def refusals(run: Run) -> list[dict[str, Any]]:
    """What ggml refuses, in its own words: an explanation may name a value, whose last digit is the processor's."""
    return [{key: value for key, value in p.error or () if key != "explanation"} for p in run.plans]


def apart(got: Any, expected: Any) -> float:
    """The NMSE of what is finite; infinite where other elements are not."""
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    got, expected = got[finite].astype(np.float64), expected[finite].astype(np.float64)
    error, power = np.square(got - expected).sum(), np.square(expected).sum()
    return float(error / power) if power else float(error)


@pytest.mark.parametrize("first", range(0, 100, BLOCK))
def test_random_graphs_give_the_values_of_numpy(first: int, double: Doubles) -> None:
    on_gpu = 0
    wrong: dict[int, Any] = {}
    for seed in range(first, first + BLOCK):
        cupy = double(2, 1 << 40)
        source = scenario(seed, values=True)
        run, got = first_values(with_engine(source, "cupy"))
        on_gpu += any(b.engine == "cupy" for b in run.backends)
        host, expected = first_values(with_engine(source, "numpy"))
        if refusals(run) != refusals(host) or got.keys() != expected.keys():
            wrong[seed] = [p.error for p in run.plans if not p.ok]
        # What the CPU rounds to 8 bits or a half before it multiplies grows from node to node.
        allowed = 1e-2 if any(t in str(source["contexts"]) for t in ("f16", "_0", "_1", "_K", "_nl", "fp4")) else 1e-5
        far = {id: apart(got[id], values) for id, values in expected.items() if apart(got[id], values) > allowed}
        if far:
            wrong[seed] = far
        assert all(
            w.stream or w.what in ("arange", "ndarray.reshape", "matmul", "ndarray.sum")
            for w in cupy.state.timeline.works
        )
    assert wrong == {}
    assert on_gpu > BLOCK // 4
