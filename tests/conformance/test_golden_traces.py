"""Known runs of the real library (FACTS section 9), on the engine and again on the library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import ggmltool
from ggmltool.oracle import run_many
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import Buffer, Tensor
from tests.conformance.judged import GPU, Judged, Judging

STEPS = ["reserve g", "alloc g"]
ORDER = ["alloc g", "compute g"]


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


def offsets(j: Judged, *ids: str) -> list[int | None]:
    return [j.offset(i) for i in ids]


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


def test_four_pipeline_copies_come_before_everything_else(judged: Judging) -> None:
    j = judged(layers(parallel=True))
    assert len(j.splits()) == 3
    assert j.sizes() == {"CUDA0": 143360, "CPU": 133120}
    on_gpu = [f"CUDA0#{t}#{c}" for t in ("inp", "mask", "b") for c in range(4)]
    assert offsets(j, *on_gpu) == [10240 * i for i in range(12)]
    assert offsets(j, "a", "d") == [122880, 133120]
    copies = [(c.of, c.offset) for c in j.last.copies if c.backend == "CPU"]
    assert copies == [(t, 10240 * (4 * i + c)) for i, t in enumerate(("inp", "mask", "am")) for c in range(4)]
    assert j.offset("b") == 122880


def test_the_debug_print_has_ggmls_lines(judged: Judging) -> None:
    text = judged(layers()).texts[-1].split("\n")
    assert "## SPLIT #0: CUDA0 # 2 inputs: [inp (  10K)] [mask (  10K)] " in text
    assert (
        "node #  0 (   MUL_MAT):                    a (  10K) [CUDA0         ] use=1,c=1:"
        "               w1.gpu (  16K) [CUDA0         ]          CUDA0#inp#0 (  10K) [ NULL         ]"
    ) in text


def computing(j: Judged) -> list[str]:
    """The calls from the first copy on."""
    trace = j.trace()
    return trace[trace.index("set_tensor CUDA0 CUDA0#inp#0 0 10240") - 1 :]


def test_computing_waits_and_copies_in_ggmls_order(judged: Judging) -> None:
    assert computing(judged(layers(steps=ORDER))) == [
        "synchronize CUDA0",
        "set_tensor CUDA0 CUDA0#inp#0 0 10240",
        "synchronize CUDA0",
        "set_tensor CUDA0 CUDA0#mask#0 0 10240",
        "graph_compute CUDA0 [a, am]",
        "synchronize CPU",
        "synchronize CUDA0",
        "synchronize CPU",
        "get_tensor CUDA0 am 0 10240",
        "graph_compute CPU [b]",
        "synchronize CUDA0",
        "synchronize CPU",
        "synchronize CUDA0",
        "set_tensor CUDA0 CUDA0#b#0 0 10240",
        "graph_compute CUDA0 [bm, d, dm]",
        "synchronize CUDA0",
        "synchronize CPU",
    ]


def test_pipeline_copies_are_waited_for_by_events(judged: Judging) -> None:
    assert computing(judged(layers(parallel=True, steps=ORDER))) == [
        "event_synchronize CUDA0 0",
        "set_tensor CUDA0 CUDA0#inp#0 0 10240",
        "event_synchronize CUDA0 0",
        "set_tensor CUDA0 CUDA0#mask#0 0 10240",
        "graph_compute CUDA0 [a, am]",
        "event_record CUDA0 0",
        "synchronize CPU",
        "synchronize CUDA0",
        "synchronize CPU",
        "get_tensor CUDA0 am 0 10240",
        "graph_compute CPU [b]",
        "event_wait CUDA0 0",
        "synchronize CPU",
        "event_synchronize CUDA0 0",
        "set_tensor CUDA0 CUDA0#b#0 0 10240",
        "graph_compute CUDA0 [bm, d, dm]",
        "event_record CUDA0 0",
        "synchronize CUDA0",
        "synchronize CPU",
    ]


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


def test_the_cpu_device_runs_ops_whose_source_lies_in_memory_it_cannot_use(lib: Lib) -> None:
    device = lib.ggml_backend_reg_dev_get(lib.ggml_backend_cpu_reg(), 0)
    foreign = lib.structs["ggml_backend_buffer_type"]()
    foreign.iface.get_name = ctypes.cast(lib.base.ggml_version, ctypes.c_void_p).value
    buffer = Buffer(buft=ctypes.addressof(foreign), size=1 << 20)
    with lib.context() as ctx:
        weight = lib.tensor(ctx, "f32", (64, 64))
        product = lib.call("mul_mat", ctx, weight, lib.tensor(ctx, "f32", (64, 3)))
        Tensor.from_address(weight).buffer = ctypes.addressof(buffer)
        assert not lib.ggml_backend_dev_supports_buft(device, ctypes.addressof(foreign))
        assert lib.ggml_backend_dev_supports_op(device, product)
