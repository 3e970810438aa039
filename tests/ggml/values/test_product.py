"""By how many threads products are computed, and that it makes no difference to them (R10)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import ggmltool
from ggmltool.ggml.values import product
from ggmltool.ggml.values.product import LOST, PAUSE, STALL, WINDOW, Threads, computing, times
from tests.cli.conftest import SAMPLES


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}


pytestmark = pytest.mark.skipif(not blas_threads(), reason="threadpoolctl does not know numpy's BLAS here")


class Clock:
    """Stands still unless it is told to go on."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    monkeypatch.setattr(product, "perf_counter", found)
    monkeypatch.setattr(product, "THREADS", Threads())
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        yield found


def stalled() -> None:
    """What another process does to products that two threads share."""
    product.THREADS.took(LOST + STALL, 100)


def test_a_quiet_machine_computes_with_the_threads_of_blas() -> None:
    with computing():
        product.THREADS.took(STALL / 2, 100)
        product.THREADS.took(1.0, 1 << 35)
        assert blas_threads() == {3}
    assert blas_threads() == {3}


def test_a_wait_now_and_then_costs_less_than_one_thread_would(clock: Clock) -> None:
    with computing():
        for _ in range(20):
            product.THREADS.took(LOST / 2, 100)
            clock.now += 2 * WINDOW
            assert blas_threads() == {3}
        product.THREADS.took(LOST / 2, 100)
        assert blas_threads() == {3}
        clock.now += WINDOW / 2
        product.THREADS.took(LOST, 100)
        assert blas_threads() == {1}


def test_where_threads_wait_for_each_other_there_is_one_for_a_while(clock: Clock) -> None:
    with computing():
        stalled()
        assert blas_threads() == {1}
        clock.now += PAUSE[0] / 2
        assert not product.THREADS.are_several()
        clock.now += PAUSE[0] / 2
        assert product.THREADS.are_several()
        assert blas_threads() == {3}
    assert blas_threads() == {3}


def test_the_while_grows_while_the_machine_is_busy_and_no_further_than_its_bound(clock: Clock) -> None:
    pauses = []
    with computing():
        for _ in range(8):
            stalled()
            pauses.append(product.THREADS.alone_until - clock.now)
            clock.now = product.THREADS.alone_until
            assert product.THREADS.are_several()
        clock.now += 3 * PAUSE[1]
        stalled()
        assert product.THREADS.alone_until - clock.now == PAUSE[0]
    assert pauses == sorted(pauses)
    assert max(pauses) == PAUSE[1]


def test_the_next_graph_is_begun_with_one_thread_too(clock: Clock) -> None:
    with computing():
        stalled()
    assert blas_threads() == {3}, "between graphs BLAS is its user's"
    with computing():
        assert blas_threads() == {1}
    clock.now += 2 * PAUSE[0]
    with computing():
        assert blas_threads() == {3}


def test_a_graph_is_computed_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ggmltool.load(SAMPLES / "transformer.yaml").start(values=True)
    run.start()
    run.alloc("main")
    seen: list[set[int]] = []

    def watch(node: object) -> None:
        stalled()
        seen.append(blas_threads())

    run.compute("main", watch=watch)
    assert len(seen) == 31
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == {3}


def test_threads_that_compute_at_once_leave_blas_as_it_was() -> None:
    def compute() -> None:
        with computing():
            stalled()
        scenario.compute()

    scenario = ggmltool.load(SAMPLES / "matmul.yaml")
    threads = [threading.Thread(target=compute) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas_threads() == {3}


def test_after_an_error_blas_has_its_threads_again() -> None:
    def fail() -> None:
        with computing():
            stalled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert blas_threads() == {3}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that were started."""
    names: list[str] = []
    start = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        names.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return names


@pytest.mark.parametrize(
    ("a", "b", "large"),
    [
        ((1, 64), (64, 100), False),
        ((512, 640), (640, 256), False),
        ((1, 640), (640, 2048), False),
        ((1, 640), (640, 32768), True),
        ((512, 640), (640, 640), True),
        ((2, 1, 640), (640, 32767), True),
    ],
)
def test_a_large_product_is_shared_piece_by_piece(
    started: list[str], a: tuple[int, ...], b: tuple[int, ...], large: bool
) -> None:
    left, right = (np.random.default_rng(i).integers(-4, 5, size).astype(np.float32) for i, size in enumerate((a, b)))
    with computing():
        plain = times(left, right)
        assert not started
        stalled()
        pieces = times(left, right)
        into = np.empty_like(plain)
        assert times(left, right, into) is into
    assert len(started) == (4 if large else 0)
    for found in (pieces, into, times(left, right)):
        assert np.array_equal(found, plain)


def test_numpys_warnings_are_off_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "LARGE", 1)
    huge: Any = np.full((2, 64), 1e38, np.float32)
    with computing(), np.errstate(all="ignore"):
        stalled()
        assert np.isinf(times(huge, huge.T)).all()
