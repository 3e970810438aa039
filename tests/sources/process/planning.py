"""A program that plans random graphs on the real library of a release: `python planning.py RELEASE FIRST LAST`."""

from __future__ import annotations

import sys

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import load
from ggmltool.oracle.run import Runner
from tests.conformance.fuzz import scenario
from tests.conformance.run import planning_only


def main(release: str, first: str, last: str) -> None:
    """Plan the graphs of these seeds, the last excluded."""
    runner = Runner(load(RELEASES[release]), values=False, debug=0)
    for seed in range(int(first), int(last)):
        _say("seed", seed)
        model = planning_only(ggmltool.load(scenario(seed), ggml=release))
        runner.run(model, lambda kind, _: _say(kind))


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
