"""How much of the experts' weights a split can copy, held against what is copied when the graph is computed."""

from __future__ import annotations

import random
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.splits.copied import expert_copies, experts_line
from ggmltool.ggml.events import Event, TensorWritten
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.tensor_info import TensorInfo


def scenario(columns: int, n_expert: int, used: int, tokens: int, seed: int) -> dict[str, Any]:
    """Experts on the host whose work a GPU asks for; each token has `used` of them, by chance."""
    rng = random.Random(seed)
    ids = [rng.sample(range(n_expert), used) for _ in range(tokens)]
    data = {"normal": {"seed": 1}}
    return {
        "ggmltool": 1,
        "ggml": "0.20.2",
        "backends": ["CUDA0", "CPU"],
        "contexts": {
            "experts": {
                "buft": "CPU",
                "usage": "weights",
                "tensors": {"up": {"type": "f32", "ne": [columns, 4, n_expert], "data": data}},
            },
            "inputs": {
                "tensors": {
                    "x": {"type": "f32", "ne": [columns, 1, tokens], "flags": ["input"], "data": data},
                    "ids": {"type": "i32", "ne": [used, tokens], "flags": ["input"], "data": ids},
                }
            },
        },
        "graphs": {"main": {"nodes": {"y": "mul_mat_id(up, x, ids)"}}},
    }


@pytest.mark.parametrize("seed", range(12))
def test_what_is_copied_lies_between_the_least_and_the_most(seed: int) -> None:
    rng = random.Random(seed)
    n_expert = rng.choice([1, 4, 16, 64])
    used = rng.randint(1, min(4, n_expert))
    written: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, TensorWritten) and event.tensor.startswith("CUDA0#up#"):
            written.append(event.nbytes)

    loaded = ggmltool.load(scenario(rng.choice([8, 64, 512]), n_expert, used, rng.choice([32, 40]), seed))
    run = loaded.start(listen, values=True)
    for step in loaded.model.steps:
        run.step(step)
    plan = run.plans[-1]
    (copy,) = expert_copies(loaded.model, plan, tensors(loaded.model), run.bufts)
    assert (copy.n_expert, copy.used_min) == (n_expert, used)
    assert copy.nbytes_min <= sum(written) <= copy.nbytes_max <= copy.nbytes
    assert "1 weight of experts" in experts_line([copy])


def test_what_older_ggml_copies_whole_is_not_said_to_be_less() -> None:
    loaded = ggmltool.load(scenario(8, 16, 2, 32, 1), ggml="2025-03")
    run: Run = loaded.start()
    for step in loaded.model.steps:
        run.step(step)
    assert expert_copies(loaded.model, run.plans[-1], tensors(loaded.model), run.bufts) == []
    assert experts_line([]) == ""


def tensors(model: Any) -> dict[str, TensorInfo]:
    specs = (*model.tensors(), *model.graphs["main"].nodes)
    return {t.id: TensorInfo(t.id, t.name, t.type.name, t.ne, t.nb[2] * t.ne[2]) for t in specs}
