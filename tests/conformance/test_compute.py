"""Computing beside the real library: the same calls on the devices in the same order, and the same values."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy
import pytest

from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.table import RELEASES
from tests.conformance.compare import calls_of, trace_of
from tests.conformance.fuzz import scenario
from tests.conformance.releases import seeds_of
from tests.drawn import Drawn

SEEDS = 160
BATCH = 80
MOST_ELEMENTS = 2_000_000
"""Of all tensors of a scenario with values: some random weights would have gigabytes."""

SORTED_STABLY = 16
"""Elements up to which C++'s sort leaves equal ones in their order."""

LARGEST = 32 << 20
"""Bytes of compute buffers that are worth computing."""

MOE: dict[str, Any] = {
    "ggmltool": 1,
    "backends": [{"name": "GPU0", "profile": "custom", "offload_min_batch": 1, "events": True}, "CPU"],
    "contexts": {
        "weights": {
            "buft": "CPU",
            "usage": "weights",
            "tensors": {
                "up": {"type": "f32", "ne": [16, 16, 8], "data": {"normal": {"seed": 1}}},
                "down": {"type": "f32", "ne": [16, 16, 8], "data": {"normal": {"seed": 2}}},
                "w": {"type": "f32", "ne": [16, 16], "data": {"normal": {"seed": 3}}},
            },
        },
        "inputs": {
            "tensors": {
                "x": {"type": "f32", "ne": [16, 1, 2], "flags": ["input"], "data": {"normal": {"seed": 4}}},
                "ids": {"type": "i32", "ne": [2, 2], "flags": ["input"], "data": [[1, 2], [5, 7]]},
            }
        },
    },
    "graphs": {
        "main": {
            "nodes": {
                "a": "mul_mat_id(up, x, ids)",
                "b": "silu(a)",
                "c": "mul_mat_id(down, b, ids)",
                "d": "mul_mat(w, c)",
                "y": {"op": "scale", "src": ["d"], "s": 2.0, "flags": ["output"]},
            }
        }
    },
    "steps": ["reserve main", "alloc main", "compute main", "reset", "alloc main", "compute main", {"get": ["y"]}],
}


def both(models: list[Any]) -> list[tuple[Any, Any]]:
    """Every scenario on the engine, with its events, and on the real library."""
    from ggmltool.oracle.worker import run_many

    out = []
    for scenario_, real in zip(models, run_many([m.model for m in models]), strict=True):
        events: list[Any] = []
        run = scenario_.start(events.append, values=True)
        values: dict[str, Any] = {}
        for step in scenario_.model.steps:
            result = run.step(step)
            if run.plans and not run.plans[-1].ok:
                break
            if isinstance(result, dict):
                values.update(result)
        out.append(((run, events, values), real))
    return out


def calls(events: list[Any], real: Any) -> tuple[list[str], list[str]]:
    """What was asked of the devices: ours, the library's."""
    return trace_of(events, lambda buft: buft != "CPU"), calls_of(real.trace)


def nmse(ours: Any, real: Any) -> float:
    a, b = ours.astype("f8").ravel(), real.astype("f8").ravel()
    finite = numpy.isfinite(a)
    assert numpy.array_equal(finite, numpy.isfinite(b))
    a, b = a[finite], b[finite]
    if not a.size or numpy.abs(a - b).max() < 1e-6:
        return 0.0
    return float(((a - b) ** 2).sum() / max((b**2).sum(), 1e-30))


@pytest.mark.parametrize("parallel", [False, True])
def test_a_moe_layer_copies_only_the_experts_it_uses_if_the_scheduler_does_that(parallel: bool, release: str) -> None:
    import ggmltool

    scenario_ = ggmltool.load(MOE | {"scheduler": {"parallel": parallel}}, ggml=release)
    [((_, events, values), real)] = both([scenario_])
    ours, theirs = calls(events, real)
    assert ours == theirs
    copied = [line for line in ours if line.startswith("set_tensor GPU0 GPU0#up#0")]
    used = ["1024 2560", "5120 1536", "7168 1024"]
    expected = used if RELEASES[release].rules.copies_used_experts else ["0 8192"]
    assert copied[: len(expected)] == [f"set_tensor GPU0 GPU0#up#0 {where}" for where in expected]
    assert nmse(values["y"], real.values[0]["y"]) < 1e-7


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_random_scenarios_compute_the_same_values_by_the_same_calls(first: int, release: str) -> None:
    drawn = Drawn(seeds_of(release, SEEDS)[first:][:BATCH], BATCH // 8)
    models = []
    for seed in drawn:
        made = with_data(seed, release)
        if made is not None and made.plan().ok:
            models.append(made)
            drawn.found += 1
    for model, ((run, events, values), real) in zip(models, both(models), strict=True):
        if not run.plans[-1].ok or not all(plan["ok"] for plan in real.plans):
            continue
        if all(b.profile != "CUDA" for b in model.model.backends):
            # The library's stand-in for CUDA does not copy asynchronously, as the engine's does.
            ours, theirs = calls(events, real)
            assert ours == theirs, model.model.name
        unsure = depends_on_equal_elements(model)
        for got in real.values:
            for name, expected in got.items():
                if name in unsure:
                    continue
                assert nmse(values[name], expected) < 2e-3, (model.model.name, name)


def depends_on_equal_elements(model: Any) -> set[str]:
    """The nodes that hang on an order of rows with more than 16 elements: ggml's sort orders equal ones somehow."""
    unsure: set[str] = set()
    tensors = {t.id: t for t in model.model.tensors()}
    for graph in model.model.graphs.values():
        tensors |= {n.id: n for n in graph.nodes}
        for n in graph.nodes:
            sorts = n.op in (Op.ARGSORT, Op.TOP_K) and tensors[n.src[0]].ne[0] > SORTED_STABLY
            if sorts or not unsure.isdisjoint(n.src):
                unsure.add(n.id)
    return unsure


def with_data(seed: int, release: str) -> Any:
    """A random scenario with values in its tensors: small normal ones, indices 0; None where they cannot be made."""
    import ggmltool
    from ggmltool.ggml.tensor import FLAG_OUTPUT
    from ggmltool.scenario.spec import Step

    document = scenario(seed)
    tensors = [(c["tensors"], name) for c in document["contexts"].values() for name in c["tensors"]]
    for i, (context, name) in enumerate(tensors):
        entry = context[name]
        if isinstance(entry, str):
            kind, _, ne = entry.partition("[")
            entry = context[name] = {"type": kind, "ne": [int(n) for n in ne.rstrip("]").split(",")]}
        if "view_src" not in entry:
            integer = entry["type"] in ("i8", "i16", "i32", "i64")
            entry["data"] = {"fill": 0} if integer else {"normal": {"seed": seed * 100 + i, "std": 0.5}}
    try:
        scenario_ = ggmltool.load(document, ggml=release)
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        return None
    model = scenario_.model
    if sum(prod(t.ne) for t in model.tensors()) > MOST_ELEMENTS:
        return None
    name, graph = next(iter(model.graphs.items()))
    nodes = {n.id for n in graph.nodes}
    outputs = [n.id for n in graph.nodes if n.flags & FLAG_OUTPUT] or [e for e in graph.expand[-1:] if e in nodes]
    model.steps = [Step("reserve", name), Step("alloc", name), Step("compute", name)]
    if outputs:
        model.steps.append(Step("get", None, (), tuple(outputs)))
    return scenario_ if sum(size for _, size in scenario_.plan(name).buffer_sizes) < LARGEST else None
