"""Whatever a program calls its backends and buffer types, the scenario of its graph is loaded, and they stay apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings, strategies
from msgspec import structs

from ggmltool.attach.devices.asking import ask
from ggmltool.attach.errors import AttachError
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.written import GRAPH, scenario_file, written
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario
from tests.sources.process.recorded import recorded

NAMES = strategies.sampled_from(["CPU", "CPU~1", "BLAS", "Vulkan0", "Vulkan_Host", "CUDA0", "memory", "inputs", ""])


@cache
def program() -> tuple[Snapshot, Answers]:
    """A recorded program, and what its devices answered."""
    session = recorded("0.26")
    snapshot = session.snapshot()
    return snapshot, ask(session, snapshot)


def called(names: strategies.DataObject, swap: bool) -> Snapshot:
    """A recorded program with other names, whose backends perhaps allocate in each other's memory."""
    found, _ = program()
    bufts = {a: structs.replace(b, name=names.draw(NAMES)) for a, b in found.bufts.items()}
    backends = tuple(b._replace(name=names.draw(NAMES)) for b in found.backends)
    if swap:
        last = list(found.bufts)[-1]
        found = replace(found, sched=structs.replace(found.sched, bufts=(*found.sched.bufts[:-1], last)))
    return replace(found, bufts=bufts, backends=backends)


@settings(max_examples=40)
@given(names=strategies.data(), swap=strategies.booleans())
def test_names_do_not_collide(names: strategies.DataObject, swap: bool) -> None:
    snapshot = called(names, swap)
    made = written(snapshot, program()[1])
    scenario_file(made.document)
    plan = Scenario(load_spec(made.document)).plan(GRAPH, made.step)
    assert [name for name, _ in plan.backends[: len(snapshot.backends)]] == list(made.names.backends)
    assert [buft for _, buft in plan.backends[: len(snapshot.backends)]] == [
        made.names.bufts[buft] for buft in snapshot.sched.bufts
    ]
    assert len({*made.names.bufts.values()}) == len(made.names.bufts)


def test_what_cannot_be_loaded_is_not_written() -> None:
    made = written(*program())
    made.document["steps"] = ["alloc nix"]
    with pytest.raises(AttachError, match=r"cannot be loaded .*there is no graph \"nix\""):
        scenario_file(made.document)
