"""Attaching to a program with a graph of 5 000 nodes, phase by phase.

    python -m tests.benchmarks.attaching [NODES]

Wall seconds, and seconds of this process and of gdb. The goal is 10 s for all of it, of which the program stands still
for 0.3 s, and 0.2 s for each thousand nodes. Then `ggmltool attach PID` of programs of 24 nodes and of so many, and
`ggml splits` in gdb, for which the seconds of gdb and of ggmltool's process beside it are told. The program is the
tests' own in C, which needs a compiler and the package libggml-python.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ggmltool.attach.devices.asking import ask
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.write.written import written
from tests.attach.in_gdb import session as gdb_session
from tests.attach.programs import c_program, environment, started

FUNCTION = "ggml_backend_sched_alloc_graph"
NODES_OF_LAYER = 6
GOAL = 10.0
STILL = 0.3
STILL_OF_A_NODE = 0.2e-3
TICK = os.sysconf("SC_CLK_TCK")


class Clock:
    """Phases with their wall seconds and those of this process and of gdb."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, float, float, float]] = []
        self.gdb = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        wall, ours, gdbs = time.perf_counter(), time.process_time(), self._of_gdb()
        yield
        took = time.perf_counter() - wall
        self.phases.append((name, took, time.process_time() - ours, self._of_gdb() - gdbs))

    def _of_gdb(self) -> float:
        if not self.gdb:
            self.gdb = next((pid for pid in _children() if _name(pid) == "gdb"), 0)
        return sum(map(int, _stat(self.gdb)[11:13])) / TICK if self.gdb else 0.0


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields of a process's stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def main() -> None:
    """Print a line for each phase."""
    n_nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    layers = -(-n_nodes // NODES_OF_LAYER)
    program = [str(c_program()), "--layers", str(layers), "--iterations", "1", "--no-reserve"]
    clock = Clock()
    with clock.phase("gdb, the program"):
        session = AttachSession.launch(program)
    with session:
        with clock.phase("to the call"):
            session.stop_at([FUNCTION])
        sched, graph = session.link.arguments()[:2]
        with clock.phase("reading before"):
            before = read_snapshot(session, sched, graph, FUNCTION, "before")
        with clock.phase("asking"):
            answers = ask(session, before)
        with clock.phase("the call"):
            session.finish()
        with clock.phase("reading after"):
            after = read_snapshot(session, sched, graph, FUNCTION, "after", before)
        with clock.phase("letting go"):
            session.detach()
        with clock.phase("writing"):
            text = json.dumps(written(before, answers, after).document)
        session.wait()
    total = sum(wall for _, wall, _, _ in clock.phases)
    n_nodes, n_splits = len(before.graph.nodes), len(after.sched.splits)
    print(f"{n_nodes} nodes, {n_splits} splits, {answers.asked} questions, {len(text)} bytes of JSON")
    print(f"{'':<18} {'wall':>8} {'ours':>8} {'gdb':>8}")
    sums = (sum(phase[i] for phase in clock.phases) for i in (1, 2, 3))
    for name, *seconds in [*clock.phases, ("all", *sums)]:
        print(f"{name:<18} " + " ".join(f"{s:7.2f}s" for s in seconds))
    print(f"goal {GOAL:.0f} s: {'reached' if total <= GOAL else 'missed'}")
    still, goal = session.stood_still, STILL + n_nodes * STILL_OF_A_NODE
    print(f"it stood still for {still:.2f} s; goal {goal:.1f} s: {'reached' if still <= goal else 'missed'}")
    by_number("24 nodes", [program[0], "--no-reserve"])
    by_number(f"{n_nodes} nodes", [*program[:3], "--no-reserve"])
    in_gdb(program)


def by_number(nodes: str, program: Sequence[str]) -> None:
    """Print how long `ggmltool attach PID` takes."""
    with started([*program, "--forever", "--pause", "10"]) as process:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "ggmltool", "attach", "--json", str(process.pid)]
        subprocess.run(command, check=True, capture_output=True, env=environment())
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"attach PID, {nodes}: {wall:.2f} s, {spent:.2f} s of ggmltool and gdb")


_TIMED = """
import sys, time
import gdb

def seconds():
    child = sys.modules["ggmltool_ingdb"].child.process
    stat = open("/proc/%d/stat" % child.pid).read().rpartition(")")[2].split() if child else ["0"] * 20
    return time.perf_counter(), time.process_time(), (int(stat[11]) + int(stat[12])) / TICK

def timed(command):
    before = seconds()
    gdb.execute(command, to_string=True)
    print("%s: %.2f s, %.2f s of gdb, %.2f s of ggmltool" % (command, *(b - a for a, b in zip(before, seconds()))))
"""


def in_gdb(program: Sequence[str]) -> None:
    """Print how long commands take in somebody's gdb: the first, with the start of ggmltool, and others."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timed.py")
        file.write_text(_TIMED.replace("TICK", str(TICK)))
        asked = ["ggml splits", "ggml splits", "ggml why node_8", "ggml verify"]
        said = gdb_session(
            program, f"source {file}", "break ggml_backend_sched_graph_compute_async", "run",
            *(f"python timed({command!r})" for command in asked),
            "stepi", "python timed('ggml splits')",
        )  # fmt: skip
    print("\n".join(line for line in said.splitlines() if line.startswith("ggml ") and " s of gdb" in line))


if __name__ == "__main__":
    main()
