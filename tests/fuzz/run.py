"""`python -m tests.fuzz.run --kind scenario --seeds 0:10000`: many mutated cases, and what was wrong with which.

Every case is made from its kind and its seed, and done in a forked process with a bound on time and memory. What goes
wrong is told once for each place, with the seed and a case as small as could be found. The exit status is 1 then.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import get_args

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: one core a process

from tests.fuzz.case import KINDS, Case, Kind, Through, make
from tests.fuzz.shrink import smallest
from tests.fuzz.workers import Done, alone, run

SHOWN = 8
"""Seeds that are named for a place."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the cases that the command line asks for."""
    options = _options(arguments)
    wrong = [_kind(kind, options) for kind in options.kind or KINDS]
    return 1 if any(wrong) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="what is mutated (default: all)")
    parser.add_argument("--seeds", default="0:1000", metavar="A:B", help="the cases, or one of them: A")
    parser.add_argument("--through", choices=get_args(Through), help="default: half of them through each")
    parser.add_argument("-j", type=int, default=1, metavar="N", dest="processes", help="processes")
    parser.add_argument("--no-shrink", action="store_true", help="tell the first case as it was")
    return parser.parse_args(arguments)


def _kind(kind: Kind, options: argparse.Namespace) -> int:
    """Do the cases of a kind; how many went wrong."""
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    begin = time.monotonic()
    outcomes: Counter[str] = Counter()
    found: dict[str, list[int]] = {}

    def made(seed: int) -> Case:
        return make(kind, seed, options.through)

    _warm_up()
    for done in run(made, seeds, options.processes):
        outcomes[done.outcome.short] += 1
        if done.outcome.place:
            found.setdefault(done.outcome.place, []).append(done.number)
            if len(found[done.outcome.place]) == 1:
                _tell(made(done.number), done, options)
    wrong = sum(map(len, found.values()))
    shown = ", ".join(f"{short} {n}" for short, n in outcomes.most_common())
    _say(f"{kind}: {len(seeds)} cases in {time.monotonic() - begin:.0f} s, {wrong} wrong: {shown}")
    for place, numbers in sorted(found.items(), key=lambda item: -len(item[1])):
        some = ", ".join(map(str, numbers[:SHOWN])) + (", …" if len(numbers) > SHOWN else "")
        _say(f"  {len(numbers):6} × {place}: seeds {some}")
    return wrong


def _warm_up() -> None:
    """Import and read here what every case needs, so that no process that is forked has to."""
    import numpy

    from tests.fuzz import attached, bases, commands, records

    numpy.zeros(1)
    bases.texts()
    bases.logs()
    bases.captured()
    records.texts()
    attached.documents()
    commands.taking("scenario")
    first = alone(Case("log", 0, "cli", args=("--version",)))
    if first.place:
        raise SystemExit(f"ggmltool --version fails: {first}")
    gc.collect()
    gc.freeze()


def _tell(case: Case, done: Done, options: argparse.Namespace) -> None:
    """What went wrong, and how to see it again."""
    outcome = done.outcome
    _say(f"{case.kind} {case.seed}: {outcome.place}: {outcome.message}")
    small = case if options.no_shrink else smallest(case, outcome.place)
    _say(f"  {small.told()}")


def _say(text: str) -> None:
    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
