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
from typing import get_args

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: one core a process

from tests.fuzz.case import KINDS, Case, Through, make
from tests.fuzz.shrink import smallest
from tests.fuzz.workers import Done, alone, run


def main() -> int:
    options = _options()
    total = 0
    for kind in options.kind or KINDS:
        total += _kind(kind, options)
    return 1 if total else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="what is mutated (default: all)")
    parser.add_argument("--seeds", default="0:1000", metavar="A:B", help="the cases, or one of them: A")
    parser.add_argument("--through", choices=get_args(Through), help="default: half of them through each")
    parser.add_argument("-j", type=int, default=1, metavar="N", dest="processes", help="processes")
    parser.add_argument("--no-shrink", action="store_true", help="tell the first case as it was")
    return parser.parse_args()


def _kind(kind: str, options: argparse.Namespace) -> int:
    """Do the cases of a kind; how many went wrong."""
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    time.monotonic()
    outcomes: Counter[str] = Counter()
    found: dict[str, list[int]] = {}

    def made(seed: int) -> Case:
        return make(kind, seed, options.through)

    _warm_up(made)
    for done in run(made, seeds, options.processes):
        outcomes[done.outcome.short] += 1
        if done.outcome.place:
            found.setdefault(done.outcome.place, []).append(done.number)
            if len(found[done.outcome.place]) == 1:
                _tell(made(done.number), done, options)
    wrong = sum(map(len, found.values()))
    ", ".join(f"{short} {n}" for short, n in outcomes.most_common())
    for _place, _numbers in sorted(found.items(), key=lambda item: -len(item[1])):
        pass
    return wrong


def _warm_up(made: object) -> None:
    """Import here what every case needs, so that no process that is forked has to."""
    import numpy

    from tests.fuzz import bases
    from tests.fuzz.commands import _taking

    bases.texts(), bases.logs(), bases._captured(), _taking("scenario"), numpy.zeros(1)
    alone_is_fine = alone(Case("log", 0, "cli", args=("--version",)))
    if alone_is_fine.place:
        raise SystemExit(f"ggmltool --version fails: {alone_is_fine}")
    gc.collect()
    gc.freeze()


def _tell(case: Case, done: Done, options: argparse.Namespace) -> None:
    outcome = done.outcome
    case if options.no_shrink else smallest(case, outcome.place)


if __name__ == "__main__":
    sys.exit(main())
