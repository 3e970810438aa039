"""Many visits to one computing program, some of them cut short by signals; it has to go on as if nothing was.

python -m tests.attach.manners --times 200 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ggmltool.attach.session import AttachSession
from ggmltool.state.errors import AttachError
from tests.attach.programs import environment, python_program

FUNCTIONS = ("ggml_backend_sched_alloc_graph", "ggml_backend_sched_graph_compute_async")
DISTURBANCES = ("none", "none", "signal", "interrupt", "terminate", "kill us", "kill gdb")


class Outcome(NamedTuple):
    """What came of the visits: how many of each kind, how many SIGUSR1 were sent, and what the program said."""

    visits: Counter[str]
    sent: int
    said: str
    status: int
    longest: float


def visits(times: int, seed: int, release: str, tell: Callable[[str], None] = lambda line: None) -> Outcome:
    """Visit a program so often. Raises AssertionError if it does not go on afterwards as before."""
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    sent = 0
    longest = 0.0
    arguments = python_program("--values", "--count", "moe", release=release)
    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "computing\n"
            code = _code(program.pid)
            for n in range(times):
                kind = chance.choice(DISTURBANCES)
                began = time.monotonic()
                sent += _visit(program.pid, kind, chance)
                longest = max(longest, time.monotonic() - began)
                done[kind] += 1
                _goes_on(program.pid, code)
                tell(f"{n + 1:4} {kind:10} {time.monotonic() - began:.2f} s")
            program.send_signal(signal.SIGTERM)
            said, _ = program.communicate(timeout=30)
        finally:
            program.kill()
    return Outcome(done, sent, said.strip(), program.returncode, longest)


def _visit(pid: int, kind: str, chance: random.Random) -> int:
    """One visit by a process of its own, disturbed as `kind` says; how many SIGUSR1 the program was sent."""
    visitor = os.fork()
    if visitor == 0:
        _be_visitor(pid)
    time.sleep(chance.uniform(0.0, 1.2))
    sent = 0
    if kind == "signal":
        os.kill(pid, signal.SIGUSR1)
        sent = 1
    elif kind == "kill gdb":
        for child in _children(visitor):
            os.kill(child, signal.SIGKILL)
    elif kind in ("interrupt", "terminate", "kill us"):
        os.kill(visitor, {"i": signal.SIGINT, "t": signal.SIGTERM, "k": signal.SIGKILL}[kind[0]])
    status = _waited(visitor)
    wanted = {"interrupt": (0, 130), "terminate": (0, 143, -15), "kill us": (0, -9), "kill gdb": (0, 7)}.get(kind, (0,))
    assert status in wanted, f"a visit disturbed by {kind!r} ended with {status}"
    return sent


def _be_visitor(pid: int) -> None:
    """A visit: 0 if all went well, 7 if gdb was lost, 130 and 143 as a shell says interrupted and terminated."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with AttachSession.attach(pid) as session:
            for _ in range(3):
                session.stop_at(FUNCTIONS, 20)
                session.instance.address(session.function())
                session.link.arguments()
                session.finish(seconds=20)
        status = 0
    except AttachError as error:
        status = 7 if "gdb" in str(error) else 8
        sys.stderr.write(f"{error}\n")
    except KeyboardInterrupt:
        status = 130
    except SystemExit as leave:
        status = int(str(leave.code))
    finally:
        os._exit(status)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]


def _waited(pid: int) -> int:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("a visit did not end within 60 s")


def _code(pid: int) -> dict[tuple[str, int], bytes]:
    """The code that the program runs, by file and offset."""
    out = {}
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        words = line.split(maxsplit=5)
        if "x" in words[1] and len(words) == 6 and words[5].startswith("/"):
            first, last = (int(word, 16) for word in words[0].split("-"))
            out[words[5], first] = _memory(pid, first, last - first)
    return out


def _memory(pid: int, address: int, length: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        return memory.read(length)


def _goes_on(pid: int, code: dict[tuple[str, int], bytes]) -> None:
    """The program is traced by nobody, runs, and its code is as it was."""
    until = time.monotonic() + 10
    while True:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["TracerPid"] == "0" and fields["State"][0] in "RSD":
            break
        assert time.monotonic() < until, f"the program is left in {fields['State']}, traced by {fields['TracerPid']}"
        time.sleep(0.01)
    for (file, address), before in code.items():
        now = _memory(pid, address, len(before))
        if now != before:
            changed = [n for n, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
            raise AssertionError(f"{file} has other code at {[hex(n) for n in changed[:4]]}")
    used = _processor_time(pid)
    while _processor_time(pid) == used:
        assert time.monotonic() < until, "the program does not go on computing"
        time.sleep(0.01)


def _processor_time(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return int(words[11])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ggml", default="0.20.2")
    options = parser.parse_args()
    outcome = visits(options.times, options.seed, options.ggml, lambda line: print(line, flush=True))  # noqa: T201
    print(outcome)  # noqa: T201
    return 0 if outcome.said == f"0 wrong results, {outcome.sent} signals" and outcome.status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
