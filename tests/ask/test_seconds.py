"""Estimated seconds as text and as JSON, of records made by hand."""

from __future__ import annotations

import pytest

from ggmltool.ask.answer import Answer
from ggmltool.ask.splits.seconds import Seconds, SplitTime, Timed, shown, speed_lines
from ggmltool.estimate.forecast import SOME_HOST, Speeds
from ggmltool.estimate.records import Estimate, Rates
from ggmltool.ggml.plan import Plan, SplitPlan
from ggmltool.show.document import json_text
from ggmltool.show.table import Style
from ggmltool.show.text import rate_text, seconds_text
from tests.ask.plans import GOLDEN
from tests.golden import check_golden

GPU = Rates("RTX 3090", 936e9, 35e12, 71e12, 71e12, 284e12, family="CUDA")
RATES = {"CUDA0": GPU, "CPU": SOME_HOST}


def estimate(mid: float) -> Estimate:
    return Estimate(0.8 * mid, mid, 1.5 * mid)


PLAN = Plan(
    "prompt",
    "alloc",
    True,
    (("CUDA0", "CUDA0"), ("CPU", "CPU")),
    splits=(
        SplitPlan(0, "CPU", 0, 2, ()),
        SplitPlan(1, "CUDA0", 2, 60, ("inp_pos",)),
        SplitPlan(2, "CUDA0", 60, 61, ("w",)),
    ),
    ggml="0.26",
)
NOTHING = Estimate(0.0, 0.0, 0.0)
TIMED = Timed(
    PLAN,
    512,
    4096,
    (
        SplitTime(0, "CPU", 2, 0, 0.0, estimate(3.2e-5), NOTHING),
        SplitTime(1, "CUDA0", 58, 1, 2048.0, estimate(0.0021), estimate(1.2e-5)),
        SplitTime(2, "CUDA0", 1, 1, 1.2e8, estimate(0.0005), estimate(0.0131)),
    ),
    estimate(0.0091),
    (False, estimate(0.051)),
    RATES,
    ("CPU",),
)
ANSWER = Answer(Seconds.of(TIMED), "a model", "alloc prompt", PLAN)


@pytest.mark.parametrize("columns", [40, 80])
def test_seconds_of_splits_look_as_accepted(columns: int) -> None:
    check_golden(GOLDEN / f"seconds_{columns}.txt", shown(ANSWER, Style(columns)))


def test_seconds_of_splits_are_a_document() -> None:
    check_golden(GOLDEN / "seconds.json", json_text(ANSWER.document()))


def test_speeds_of_a_placement_look_as_accepted() -> None:
    speeds = Speeds(estimate(1 / 15), estimate(3.0), 4, 2048, 4096)
    check_golden(GOLDEN / "speeds.txt", "\n".join(speed_lines(speeds, RATES)) + "\n")


def test_only_what_was_captured_is_said() -> None:
    (line, _) = speed_lines(Speeds(estimate(0.5), None, 1, 2048, 0), RATES)
    assert line == "estimate: 2 (1.33–2.5) tokens/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-7, "0.1 µs (0.08–0.15)"),
        (9.994e-4, "999 µs (800–1500)"),
        (1.0, "1 s (0.8–1.5)"),
        (4000.0, "4000 s (3200–6000)"),
    ],
)
def test_seconds_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert seconds_text(estimate(seconds)) == text


def test_a_rate_begins_with_what_is_likely() -> None:
    assert rate_text(estimate(0.01).rate(1)) == "100 (66.7–125)"
