"""Batches in flight, against time tables drawn by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.estimate.records import Estimate
from ggmltool.estimate.timeline import Step, StepCopy, Way, duration


def seconds(s: float) -> Estimate:
    return Estimate(s, s, s)


def step(backend: str, s: float, *copies: tuple[Way, str, float]) -> Step:
    made = tuple(StepCopy(way, source, seconds(c)) for way, source, c in copies)
    return Step(backend, backend == "CPU", seconds(s), made)


TWO = [step("CUDA0", 3.0, (Way.USER, "CPU", 0.0)), step("CUDA1", 2.0, (Way.QUEUED, "CUDA0", 0.0))]
"""A model on two GPUs."""


def test_one_batch_goes_through_one_device_after_the_other() -> None:
    assert duration(TWO, 1, 4).mid == 5.0


def test_with_pipeline_copies_the_slower_device_is_always_busy() -> None:
    assert duration(TWO, 10, 4).mid == 10 * 3.0 + 2.0


def test_without_pipeline_copies_the_host_waits_for_a_device_before_it_gives_it_more() -> None:
    """The first device is done with its next batch when the second one is waited for, but not with the one behind."""
    three = [*TWO, step("CUDA2", 4.0, (Way.QUEUED, "CUDA1", 0.0))]
    assert duration(TWO, 10, 1).mid == 10 * 3.0 + 2.0
    assert duration(three, 10, 4).mid == 3.0 + 2.0 + 10 * 4.0
    assert duration(three, 10, 1).mid > duration(three, 10, 4).mid


def test_a_copy_between_devices_keeps_the_first_one_busy() -> None:
    steps = [step("CUDA0", 3.0), step("CUDA1", 2.0, (Way.QUEUED, "CUDA0", 1.0))]
    assert duration(steps, 10, 4).mid == 10 * 4.0 + 2.0


def test_weights_that_are_copied_do_not_overlap_with_the_device_that_needs_them() -> None:
    """They go into the queue behind the experts of the batch before: that is why prompts wait for PCIe."""
    for way in (Way.EXPERTS, Way.EXPERTS_QUEUED):
        steps = [step("CUDA0", 1.0, (way, "CPU", 4.0)), step("CUDA0", 1.0, (way, "CPU", 4.0))]
        assert duration(steps, 3, 4).mid == 3 * 10.0


def test_copies_from_pages_hold_up_the_host_and_with_it_the_other_device() -> None:
    """Of two GPUs that each copy experts, only from pinned memory both copy at once."""

    def steps(way: Way) -> list[Step]:
        return [step("CUDA0", 1.0, (way, "CPU", 4.0)), step("CUDA1", 1.0, (way, "CPU", 4.0))]

    pages, pinned = duration(steps(Way.EXPERTS), 8, 4).mid, duration(steps(Way.EXPERTS_QUEUED), 8, 4).mid
    assert pages == pytest.approx(8 * 8.0 + 1.0)
    assert pinned < 0.7 * pages


def test_what_the_host_computes_stops_everything_else() -> None:
    steps = [step("CUDA0", 3.0), step("CPU", 2.0, (Way.WAITING, "CUDA0", 0.5))]
    assert duration(steps, 4, 4).mid == 4 * 5.5


times = st.floats(0.0, 10.0)
steps_of_some = st.lists(
    st.builds(
        step,
        st.sampled_from(["CUDA0", "CUDA1", "CPU"]),
        times,
        st.tuples(st.sampled_from([Way.USER, Way.WAITING, Way.EXPERTS]), st.just("CPU"), times),
    ),
    min_size=1,
    max_size=8,
)


@given(steps_of_some, st.integers(1, 6))
def test_pipeline_copies_never_make_it_slower_and_each_device_does_its_work(steps: list[Step], batches: int) -> None:
    alone = duration(steps, 1, 1).mid
    together = duration(steps, batches, 4).mid
    busiest = max(sum(s.seconds.mid for s in steps if s.backend == b) for b in {s.backend for s in steps})
    assert together <= batches * alone * (1 + 1e-9)
    assert together >= batches * busiest * (1 - 1e-9)
