"""What the devices of a program answer, asked while it stands still, is what those of the scenario say."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Literal

import pytest

import ggmltool
from ggmltool.attach.devices.answered import SnapshotQuestions, recorded
from ggmltool.attach.devices.asking import ask
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.ggml.devices.recorded import RECORDED, Heard, RecordedAnswers, RecordedDevice
from ggmltool.scenario.scenario import LoadedScenario
from tests import needs

pytestmark = needs.program("gdb", "gdb")

ALLOC: Literal["ggml_backend_sched_alloc_graph"] = "ggml_backend_sched_alloc_graph"


def asked_in(release: str, *program: str) -> tuple[Snapshot, Answers, list[RecordedAnswers]]:
    """What the devices of a program said before and after its first graph was allocated."""
    with AttachSession.launch(
        [sys.executable, "-m", "tests.attach.on_library", "--ggml", release, *program]
    ) as session:
        session.stop_at([ALLOC])
        sched, graph = session.link.arguments()[:2]
        before = read_snapshot(session, sched, graph, ALLOC, "before")
        answers = ask(session, before)
        session.finish()
        after = read_snapshot(session, sched, graph, ALLOC, "after")
        copies = ask(session, after)
    assert session.wait() == os.EX_OK
    bufts = {a: b.name or "" for a, b in after.bufts.items()}
    both = zip(
        recorded(SnapshotQuestions(before, bufts), answers),
        recorded(SnapshotQuestions(after, bufts), copies),
        strict=True,
    )
    said = [
        RecordedAnswers(b.ops, {name: {**of, **a.sizes.get(name, {})} for name, of in b.sizes.items()}) for b, a in both
    ]
    return before, replace(answers, sizes={**answers.sizes, **copies.sizes}), said


@pytest.mark.parametrize(("release", "sample"), [("0.20.2", "transformer"), ("0.26", "moe")])
def test_devices_with_the_answers_of_a_process_plan_as_the_process(release: str, sample: str) -> None:
    needs.library(release)
    before, answers, said = asked_in(release, sample, sample)
    loaded = ggmltool.load(sample, ggml=release)
    step = next(s for s in loaded.model.steps if s.kind == "alloc")
    (ours,) = loaded.start().run([step])
    model = loaded.model
    backends = [
        replace(
            spec,
            profile=RECORDED,
            like=spec.profile,
            answers=one,
            supports_bufts=tuple(before.bufts[a].name or "" for a in before.bufts if answers.bufts[i, a]),
        )
        for i, (spec, one) in enumerate(zip(model.backends, said, strict=True))
    ]
    run = LoadedScenario(replace(model, backends=backends)).start()
    (theirs,) = run.run([step])
    assert theirs == ours
    assert set(answers.supports) >= {(t, b) for t in before.graph.nodes for b in range(len(backends))}
    assert answers.left_out == 0
    asked = SnapshotQuestions(before, {a: b.name or "" for a, b in before.bufts.items()})
    distinct = len({asked.question(t) for t in before.tensors.values()})
    sizes = len({size for one in said for of in one.sizes.values() for size in of})
    assert answers.asked <= len(backends) * (2 * distinct + len(before.bufts) + 2 * sizes)
    for node in run.build(step.graph or "").nodes:
        for backend in run.backends:
            assert isinstance(backend.device, RecordedDevice)
            assert backend.device.basis(node).basis is Heard.ASKED


def test_time_that_is_up_leaves_questions_out() -> None:
    needs.library("0.26")
    with AttachSession.launch(
        [sys.executable, "-m", "tests.attach.on_library", "--ggml", "0.26", "moe", "moe"]
    ) as session:
        session.stop_at([ALLOC])
        sched, graph = session.link.arguments()[:2]
        answers = ask(session, read_snapshot(session, sched, graph, ALLOC, "before"), seconds=0)
    assert session.wait() == os.EX_OK
    assert not answers.supports
    assert answers.left_out > 10
