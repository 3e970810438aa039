"""A function of many values, computed side by side in forked processes that end with the one that asked."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import TypeVar, cast

from ggmltool.sources.llama.errors import PlaceError

T = TypeVar("T")
R = TypeVar("R")


def can_fork() -> bool:
    """Whether this system has processes that begin as copies."""
    return "fork" in multiprocessing.get_all_start_methods()


def in_processes(work: Callable[[T], R], items: Sequence[T], n: int, done: Callable[[], None] | None = None) -> list[R]:
    """`work` of each item, in their order; each of `n` processes takes every n-th, and `done` hears of each.

    Raises what `work` raises, and PlaceError where a process is killed. However this ends, no process is left.
    """
    numbered = list(enumerate(items))
    found: dict[int, R] = {}
    for at, result in _streamed(work, (numbered[first::n] for first in range(n)), n):
        found[at] = result
        if done is not None:
            done()
    return [found[at] for at in range(len(items))]


def as_they_come(work: Callable[[T], R], items: Iterable[T], n: int) -> Iterator[tuple[int, R]]:
    """`work` of each item with its number, as it is done; `n` processes at once, one for each item.

    The next item is asked for when a process is free. Raises what `work` raises, and PlaceError where a process is
    killed. However this ends, no process is left.
    """
    return _streamed(work, ([item] for item in enumerate(items)), n)


def _streamed(work: Callable[[T], R], shares: Iterable[Sequence[tuple[int, T]]], n: int) -> Iterator[tuple[int, R]]:
    """The results of numbered items as they come; a process for each share of them, `n` at once."""
    started: dict[Connection, ForkProcess] = {}
    coming = iter(shares)
    try:
        while True:
            while len(started) < n and (share := next(coming, None)) is not None:
                reader, process = _start(work, share, list(started))
                started[reader] = process
            if not started:
                return
            for reader in cast("list[Connection]", wait(list(started))):
                try:
                    at, result, error = reader.recv()
                except EOFError:
                    process = started.pop(reader)
                    process.join()
                    reader.close()
                    if process.exitcode:
                        raise _ended(process.exitcode) from None
                    continue
                if error is not None:
                    raise error
                yield at, result
    finally:
        for reader, process in started.items():
            process.kill()
            process.join()
            reader.close()


def _ended(status: int) -> PlaceError:
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return PlaceError(f"a process ended with {how}; -j 1 needs the least memory")


def _start(
    work: Callable[[T], R], share: Sequence[tuple[int, T]], others: list[Connection]
) -> tuple[Connection, ForkProcess]:
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(work, share, writer, [reader, *others]), daemon=True
    )
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # none arrives before the process is ready for it
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)
    writer.close()
    return reader, process


_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} if hasattr(signal, "SIGHUP") else {signal.SIGINT}


def _work(work: Callable[[T], R], share: Sequence[tuple[int, T]], writer: Connection, others: list[Connection]) -> None:
    """What a process does. ^C on a terminal reaches all: the process that asked ends the others, or is gone."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    for other in others:
        other.close()  # else it would stay open when the process that asked is gone
    try:
        for at, item in share:
            writer.send((at, work(item), None))
    except BrokenPipeError:
        return
    except Exception as error:
        writer.send((0, None, error))
