"""Random graphs in a program, planned as the program's ggml decided them: every field, at every call.

    python -m tests.attach.randomly --seeds 0:300 --ggml 0.26
    python -m tests.attach.randomly --seeds 0:300 --ggml 0.26 --way pid
    python -m tests.attach.randomly --seeds 0:300 --ggml 0.26 --way core
    python -m tests.attach.randomly --seeds 0:100 --ggml 0.20.2 --wide
    python -m tests.attach.randomly --seeds 0:100 --version 0.23.0

One program runs all seeds on the real scheduler (`tests.attach.on_library`) while gdb stops it at every reserve and
alloc: the graph becomes a scenario, the scenario a plan, and the plan is what the scheduler did next. What the program
prints is what it prints alone.

`--way launch`: the program is started so. `--way pid`: it has run all seeds and runs them again and again; it is
attached to, looked at for some calls, and let go, until as many calls were seen as one round has. `--way core`: see
`tests.attach.in_cores`. On a busy machine devices may not answer in time, so that a plan differs; a note says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import ggmltool
from ggmltool.ask.attach.verified import AttachVerifyDocument, verify_written
from ggmltool.attach.calls import ALLOC, ALONE, COMPUTE, RESERVE, Visited, caller_of, in_scheduler, visit
from ggmltool.attach.session import AttachError, AttachSession
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.oracle import run_many
from ggmltool.sources.llama.capture.packages import behavior_of
from tests.attach.on_library import library, random_scenario, read_seeds
from tests.attach.programs import ROOT, onto
from tests.conformance.releases import JUDGED
from tests.conformance.run import planning_only

AT = {
    "alloc": RESERVE + ALLOC,
    "compute": COMPUTE,
    "alone": ALONE["reserve"] + ALONE["alloc"],
}
AT_ONCE = 40
"""So many calls are looked at by the number of a process before it is let go."""
IN_A_CORE = 6
"""So many seeds are in a core dump: each of their calls takes 45 MB of it."""


class Stopped(NamedTuple):
    """A call of the program, seen from its entry to its return: the scheduler's and the graph's addresses."""

    function: str
    sched: int
    graph: int
    visited: Visited

    def verified(self) -> AttachVerifyDocument:
        """The plan beside what was decided."""
        return verify_written(self.visited.written, self.visited.decided, self.visited.left)


class Compared(NamedTuple):
    """A call, and how its plan compares: `what` is compared with what, the `document` is the scenario."""

    number: int
    function: str
    what: str
    verified: AttachVerifyDocument
    document: dict[str, Any]


class Ran(NamedTuple):
    """What a program gave: what it printed, what it ended with, and what was compared."""

    output: bytes
    status: int
    compared: list[Compared]


def survivors(seeds: Sequence[int], release: str, wide: bool = False, values: bool = False) -> list[int]:
    """The seeds whose steps ggml survives, all of them: the others would end the program.

    With `values` they are computed, and the library itself says which of them its kernels take.
    """
    out = []
    for seed in seeds:
        loaded = ggmltool.load(random_scenario(seed, wide, values), ggml=release)
        if all(plan.ok for plan in loaded.start().run(planning_only(loaded).steps)):
            out.append((seed, loaded.model))
    if not values:
        return [seed for seed, _ in out]
    ran = run_many([model for _, model in out], 0)
    return [seed for (seed, _), real in zip(out, ran, strict=True) if real.plans and all(p["ok"] for p in real.plans)]


def command(
    seeds: Sequence[int],
    release: str,
    wide: bool = False,
    values: bool = False,
    module: str = "tests.attach.on_library",
    version: str = "",
) -> list[str]:
    """The program, run by this Python; with `values` it computes, too."""
    given = ",".join(map(str, seeds))
    out = [sys.executable, "-m", module, "--ggml", release, "--seeds", given]
    out += ["--version", version] if version else []
    return [*out, *(["--wide"] if wide else []), *(["--values"] if values else [])]


def alone(arguments: Sequence[str]) -> tuple[bytes, int]:
    """What a program prints and ends with when nobody looks."""
    ran = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    return ran.stdout, ran.returncode


def looked_at(arguments: Sequence[str], at: str = "alloc") -> Ran:
    """The same of a program that is stopped at every call of its scheduler."""
    with launched(arguments) as (session, out):
        compared = [one for n, stop in enumerate(stops(session, at)) for one in plans(n, stop)]
        session.detach()
        status = session.wait()
        out.seek(0)
        return Ran(out.read(), status, compared)


@contextmanager
def launched(arguments: Sequence[str]) -> Iterator[tuple[AttachSession, Any]]:
    """A program that waits to be looked at, and the file that it prints into."""
    with tempfile.TemporaryFile() as out:
        with onto(out.fileno()), chdir(ROOT):
            session = AttachSession.launch(arguments)
        with session:
            yield session, out


def by_number(arguments: Sequence[str], output: bytes) -> Ran:
    """The same of a program that runs already, which alone prints this `output`: it is attached to again and again
    until as many calls were seen as one round of it has."""
    compared: list[Compared] = []
    calls = output.count(b"\n{")
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([*arguments, "--forever"], cwd=ROOT, stdout=out)
        try:
            while process.poll() is None and os.fstat(out.fileno()).st_size < len(output) - len(b"done\n"):
                time.sleep(0.1)
            while len(compared) < calls and process.poll() is None:
                with AttachSession.attach(process.pid) as session:
                    for stop in islice(stops(session), min(AT_ONCE, calls - len(compared))):
                        compared += plans(len(compared), stop)
            process.terminate()
            status = process.wait(60)
        finally:
            process.kill()
        out.seek(0)
        return Ran(out.read(), status, compared)


def plans(number: int, stop: Stopped) -> Iterator[Compared]:
    """A call of a living program beside its plan."""
    yield Compared(number, stop.function, "", stop.verified(), stop.visited.written.document)


def stops(session: AttachSession, at: str = "alloc") -> Iterator[Stopped]:
    """Every reserve and alloc of the program, or every compute, until it ends."""
    while True:
        try:
            session.stop_at(AT[at])
        except AttachError:
            return
        function = session.function()
        if at == "alone" and (caller_of(session) in AT[at] or in_scheduler(session)):
            continue
        sched, graph = session.link.arguments()[:2]
        yield Stopped(function, sched, graph, visit(session))


def main() -> int:
    """Prints every call that differs and a summary; 1 where one did, or the program did otherwise than alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:20", metavar="A:B,C", help="from A up to, not including, B, and C")
    parser.add_argument("--ggml", default=DEFAULT.name, choices=JUDGED)
    parser.add_argument(
        "--version", default="", help="a library in GGMLTOOL_LIBRARIES, by its ggml_version, instead of a release's own"
    )
    parser.add_argument("--wide", action="store_true", help="scenarios with more of what is rare")
    parser.add_argument("--way", choices=["launch", "pid", "core"], default="launch")
    parser.add_argument(
        "--at", choices=list(AT), default="alloc", help="alloc: at every reserve, too; alone: without a scheduler"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the scenarios that differ there")
    options = parser.parse_args()
    if options.way != "launch" and options.at != "alloc":
        parser.error("--way pid and --way core are for --at alloc")
    wanted = list(read_seeds(options.seeds))
    started = time.perf_counter()
    seeds, programs = _programs(options, wanted)
    compared, others = [], 0
    for arguments in programs:
        output, status = alone(arguments)
        ran = _look(options, arguments, output)
        compared += ran.compared
        if (ran.output, ran.status) != (output, status):
            others += 1
            printed = f"the program printed {len(ran.output)} bytes and ended with {ran.status}"
            say(f"{printed}, alone {len(output)} and {status}")
        for c in ran.compared:
            if not c.verified.same:
                say(f"call {c.number} {c.function}{c.what}: {c.verified.different} differ, first {c.verified.first}")
                for note in c.verified.notes:
                    say(f"  {note}")
                _keep(c, options.keep)
    for what in dict.fromkeys(c.what for c in compared):
        those = [c.verified for c in compared if c.what == what]
        nodes, fields, wrong = (sum(n) for n in zip(*((v.nodes, v.fields, not v.same) for v in those), strict=True))
        say(f"{len(those)} calls{what}, {nodes} nodes, {fields} fields: {wrong} differ")
    say(f"{len(seeds)} of {len(wanted)} seeds; {time.perf_counter() - started:.0f} s")
    return 0 if compared and not others and all(c.verified.same for c in compared) else 1


def _programs(options: argparse.Namespace, wanted: list[int]) -> tuple[list[int], list[list[str]]]:
    """The seeds that can be run, and the programs that run them."""
    release = options.ggml
    if options.version:
        release = behavior_of(options.version, 0, library(release, options.version).exports).release.name
    if options.at == "alone":
        return wanted, [command(wanted, release, options.wide, module="tests.attach.alone")]
    seeds = survivors(wanted, release, options.wide, options.at == "compute")
    if options.way == "core":
        some = [seeds[i : i + IN_A_CORE] for i in range(0, len(seeds), IN_A_CORE)]
        return seeds, [command(s, release, options.wide, module="tests.attach.keeping") for s in some]
    return seeds, [command(seeds, release, options.wide, options.at == "compute", version=options.version)]


def _look(options: argparse.Namespace, arguments: list[str], output: bytes) -> Ran:
    if options.way == "core":
        from tests.attach.in_cores import dumped

        return dumped(arguments)
    if options.way == "pid":
        return by_number(arguments, output)
    return looked_at(arguments, options.at)


def _keep(compared: Compared, folder: Path | None) -> None:
    """Write a scenario that differs."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"call{compared.number}.json").write_text(json.dumps(compared.document, indent=1))


def say(line: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
