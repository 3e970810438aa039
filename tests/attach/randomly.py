"""Random graphs in a program, planned as the program's ggml decided them: every field, at every call.

    python -m tests.attach.randomly --seeds 0:300 --ggml 0.26
    python -m tests.attach.randomly --seeds 0:100 --ggml 0.20.2 --wide

One program runs all seeds on the real scheduler (`tests.attach.on_library`) while gdb stops it at every reserve and
alloc: the graph becomes a scenario, the scenario a plan, and the plan is what the scheduler did next. What the program
prints is what it prints alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ggmltool
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.inspect.attached.verified import Verified, verify
from ggmltool.oracle import run_many
from ggmltool.sources.process import alone, stops
from ggmltool.sources.process.session import AttachError, Session
from ggmltool.sources.process.stops import in_scheduler, within
from ggmltool.sources.process.visited import visit
from ggmltool.sources.process.written import GRAPH, Written
from tests.attach.on_library import random_scenario, read_seeds
from tests.attach.programs import ROOT
from tests.conformance.releases import JUDGED
from tests.conformance.run import planning_only

AT = {"alloc": stops.RESERVE + stops.ALLOC, "compute": stops.COMPUTE, "alone": alone.RESERVE + alone.ALLOC}


class Compared(NamedTuple):
    """A stop: the number of the call, what was written of it, and how the plan compares."""

    number: int
    function: str
    written: Written
    verified: Verified
    decided: dict[str, Any]


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
) -> list[str]:
    """The program, run by this Python; with `values` it computes, too."""
    given = ",".join(map(str, seeds))
    out = [sys.executable, "-m", module, "--ggml", release, "--seeds", given]
    return [*out, *(["--wide"] if wide else []), *(["--values"] if values else [])]


def alone(arguments: Sequence[str]) -> tuple[bytes, int]:
    """What a program prints and ends with when nobody looks."""
    ran = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    return ran.stdout, ran.returncode


def looked_at(arguments: Sequence[str], at: str = "alloc") -> Ran:
    """The same of a program that is stopped at every call of its scheduler."""
    with tempfile.TemporaryFile() as out:
        kept, folder = os.dup(1), Path.cwd()
        os.dup2(out.fileno(), 1)
        os.chdir(ROOT)
        try:
            session = Session.launch(arguments)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            os.chdir(folder)
        with session:
            compared = list(stops(session, at))
            session.detach()
            status = session.wait()
        out.seek(0)
        return Ran(out.read(), status, compared)


def stops(session: Session, at: str = "alloc") -> Iterator[Compared]:
    """Every reserve and alloc of the program, or every compute, compared, until it ends."""
    number = 0
    while True:
        try:
            session.stop_at(AT[at])
        except AttachError:
            return
        function = session.function()
        if at == "alone" and (within(session, AT[at]) or in_scheduler(session)):
            continue
        found = visit(session)
        made = found.written
        verified = verify(made.document, GRAPH, made.step, found.decided, made.notes, found.left)
        yield Compared(number, function, made, verified, found.decided)
        number += 1


def main() -> int:
    """Prints every call that differs and a summary; 1 where one did, or the program did otherwise than alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:20", metavar="A:B,C", help="from A up to, not including, B, and C")
    parser.add_argument("--ggml", default=DEFAULT.name, choices=JUDGED)
    parser.add_argument("--wide", action="store_true", help="scenarios with more of what is rare")
    parser.add_argument(
        "--at", choices=list(AT), default="alloc", help="alloc: at every reserve, too; alone: without a scheduler"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the scenarios that differ there")
    options = parser.parse_args()
    wanted = list(read_seeds(options.seeds))
    started = time.perf_counter()
    if options.at == "alone":
        seeds = wanted
        arguments = command(seeds, options.ggml, options.wide, module="tests.attach.alone")
    else:
        seeds = survivors(wanted, options.ggml, options.wide, options.at == "compute")
        arguments = command(seeds, options.ggml, options.wide, options.at == "compute")
    output, status = alone(arguments)
    ran = looked_at(arguments, options.at)
    different = [c for c in ran.compared if not c.verified.same]
    for c in different:
        say(f"call {c.number} {c.function}: {c.verified.different} differ, first {c.verified.first}")
        if options.keep is not None:
            import json

            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"call{c.number}.json").write_text(json.dumps(c.written.document, indent=1))
    same_output = (ran.output, ran.status) == (output, status)
    if not same_output:
        say(
            f"the program printed {len(ran.output)} bytes and ended with {ran.status}, alone {len(output)} and {status}"
        )
    nodes, fields = sum(c.verified.nodes for c in ran.compared), sum(c.verified.fields for c in ran.compared)
    say(
        f"{len(seeds)} of {len(wanted)} seeds, {len(ran.compared)} calls, {nodes} nodes, {fields} fields: "
        f"{len(different)} differ; {time.perf_counter() - started:.0f} s"
    )
    return 1 if different or not same_output or not ran.compared else 0


def say(line: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
