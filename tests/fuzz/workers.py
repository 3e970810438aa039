"""Forked processes that do cases within a time and a memory; one that dies takes only its case with it."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tests.fuzz.case import Case
from tests.fuzz.perform import Outcome, TimeUpError, perform

SECONDS = 5
"""Of computing, for one case."""
PATIENCE = 60
"""Seconds by the clock after which a case that does not even answer a signal is ended."""
MEMORY = 1 << 30
"""Bytes that one case may take."""

_FRAME = re.compile(r'File "[^"]*/(?:ggmltool|tests)/([^"]+)", line (\d+) in (\w+)')

Make = Callable[[int], Case]


class Done(NamedTuple):
    """What came of the case of this number."""

    number: int
    outcome: Outcome


class _Worker(NamedTuple):
    pid: int
    pipe: int
    folder: Path
    numbers: Sequence[int]


def run(make: Make, numbers: Sequence[int], processes: int = 1) -> Iterator[Done]:
    """Do all cases, each process every so manieth of them; in the order in which they end."""
    selector = selectors.DefaultSelector()
    rests: dict[int, bytes] = {}
    workers: dict[int, _Worker] = {}

    def start(share: Sequence[int]) -> None:
        if share:
            worker = _start(make, share)
            workers[worker.pipe], rests[worker.pipe] = worker, b""
            selector.register(worker.pipe, selectors.EVENT_READ)

    for i in range(processes):
        start(numbers[i::processes])
    try:
        while workers:
            for key, _ in selector.select():
                worker = workers[key.fd]
                chunk = os.read(worker.pipe, 1 << 16)
                *lines, rests[worker.pipe] = (rests[worker.pipe] + chunk).split(b"\n")
                for line in lines:
                    number, *outcome = json.loads(line)
                    yield Done(number, Outcome(*outcome))
                    worker = workers[worker.pipe] = worker._replace(numbers=worker.numbers[1:])
                if not chunk:
                    selector.unregister(worker.pipe)
                    del workers[worker.pipe]
                    died = _ended(worker)
                    if worker.numbers:
                        yield Done(worker.numbers[0], died)
                        start(worker.numbers[1:])
    finally:
        for worker in workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            _ended(worker)


def alone(case: Case) -> Outcome:
    """One case, in a process of its own."""
    return next(run(lambda _: case, [case.seed])).outcome


def _start(make: Make, numbers: Sequence[int]) -> _Worker:
    folder = Path(tempfile.mkdtemp(prefix="ggmltool-fuzz-"))
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        status = 1
        try:
            _work(make, numbers, writing, folder)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    return _Worker(pid, reading, folder, numbers)


def _ended(worker: _Worker) -> Outcome:
    """Take leave of a process that is at its end; what the case that it was at came to."""
    os.close(worker.pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
    dump = worker.folder / "fault"
    trace = dump.read_text("utf-8", "replace") if dump.exists() else ""
    shutil.rmtree(worker.folder, ignore_errors=True)
    found = _FRAME.search(trace)
    where = f"{found[1]}:{found[2]}:{found[3]}" if found else "unknown"
    what = signal.Signals(-status).name if status < 0 else "hang" if "Timeout" in trace else f"status {status}"
    return Outcome(f"wrong {what}", f"{what}@{where}", trace[:300])


def _work(make: Make, numbers: Sequence[int], pipe: int, folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    os.chdir(work)
    fault = (folder / "fault").open("w")
    faulthandler.enable(fault)
    signal.signal(signal.SIGPROF, _time_up)
    _limit_memory()
    for number in numbers:
        case = make(number)
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=fault)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome = perform(case)
        except TimeUpError:
            outcome = Outcome("wrong hang", "hang@nowhere")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
        line = json.dumps([number, *outcome]).encode() + b"\n"
        while line:
            line = line[os.write(pipe, line) :]


def _time_up(signal_number: int, frame: FrameType | None) -> Any:
    raise TimeUpError


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
