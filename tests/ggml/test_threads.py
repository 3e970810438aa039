"""Parts of an array by several threads: every part once, with the caller's numpy settings, and errors come back."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ggmltool.ggml.ops import threads


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_part_is_done_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    threads._pool.cache_clear()
    for n in (0, 1, 5, 1000):
        done = np.zeros(n, dtype=int)

        def work(part: slice, done: np.ndarray = done) -> None:
            done[part] += 1

        threads.in_parts(n, work)
        assert (done == 1).all()
    threads._pool.cache_clear()


def test_infinities_are_as_quiet_as_the_caller_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    values = np.full(8, np.inf, dtype=np.float32)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        threads.in_parts(8, lambda part: np.subtract(values[part], values[part], out=values[part]))
    assert np.isnan(values).all()


def test_an_error_of_a_thread_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 2)

    def work(part: slice) -> None:
        if part.start:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        threads.in_parts(8, work)
