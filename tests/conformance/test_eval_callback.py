"""Eval callbacks beside the real library: the same questions, batches, waits and calls, in the same order."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.errors import GgmlError
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner, ScenarioRun
from ggmltool.scenario.scenario import LoadedScenario
from tests.conformance.compare import calls_of, trace_of
from tests.conformance.judged import Judged, judged
from tests.conformance.releases import release_of, seeds_of
from tests.conformance.test_compute import MOE, nmse, with_data
from tests.drawn import Drawn

SEEDS = 80
BATCH = 40

ASK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)

Answer = Callable[[str, bool], bool]
"""What a callback says to a node, by its id: asked (True), or called with it (False)."""


def ours(scenario: LoadedScenario, answer: Answer) -> tuple[bool, list[str]]:
    """Whether the engine did all steps, and what it asked of the devices and of the callback."""
    events: list[Any] = []
    lines: list[str] = []

    def take() -> None:
        lines.extend(trace_of(events, lambda buft: buft != "CPU"))
        events.clear()

    def callback(t: Any, ask: bool) -> bool:
        take()
        lines.append(f"{'ask' if ask else 'call'} {t.id}")
        return answer(t.id, ask)

    run = scenario.start(events.append, values=True)
    try:
        run.start().set_eval_callback(callback)
    except GgmlError:
        return False, lines
    for step in scenario.model.steps:
        run.step(step)
        if run.plans and not run.plans[-1].ok:
            return False, lines
    take()
    return True, lines


def theirs(lib: Lib, scenario: LoadedScenario, answer: Answer) -> list[str] | None:
    """The same of the real library; None where it aborted."""
    model = scenario.model

    def child() -> list[str]:
        runner = Runner(lib, 0)
        world = World(runner.callbacks, model, True)
        run = ScenarioRun(runner, model, world)
        run.start()

        def on_eval(address: int, ask: bool, _user: int | None) -> bool:
            name = world.tensor_name(address)
            world.record(f"{'ask' if ask else 'call'} {name}")
            return answer(name, ask)

        callback = ASK(on_eval)
        lib.ggml_backend_sched_set_eval_callback(run.sched, callback, None)
        for step in model.steps:
            if not run.step(step, lambda _kind, _value: None):
                break
        lines = calls_of(world.trace)
        run.close()
        return lines

    made: list[str] | Abort = lib.run_forked(child)
    return None if isinstance(made, Abort) else made


ANSWERS: dict[str, Answer] = {
    "nothing is wanted": lambda _id, _ask: False,
    "everything is wanted": lambda _id, _ask: True,
    "every node stops its split": lambda _id, ask: ask,
    "one is wanted": lambda id, ask: id == "b" or not ask,
    "one stops its split": lambda id, ask: ask and id == "b",
}


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_moe_layer_is_asked_about_as_ggml_asks(answer: Answer, parallel: bool, lib: Lib) -> None:
    import ggmltool

    scenario = ggmltool.load({**MOE, "scheduler": {"parallel": parallel}}, ggml=release_of(lib).name)
    done, lines = ours(scenario, answer)
    assert done
    assert lines == theirs(lib, scenario, answer)


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_random_answers_batch_random_graphs_as_ggml_does(first: int, lib: Lib) -> None:
    release = release_of(lib).name
    for seed in (drawn := Drawn(seeds_of(release, SEEDS)[first:][:BATCH], BATCH // 10)):
        scenario = with_data(seed, release)
        if scenario is None or any(b.profile == "CUDA" for b in scenario.model.backends):
            # The library's stand-in for CUDA does not copy asynchronously, as the engine's does.
            continue

        def answer(id: str, ask: bool, seed: int = seed) -> bool:
            dice = zlib.crc32(f"{id} {ask} {seed}".encode()) % 8
            return dice < 3 if ask else dice > 0

        done, lines = ours(scenario, answer)
        if not done:
            continue
        expected = theirs(lib, scenario, answer)
        if expected is not None:
            assert lines == expected, seed
            drawn.found += sum(line.startswith("call ") for line in lines) > 1


def experts(ids: list[list[int]], first: str | None = None, **more: Any) -> dict[str, Any]:
    """A layer of experts on the CPU, computed on a GPU that offloads; `first` is a node before it."""
    nodes = {"v": first} if first else {}
    nodes |= {"a": f"mul_mat_id(up, {'v' if first else 'x'}, ids)", "b": "silu(a)", "y": "mul_mat_id(down, b, ids)"}
    weight = {"type": "f32", "ne": [16, 16, 8]}
    x = {"type": "f32", "ne": [16, 1, len(ids)], "flags": ["input"], "data": {"normal": {"seed": 3}}}
    chosen = {"type": "i32", "ne": [len(ids[0]), len(ids)], "flags": ["input"], "data": ids}
    return {
        "ggml": "0.26",
        "backends": [{"name": "CUDA0", "profile": "custom", "offload_min_batch": 1, "events": True}, "CPU"],
        "scheduler": {"copy_callback": "used_experts"},
        "contexts": {
            "w": {
                "buft": "CPU",
                "usage": "weights",
                "tensors": {name: {**weight, "data": {"normal": {"seed": i}}} for i, name in enumerate(("up", "down"))},
            },
            "in": {"tensors": {"x": x, "ids": chosen}},
        },
        "graphs": {"g": {"nodes": nodes}},
        "steps": ["alloc g", "compute g", {"get": ["y"]}],
        **more,
    }


def copies_of(j: Judged, name: str) -> list[tuple[int, int]]:
    lines = [line.split() for line in j.trace() if line.startswith(f"set_tensor CUDA0 {name} ")]
    return [(int(offset), int(size)) for *_, offset, size in lines]


@pytest.mark.parametrize(
    ("ids", "copied"),
    [
        ([[1, 2], [5, 7]], [(1024, 2560), (5120, 1536), (7168, 1024)]),
        ([[0, 1], [2, 3]], [(0, 4096 + 512)]),
        ([[7, 7]], [(7168, 1024)]),
        ([[0, 1, 2, 3], [4, 5, 6, 7]], [(0, 8192)]),
    ],
)
def test_only_experts_in_use_are_copied(ids: list[list[int]], copied: list[tuple[int, int]]) -> None:
    j = judged("0.26", experts(ids))
    assert copies_of(j, "CUDA0#up#0") == copied
    assert copies_of(j, "CUDA0#down#0") == copied
    assert nmse(j.values["y"], j.real.values[0]["y"]) < 1e-7


def test_the_ids_are_read_once_and_from_where_the_split_has_them() -> None:
    j = judged("0.26", experts([[1, 2], [5, 7]]))
    read = [line for line in j.trace() if line.startswith("get_tensor")]
    assert read == ["get_tensor CUDA0 CUDA0#ids#0 0 16", "get_tensor CUDA0 y 0 256"]


def test_without_the_callback_the_scheduler_copies_experts_whole() -> None:
    j = judged("0.26", experts([[1, 2], [5, 7]], scheduler={}))
    assert copies_of(j, "CUDA0#up#0") == [(0, 8192)]


def test_a_node_before_them_in_the_split_makes_all_experts_be_copied() -> None:
    j = judged("0.26", experts([[1, 2], [5, 7]], "reshape(x, ne=[16, 1, 2])"))
    assert copies_of(j, "CUDA0#up#0") == [(0, 8192)]


@pytest.mark.parametrize("scheduler", [{"parallel": True}, {"op_offload": False}])
def test_with_other_options_of_the_scheduler(scheduler: dict[str, Any]) -> None:
    judged("0.26", experts([[1, 2], [5, 7]], scheduler={"copy_callback": "used_experts", **scheduler}))


def test_each_computing_reads_the_ids_anew() -> None:
    steps = ["alloc g", "compute g", "compute g"]
    j = judged("0.26", experts([[1, 2], [5, 7]], steps=steps))
    assert sum(line.startswith("get_tensor") for line in j.trace()) == 2


def test_no_ids_are_no_copies() -> None:
    scenario = experts([[1, 2]])
    scenario["contexts"]["in"]["tensors"]["ids"] = {"type": "i32", "ne": [0, 1], "flags": ["input"]}
    scenario["graphs"]["g"]["nodes"] = {"y": "mul_mat_id(up, x, ids)"}
    j = judged("0.26", scenario)
    assert copies_of(j, "CUDA0#up#0") == []


def test_an_expert_that_is_not_there_is_llama_cpps_assertion() -> None:
    with pytest.raises(ggmltool.GgmlError, match="id >= 0 && id < n_expert") as raised:
        ggmltool.load({"ggmltool": 1, **experts([[1, 8]])}).compute()
    assert "sched_copy_experts" in str(raised.value)


def test_a_release_without_the_callback_says_since_when_it_is_there() -> None:
    with pytest.raises(ggmltool.ScenarioError, match="copy_callback"):
        ggmltool.load({"ggmltool": 1, **experts([[1, 2]]), "ggml": "0.21"})
