"""Work on the parts of an array by several threads: for what numpy does with one, and memory could feed more."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from itertools import pairwise


@cache
def thread_count() -> int:
    """As many as BLAS takes: the processors this process may use, or what OMP_NUM_THREADS says where that is less."""
    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(processors, int(said) if said.isascii() and said.isdecimal() else processors))


@cache
def _pool(pid: int) -> ThreadPoolExecutor:
    """The threads of a process: a forked one has none of its parent's."""
    return ThreadPoolExecutor(thread_count(), "ggmltool")


def in_parts(n: int, work: Callable[[slice], None]) -> None:
    """Do `work` on slices that make up range(n), one for each thread; numpy's settings for errors are the caller's."""
    threads = thread_count()
    if threads == 1:
        work(slice(0, n))
        return
    edges = [n * i // threads for i in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(edges)]
    jobs = [_pool(os.getpid()).submit(copy_context().run, work, part) for part in parts[1:]]
    work(parts[0])
    for job in jobs:
        job.result()
