"""Known runs of the real library (FACTS section 9), on the engine and again on the library."""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.oracle import run_many
from tests.conformance.judged import GPU, Judging

STEPS = ["reserve g", "alloc g"]


def layers(offload: int | None = None, parallel: bool = False, steps: list[str] | None = None) -> dict[str, Any]:
    """Products with weights on GPU, CPU and GPU again, a mask added after each; 40 rows of 64."""

    def values(ne: list[int], seed: int, **more: Any) -> dict[str, Any]:
        return {"type": "f32", "ne": ne, "data": {"normal": {"seed": seed}}, **more}

    def weight(seed: int) -> dict[str, Any]:
        return values([64, 64], seed)

    return {
        "backends": [{**GPU, "offload_min_batch": offload, "events": True}, "CPU"],
        "scheduler": {"parallel": parallel},
        "contexts": {
            "gpu": {"buft": "CUDA0", "usage": "weights", "tensors": {"w1.gpu": weight(1), "w3.gpu": weight(3)}},
            "cpu": {"buft": "CPU", "usage": "weights", "tensors": {"w2.cpu": weight(2)}},
            "inputs": {
                "tensors": {
                    "inp": values([64, 40], 4, flags=["input"]),
                    "mask": values([64, 40], 5, flags=["input"]),
                }
            },
        },
        "graphs": {
            "g": {
                "nodes": {
                    "a": "mul_mat(w1.gpu, inp)",
                    "am": "add(a, mask)",
                    "b": "mul_mat(w2.cpu, am)",
                    "bm": "add(b, mask)",
                    "d": "mul_mat(w3.gpu, bm)",
                    "dm": {"op": "add", "src": ["d", "mask"], "flags": ["output"]},
                },
                "expand": ["dm"],
            }
        },
        "steps": steps or STEPS,
    }


EXPERTS = {"type": "f32", "ne": [16, 16, 8]}
CHOICE = {
    "x": {"type": "f32", "ne": [16, 2, 32], "flags": ["input"]},
    "ids": {"type": "i32", "ne": [2, 32], "flags": ["input"]},
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "without offload": (
        layers(),
        {
            "leafs": ["w3.gpu", "w2.cpu", "w1.gpu", "inp", "mask"],
            "splits": [
                ("CUDA0", ["inp", "mask"], ["a", "am"]),
                ("CPU", ["am"], ["b"]),
                ("CUDA0", ["b"], ["bm", "d", "dm"]),
            ],
            "sizes": {"CUDA0": 30720, "CPU": 20480},
            # Copies take the room of copies that are done.
            "offset CUDA0#inp#0 CUDA0#mask#0 a am": [0, 10240, 20480, 20480],
            "offset CUDA0#b#0 bm d dm": [0, 0, 20480, 20480],
            "offset inp mask CPU#am#0 b": [0, 10240, 0, 10240],
            # ggml's print has no causes.
            "cause a am b bm d dm": ["1.wgt0", "2.sup", "1.wgt0", "2.sup", "1.wgt0", "2.sup"],
        },
    ),
    "offload from 32 rows needs a second split for the weight": (
        layers(32),
        {
            "splits": [("CUDA0", ["inp", "mask"], ["a", "am"]), ("CUDA0", ["w2.cpu"], ["b", "bm", "d", "dm"])],
            "sizes": {"CUDA0": 47104, "CPU": 20480},
            "offset b bm d": [0, 0, 20480],
            "cause b": "1.off",
        },
    ),
    "two layers of experts are two splits for them": (
        {
            "backends": [{**GPU, "offload_min_batch": 32}, "CPU"],
            "contexts": {
                "w": {"buft": "CPU", "usage": "weights", "tensors": {"up": EXPERTS, "down": EXPERTS}},
                "inputs": {"tensors": CHOICE},
            },
            "graphs": {"g": {"nodes": {"h": "mul_mat_id(up, x, ids)", "y": "mul_mat_id(down, h, ids)"}}},
            "steps": STEPS,
        },
        {
            "splits": [("CUDA0", ["up", "x", "ids"], ["h"]), ("CUDA0", ["down"], ["y"])],
            "sizes": {"CUDA0": 16640, "CPU": 4352},
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_figures_of_known_graphs(judged: Judging, case: str) -> None:
    source, figures = CASES[case]
    j = judged(source)
    j.check(figures)
    assert (j.splits(0), j.sizes(0)) == (j.splits(1), j.sizes(1))


@pytest.mark.parametrize("parallel", [False, True])
def test_computing_waits_and_copies_in_ggmls_order(parallel: bool, judged: Judging) -> None:
    j = judged(layers(parallel=parallel, steps=["alloc g", "compute g"]))
    assert j.sizes() == ({"CUDA0": 143360, "CPU": 133120} if parallel else {"CUDA0": 30720, "CPU": 20480})
    assert any(line.startswith("event_wait") for line in j.trace()) == parallel


def test_an_abort_is_the_last_plan_and_the_next_scenario_goes_on(release: str) -> None:
    twice, once = (
        ggmltool.load({"ggmltool": 1, **layers(steps=["reserve g", *["alloc g"] * n])}, ggml=release).model
        for n in (3, 1)
    )
    aborted, fine = run_many([twice, once])
    assert [plan["ok"] for plan in aborted.plans] == [True, True, False]
    assert aborted.plans[-1]["error"] == {
        "kind": "abort",
        "condition": "!sched->is_alloc",
        "message": "GGML_ASSERT(!sched->is_alloc) failed",
    }
    assert [plan["ok"] for plan in fine.plans] == [True, True]
