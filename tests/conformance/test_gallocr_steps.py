"""The allocator's tables after each step of a run, and where ggml aborts, beside the real library's."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import astuple

import ggmltool
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.sched.reader import hash_node
from ggmltool.inspect.allocator import WatchedAllocator, watch_allocator
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.oracle import fork, structs
from ggmltool.oracle.lib import Lib, load
from ggmltool.oracle.run import Runner, ScenarioRun, World
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.steps import GRAPH_STEPS
from ggmltool.state.errors import InspectError
from ggmltool.state.memory.pages import OwnMemory
from ggmltool.state.memory.schedulers import Schedulers
from ggmltool.state.memory.tensors import MemoryGraphs
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn
from tests.conformance.states import allocs


class StepTables(NamedTuple):
    """Hash nodes by the tensor's name (two copies may share one), and the places of nodes and leafs."""

    hash_nodes: list[tuple[str, tuple[int, ...]]]
    places: dict[str, Any]


class RealTables:
    """Reads the tables of a scheduler's allocator. Names are those of when the hash set was filled."""

    def __init__(self, run: ScenarioRun) -> None:
        self.run = run
        self.keys: frozenset[int] = frozenset()
        self.names: dict[int, str] = {}

    def read(self) -> StepTables:
        known, memory = self.run.lib.structs, OwnMemory()
        schedulers = Schedulers(memory, known.types, MemoryGraphs(memory, known.types))
        galloc = schedulers.galloc(known["ggml_backend_sched"].from_address(self.run.sched).galloc)
        if galloc.hash_set.keys != self.keys:
            self.keys, ids = galloc.hash_set.keys, self.run.builder.ids
            raw = {key: structs.Tensor.from_address(key).name for key in self.keys}
            self.names = {key: ids.get(key) or raw[key].decode("utf-8", "surrogateescape") for key in self.keys}
        nodes = sorted((self.names[key], tuple(map(int, astuple(v)))) for key, v in galloc.hash_values.items())
        return StepTables(nodes, allocs(galloc.node_allocs, galloc.leaf_allocs))


def tables_of_steps(lib: Lib, model: ScenarioSpec) -> list[StepTables]:
    """The tables after each step that has a graph, the last ones where ggml aborted, if it did."""
    read_fd, write_fd = os.pipe()
    pid = fork.fork_child()
    if pid == 0:
        _child(lib, model, write_fd)
    os.close(write_fd)
    out: list[StepTables] = []
    try:
        while True:
            out.append(fork.read_message(read_fd))
    except EOFError:
        pass
    finally:
        os.close(read_fd)
        _, status = os.waitpid(pid, 0)
    assert status == 0, fork.describe_status(status)
    return out


def _child(lib: Lib, model: ScenarioSpec, fd: int) -> None:
    fork.quiet_child()

    def on_abort(_message: bytes) -> None:
        if run.sched:
            fork.write_message(fd, tables.read())
        os._exit(0)

    def on_callback_failure(failure: sys.UnraisableHookArgs) -> None:
        if isinstance(failure.exc_value, GgmlError):
            on_abort(b"")
        os._exit(1)

    sys.unraisablehook = on_callback_failure
    try:
        runner = Runner(lib, 0, values=False)
        run = ScenarioRun(runner, model, World(runner.callbacks, model, False))
        tables = RealTables(run)
        callback = fork.ABORT_CALLBACK(on_abort)
        lib.ggml_set_abort_callback(callback)
        run.start()
        for step in model.steps:
            going_on = run.step(step, lambda _kind, _value: None)
            if step.kind in GRAPH_STEPS:
                fork.write_message(fd, tables.read())
            if not going_on:
                break
        os._exit(0)
    finally:
        os._exit(2)


def our_tables(watched: WatchedAllocator) -> StepTables:
    gallocr = watched.gallocr
    nodes = [(k.label, tuple(map(int, astuple(hash_node(gallocr, k.node))))) for k in watched.planned.keys]
    return StepTables(sorted(nodes), allocs(gallocr.node_allocs, gallocr.leaf_allocs))


def check_steps(model: ScenarioSpec) -> bool:
    """Compare after every step that has a graph; whether ggml refused one of them."""
    theirs = tables_of_steps(load(model.release), model)
    opened = Opened(LoadedScenario(model), "")
    seen = 0
    for number, step in enumerate(model.steps, 1):
        if step.kind not in GRAPH_STEPS:
            continue
        try:
            watched = watch_allocator(opened, Moment(None, "alloc", number))
        except InspectError:  # the allocator was never given a graph
            return True
        ours, real = our_tables(watched), theirs[seen]
        assert ours.hash_nodes == real.hash_nodes, step
        assert ours.places == real.places, step
        seen += 1
        if watched.at.plan.error is not None:
            assert seen == len(theirs)
            return True
    assert seen == len(theirs)
    return False


def test_the_tables_after_each_step_of_a_sample_are_the_real_ones(sample: Path, release: str) -> None:
    check_steps(ggmltool.load(sample, ggml=release).model)


@in_turn("seed", range(60))
def test_the_tables_after_each_step_of_a_random_run_are_the_real_ones(seed: int, release: str) -> None:
    try:
        model = ggmltool.load(scenario(seed), ggml=release).model
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")
    steps = LoadedScenario(model).steps(
        [s for name in model.graphs for s in (f"reserve {name}", f"alloc {name}", "reset")]
    )
    check_steps(replace(model, steps=[*steps, *steps]))


LEAFS = {"x": {"type": "f32", "ne": [8, 8], "flags": ["input"]}, "u": "f32[8, 8]", "z": "f32[8, 8]"}
PIECES = {
    **{f"a{i}": "sqrt(x)" for i in range(600)},
    **{f"even{i}": f"sum_rows(a{i})" for i in range(0, 600, 2)},
    **{f"odd{i}": f"sum_rows(a{i})" for i in range(1, 600, 2)},
}
"""Every second one is given back while those between them live on."""
FINE = {"a": "sqr(x)", "b": "sqr(a)"}


@pytest.mark.parametrize(
    "nodes",
    [
        {"y": "sqr(x)", "v": "reshape(u, ne=[64])", "w": "sqr(v)", "s": "scale(z, s=2)"},
        {"s": "scale(z, s=2)", "y": "add(x, s)", "v": "reshape(u, ne=[64])", "w": "sqr(v)"},
        PIECES,
    ],
    ids=["no backend for the second leaf", "no backend for the last leaf", "too many free blocks"],
)
def test_the_tables_where_ggml_aborts_are_the_real_ones(nodes: dict[str, str], release: str) -> None:
    scenario = {
        "ggmltool": 1,
        "backends": ["CUDA0", "CPU"],
        "contexts": {"c": {"tensors": LEAFS}},
        "graphs": {"fine": {"nodes": FINE}, "main": {"nodes": nodes}},
        "steps": ["reserve fine", "alloc fine", "reset", "reserve main"],
    }
    assert check_steps(ggmltool.load(scenario, ggml=release).model)
