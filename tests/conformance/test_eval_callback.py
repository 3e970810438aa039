"""Eval callbacks beside the real library: the same questions, batches, waits and calls, in the same order."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from ggmltool.ggml.errors import GgmlError
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner, ScenarioRun
from ggmltool.scenario.scenario import Scenario
from tests.conformance.releases import release_of, seeds_of
from tests.conformance.test_compute import MOE, with_data
from tests.conformance.trace import trace_of

SEEDS = 80
BATCH = 40

ASK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)

HIDDEN = ("alloc_buffer", "free_buffer", "event_new", "set_tensor CPU ", "get_tensor CPU ")

Answer = Callable[[str, bool], bool]
"""What a callback says to a node, by its id: asked (True), or called with it (False)."""


def ours(scenario: Scenario, answer: Answer) -> tuple[bool, list[str]]:
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


def theirs(lib: Lib, scenario: Scenario, answer: Answer) -> list[str] | None:
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
        lines = [line for line in world.trace if not line.startswith(HIDDEN)]
        run.close()
        return lines

    made = lib.run_forked(child)
    if isinstance(made, Abort):
        return None
    return [_per_device(line) if line.startswith("event_") else line for line in made]


def _per_device(line: str) -> str:
    head, _, number = line.rpartition(" ")
    return f"{head} {int(number) % 4}"


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
    compared = called = 0
    release = release_of(lib).name
    for seed in seeds_of(release, SEEDS)[first:][:BATCH]:
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
            compared += 1
            called += sum(line.startswith("call ") for line in lines)
    assert compared > BATCH // 5
    assert called > compared
