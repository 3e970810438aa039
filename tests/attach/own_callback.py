"""A program on the ggml of a Python package that computes a sample with an eval callback of its own.

    python -m tests.attach.own_callback 0.20.2 transformer 'q*'

It is asked about every node and wants those whose names match; it prints what it is told, and the outputs.
"""

from __future__ import annotations

import ctypes
import sys
from fnmatch import fnmatchcase

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import load
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner, ScenarioRun
from tests.attach.on_library import say, show

_ASK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_USER = 0x1234


def main() -> None:
    release, scenario, pattern = sys.argv[1:]
    runner = Runner(load(RELEASES[release]), debug=0)
    model = ggmltool.load(scenario, ggml=release).model
    world = World(runner.callbacks, model, True)
    run = ScenarioRun(runner, model, world)
    run.start()

    def seen(address: int, ask: bool, user: int) -> bool:
        name = world.tensor_name(address)
        if not ask:
            say(f"computed {name} {user:#x}")
        return not ask or fnmatchcase(name, pattern)

    callback = _ASK(seen)
    runner.lib.ggml_backend_sched_set_eval_callback(run.sched, callback, _USER)
    for step in model.steps:
        run.step(step, show)
    run.close()
    say("done")


if __name__ == "__main__":
    main()
