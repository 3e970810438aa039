"""A program that keeps what it makes: random graphs, each as a scheduler has left it, all of them there at the end.

    python -m tests.attach.keeping --ggml 0.26 --seeds 0:3

Of every seed the first call of the scheduler is made on one scheduler, the first two on another, and so on. Before the
last call of each it sets that scheduler's eval callback (to none), and before it ends it frees one scheduler: who looks
on can stop there.
"""

from __future__ import annotations

import json
from typing import Any

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import load
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Emit, Runner, ScenarioRun
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.attach.on_library import random_scenario, read_seeds, say, seeds_parser
from tests.conformance.run import planning_only

CALLS = ("reserve", "alloc")


class KeepingRunner(Runner):
    """Runs scenarios of which nothing is freed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: list[ScenarioRun] = []

    def keep(self, model: ScenarioSpec, steps: tuple[Step, ...], emit: Emit) -> None:
        """Runs some steps of a model, the last of which is a call of the scheduler."""
        run = ScenarioRun(self, model, World(self.callbacks, model, False))
        self.kept.append(run)
        run.start()
        for step in steps[:-1]:
            run.step(step, lambda *_: None)
        self.lib.ggml_backend_sched_set_eval_callback(run.sched, None, None)
        run.step(steps[-1], emit)


def main() -> None:
    options = seeds_parser(__doc__, "0:3").parse_args()
    runner = KeepingRunner(load(RELEASES[options.ggml]), values=False, debug=0)
    for seed in read_seeds(options.seeds):
        model = planning_only(ggmltool.load(random_scenario(seed, options.wide), ggml=options.ggml))
        for n, step in enumerate(model.steps, 1):
            if step.kind in CALLS:
                runner.keep(model, model.steps[:n], lambda _, value: say(json.dumps(value[0], sort_keys=True)))
    runner.lib.ggml_backend_sched_free(runner.kept[-1].sched)
    say("done")


if __name__ == "__main__":
    main()
