"""Products of matrices on the host, by as many threads as are worth it.

BLAS shares a product among threads that wait for each other. On a quiet machine that is faster from small products on.
Where another process wants a processor, one of the threads stands still, and the wait is as long as the system's time
slice: hundreds of times what the product takes. So a graph is begun with the threads that BLAS has; where products that
took far longer than they take one thread come to more than one thread alone would lose, there is one thread for a while
(`computing`). What is large is then cut into pieces that threads of our own take as they get to them: one that stands
still leaves the rest to the others.

BLAS has one number of threads for the whole process: it is set back when the last graph that is being computed is done.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from time import perf_counter
from typing import Any

READ = 16
"""What it costs to fetch a number from memory, in multiplications."""

LARGE = 1 << 27
"""From so much work on (see `work`) a product is worth threads of its own."""

SECONDS = 3e-11
"""One thread takes so long for a unit of work, or less."""

STALL = 2e-3
"""Several threads that take so much longer than twice what one takes stand in each other's way."""

LOST, WINDOW = 0.1, 0.25
"""Where that costs so many seconds within so many, one thread is faster …"""

PAUSE = (0.25, 8.0)
"""… and for so many seconds there is one: the first time, and at most, each time twice as long."""

PIECES = 4
"""Pieces of a large product for each thread."""


@cache
def libraries() -> list[Any]:
    """The BLAS libraries that are loaded, as threadpoolctl knows them."""
    import numpy  # noqa: F401 - it loads the one that it uses
    import threadpoolctl

    return list(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


class Threads:
    """How many threads BLAS has, while graphs are computed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.graphs = 0
        self.before: list[int] = []
        self.n = 1
        self.alone_until = 0.0
        self.pause = PAUSE[0]
        self.alone = False
        self.lost = 0.0
        self.lost_since = 0.0

    def begin(self) -> None:
        with self.lock:
            self.graphs += 1
            if self.graphs == 1:
                self.before = [library.get_num_threads() for library in libraries()]
                self.n = max(self.before, default=1)
                self._be_alone(perf_counter() < self.alone_until)

    def end(self) -> None:
        with self.lock:
            self.graphs -= 1
            if not self.graphs:
                self._be_alone(False)
                self.n = 1

    def are_several(self) -> bool:
        """Whether BLAS has several threads now: again, if it had one for long enough."""
        if self.alone and perf_counter() >= self.alone_until:
            with self.lock:
                self._be_alone(False)
        return not self.alone

    def took(self, seconds: float, work: int) -> None:
        """What several threads took for a product: if far too long, and not once, there is one from now on."""
        over = seconds - 2 * SECONDS * work
        if over < STALL:
            return
        with self.lock:
            now = perf_counter()
            if now > self.lost_since + WINDOW:
                self.lost, self.lost_since = 0.0, now
            self.lost += over
            if self.lost < LOST:
                return
            self.lost = 0.0
            again = now < self.alone_until + self.pause
            self.pause = min(2 * self.pause, PAUSE[1]) if again else PAUSE[0]
            self.alone_until = now + self.pause
            self._be_alone(self.graphs > 0)

    def _be_alone(self, alone: bool) -> None:
        if alone != self.alone:
            self.alone = alone
            for library, n in zip(libraries(), self.before, strict=True):
                library.set_num_threads(1 if alone else n)


THREADS = Threads()


@contextmanager
def computing() -> Iterator[None]:
    """While a graph is computed."""
    THREADS.begin()
    try:
        yield
    finally:
        THREADS.end()


def work(rows: int, length: int, columns: int) -> int:
    """What a product of `rows` rows with `columns` columns costs, each sum of `length` products."""
    return columns * length * (rows + READ)


def times(a: Any, b: Any, out: Any = None) -> Any:
    """a @ b, into `out` where that is given. Arrays of a GPU are left to their own library."""
    import numpy as np

    if not isinstance(a, np.ndarray):
        return a @ b
    if THREADS.n == 1:
        return np.matmul(a, b, out=out)
    needed = work(a.shape[-2], a.shape[-1], b.shape[-1])
    if THREADS.are_several():
        start = perf_counter()
        out = np.matmul(a, b, out=out)
        THREADS.took(perf_counter() - start, needed * (a.size // max(1, a.shape[-2] * a.shape[-1])))
        return out
    return np.matmul(a, b, out=out) if needed < LARGE else _in_pieces(a, b, out, THREADS.n)


def _in_pieces(a: Any, b: Any, out: Any, threads: int) -> Any:
    """The product, column by column of b, by threads of which each takes the next piece when it is done with one."""
    import numpy as np

    columns = b.shape[-1]
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, a.shape[-2], columns), np.result_type(a, b))
    step = -(-columns // (PIECES * threads))
    pieces = deque(slice(i, i + step) for i in range(0, columns, step))

    def take() -> None:
        while pieces:
            try:
                piece = pieces.popleft()
            except IndexError:
                return
            np.matmul(a, b[..., piece], out=out[..., piece])

    # Each in a copy of our context: numpy's error state is in it.
    helpers = [threading.Thread(target=copy_context().run, args=(take,)) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    return out
