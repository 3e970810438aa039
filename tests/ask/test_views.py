"""The views of hand-made plans against golden files: narrow, wide, and in colour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ggmltool.ask.answer import Answer
from ggmltool.ask.buffers.record import BuffersDocument
from ggmltool.ask.buffers.text import buffers
from ggmltool.ask.dot.splits import ggml_dot, split_dot
from ggmltool.ask.plan.record import PlanDocument, PlanShown
from ggmltool.ask.plan.text import plan
from ggmltool.ask.run.record import StepReport
from ggmltool.ask.run.text import steps_view
from ggmltool.ask.splits.record import SplitsTable, splits
from ggmltool.ggml.plan import Plan, SplitPlan
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.document import json_text
from ggmltool.show.table import Style
from ggmltool.show.text import plan_step
from ggmltool.show.values import matrix_view
from tests.ask.plans import EVENTS, GOLDEN, REFUSED, STYLES, TENSORS, TWO_DEVICES
from tests.golden import check_golden
from tests.lifetimes import memory_plan


def buffers_answer(limit: int | None) -> Answer[BuffersDocument]:
    shown = BuffersDocument.of(TWO_DEVICES, memory_plan(EVENTS), TENSORS, limit)
    return Answer(shown, "two devices", plan_step(TWO_DEVICES), TWO_DEVICES)


MANY = replace(
    TWO_DEVICES,
    splits=tuple(SplitPlan(i, ("CUDA0", "CPU")[i % 2], i % 4, i % 4 + 1, ("inp",) * (i % 3)) for i in range(40)),
)

SMALL = np.array([[60, 55.5, -1e-9], [np.nan, np.inf, 0]], np.float32)
LARGE = np.arange(80_000, dtype=np.float32).reshape(1, 10, 80, 100)


def shown(plan: Plan, tensors: Tensors, title: str, more: str = "") -> Answer[PlanShown]:
    return Answer(PlanShown.of(plan, tensors, more), title)


SPLITS = Answer(SplitsTable.of(TWO_DEVICES, TENSORS), "two devices", "alloc main", TWO_DEVICES)
VIEWS: dict[str, Callable[[Style], str]] = {
    "plan": lambda style: plan(shown(TWO_DEVICES, TENSORS, "two devices", "ggmltool splits x"), style),
    "plan_many": lambda style: plan(shown(MANY, TENSORS, "many splits", "ggmltool splits x"), style),
    "plan_refused": lambda style: plan(shown(REFUSED, {}, "refused"), style),
    "splits": lambda style: splits(SPLITS, style),
    "buffers": lambda style: buffers(buffers_answer(10), style),
    "buffers_cut": lambda style: buffers(buffers_answer(1), style),
    "steps": lambda style: steps_view(
        [StepReport("reserve main", plan=TWO_DEVICES), StepReport("compute main", "3 splits computed", number=2),
         StepReport("alloc main", plan=REFUSED, number=3)], ("CUDA0", "CPU"), TENSORS, "a run", style,
    ),
    "matrix": lambda style: matrix_view("y", "f32", SMALL, style),
    "matrix_cut": lambda style: matrix_view("big", "f32", LARGE, style),
    "matrix_wide": lambda style: matrix_view("wide", "i32", np.arange(120, dtype=np.int32).reshape(2, 60), style),
}  # fmt: skip


@pytest.mark.parametrize("width", STYLES)
@pytest.mark.parametrize("view", VIEWS)
def test_view_looks_as_accepted(view: str, width: str) -> None:
    text = VIEWS[view](STYLES[width])
    if width == "80":
        assert max(map(len, text.splitlines())) <= 80
    check_golden(GOLDEN / f"{view}_{width}.txt", text)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "ggml.dot",
            ggml_dot([TENSORS[n.id] for n in TWO_DEVICES.nodes], [TENSORS[n.id] for n in TWO_DEVICES.leafs], TENSORS),
        ),
        ("splits.dot", split_dot(TWO_DEVICES, TENSORS, 'two "devices"')),
        ("splits.json", json_text(SPLITS.document())),
        ("buffers.json", json_text(buffers_answer(None).document())),
        ("plan.json", json_text(PlanDocument.of(TWO_DEVICES))),
    ],
)
def test_file_looks_as_accepted(file: str, text: str) -> None:
    check_golden(GOLDEN / file, text)
