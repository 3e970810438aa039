"""A program on the ggml of a Python package: random scenarios, or samples, on its real scheduler.

    python -m tests.attach.on_library --ggml 0.26 --seeds 0:3
    python -m tests.attach.on_library --ggml 0.20.2 transformer moe
    python -m tests.attach.on_library --ggml 0.21 --version 0.23.0 --seeds 0:3

It prints a line of JSON for each plan that the scheduler made, read by the oracle, and with --values what is computed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import ggmltool
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle.lib import Lib, libraries, load, open_library
from ggmltool.oracle.run import Runner
from ggmltool.scenario.spec import ScenarioSpec
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_wide import wide_scenario
from tests.conformance.run import planning_only


def main() -> None:
    parser = seeds_parser(__doc__, "0:0")
    parser.add_argument("samples", nargs="*", help="samples or files of scenarios")
    parser.add_argument("--version", default="", help="another library than the release's own, by its ggml_version")
    parser.add_argument("--values", action="store_true", help="compute, too")
    parser.add_argument(
        "--forever", action="store_true", help="again and again, until SIGTERM; the first time is printed"
    )
    parser.add_argument(
        "--count", action="store_true", help="again and again, until SIGTERM; count other results, and SIGUSR1"
    )
    options = parser.parse_args()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    runner = Runner(library(options.ggml, options.version), values=options.values, debug=0)
    models = list(_models(options))
    if options.count:
        count(runner, [model for _, model in models], stopped)
        return
    say(f"ggml {runner.lib.version}")
    for label, model in models:
        say(label)
        runner.run(model, show)
    while options.forever and not stopped:
        for _, model in models:
            runner.run(model, lambda *_: None)
        time.sleep(0.001)
    say("done")


def library(release: str, version: str = "") -> Lib:
    """A release's own library, or the one of another version."""
    if not version:
        return load(RELEASES[release])
    return next(lib for lib in map(open_library, libraries()) if lib.version == version)


def _models(options: argparse.Namespace) -> Iterator[tuple[str, ScenarioSpec]]:
    given = [
        (f"seed {seed}", random_scenario(seed, options.wide, options.values)) for seed in read_seeds(options.seeds)
    ]
    for label, spec in [*given, *((name, name) for name in options.samples)]:
        loaded = ggmltool.load(spec, ggml=options.ggml)
        yield label, loaded.model if options.values else planning_only(loaded)


def random_scenario(seed: int, wide: bool = False, values: bool = False) -> dict[str, Any]:
    """The scenario of a seed, with more of what is rare, or with values."""
    return wide_scenario(seed) if wide else scenario(seed, values=values)


def seeds_parser(description: str | None, seeds: str) -> argparse.ArgumentParser:
    """The options of programs that run random scenarios; `seeds` are those that they run by themselves."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ggml", default=DEFAULT.name, choices=list(RELEASES))
    parser.add_argument("--seeds", default=seeds, metavar="A:B,C", help="random scenarios")
    parser.add_argument("--wide", action="store_true", help="with more of what is rare")
    return parser


def read_seeds(text: str) -> Iterator[int]:
    """The numbers that `A:B,C` stands for."""
    for part in text.split(","):
        first, colon, last = part.partition(":")
        yield from range(int(first), int(last) if colon else int(first) + 1)


def told(kind: str, value: Any) -> str | None:
    """A plan, or computed values, as a line."""
    if kind == "plan":
        return json.dumps(value[0], sort_keys=True)
    return json.dumps({name: array.tolist() for name, array in value.items()}) if kind == "values" else None


def show(kind: str, value: Any) -> None:
    """Print it."""
    line = told(kind, value)
    if line is not None:
        say(line)


def count(runner: Runner, models: Sequence[ScenarioSpec], stopped: Sequence[int]) -> None:
    """Print how many results were not like the first, and how many SIGUSR1 came."""
    counted: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: counted.append(number))

    def computed() -> list[str | None]:
        said: list[str | None] = []
        for model in models:
            runner.run(model, lambda kind, value: said.append(told(kind, value)))
        return said

    first, wrong = computed(), 0
    say("computing")
    while not stopped:
        wrong += computed() != first
    say(f"{wrong} wrong results, {len(counted)} signals")


def say(line: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
