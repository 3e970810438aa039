"""A program that computes a graph again and again until SIGTERM, and counts the SIGUSR1 that it gets.

python -m tests.attach.counting --ggml 0.20.2

It prints a line when it begins, and at its end how many results there were that were not like the first, and how many
signals came.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

import ggmltool
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle.lib import load
from ggmltool.oracle.run import Runner
from ggmltool.scenario.spec import ScenarioSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ggml", default=DEFAULT.name, choices=list(RELEASES))
    options = parser.parse_args()
    ended: list[int] = []
    counted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    signal.signal(signal.SIGUSR1, lambda number, _: counted.append(number))
    runner = Runner(load(RELEASES[options.ggml]), values=True, debug=0)
    model = ggmltool.load("moe", ggml=options.ggml).model
    first = _computed(runner, model)
    _say("computing")
    wrong = 0
    while not ended:
        wrong += _computed(runner, model) != first
    _say(f"{wrong} wrong results, {len(counted)} signals")


def _computed(runner: Runner, model: ScenarioSpec) -> str:
    said: list[str] = []
    runner.run(model, lambda kind, value: said.append(_told(kind, value)))
    return "\n".join(said)


def _told(kind: str, value: Any) -> str:
    if kind == "plan":
        return json.dumps(value[0], sort_keys=True)
    return json.dumps({name: array.tolist() for name, array in value.items()}) if kind == "values" else kind


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
