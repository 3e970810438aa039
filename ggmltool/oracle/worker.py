"""Runs scenarios on the real library in forked children, one after the other, and streams the results back."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.state import State
from ggmltool.oracle import fork
from ggmltool.oracle.fork import ABORT_CALLBACK
from ggmltool.oracle.lib import Lib, load
from ggmltool.oracle.mock import Answered
from ggmltool.oracle.run import Places, Runner, failed_plan
from ggmltool.scenario.spec import ScenarioSpec

if TYPE_CHECKING:
    import numpy as np


@dataclass(slots=True)
class OracleRun:
    """What the real library did with a scenario.

    `plans` are those of `Plan.as_dict` for every reserve and alloc step, without causes; the last one has the
    error where ggml aborted or crashed. `debug` is the text of GGML_SCHED_DEBUG=2 for each plan, `states` (of a run
    that was asked for them) what the library held after each. `values` has a {id: array} for every get step, without
    those that lie in freed memory. `builds` has, after every step of a run
    that computes, for the newest build of each graph where its leafs and nodes lie: None without data, FREED in
    memory that was freed, else buffer type and offset. `trace` is what ggml asked of the
    devices, in order, one line per call:

    `synchronize BACKEND`, `graph_compute BACKEND [node, …]`, `event_new DEVICE K`, `event_record BACKEND K`,
    `event_wait BACKEND K`, `event_synchronize DEVICE K`, `alloc_buffer BUFT BYTES`, `free_buffer BUFT BYTES`,
    `set_tensor BUFT TENSOR OFFSET BYTES`, `get_tensor BUFT TENSOR OFFSET BYTES`. Tensors go by id, copies by name;
    the CPU's own buffer type leaves no lines. K is the pipeline copy.
    """

    plans: list[dict[str, Any]] = field(default_factory=list)
    debug: list[bytes] = field(default_factory=list)
    values: list[dict[str, np.ndarray]] = field(default_factory=list)
    builds: list[dict[str, Places]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def add(self, kind: str, value: Any) -> None:
        """Takes one message of a `Runner`."""
        if kind == "plan":
            plan, text = value
            self.plans.append(plan)
            self.debug.append(text)
        elif kind == "state":
            self.states.append(value)
        elif kind == "values":
            self.values.append(value)
        elif kind == "builds":
            self.builds.append(value)
        elif kind == "trace":
            self.trace = value


BATCH = 250
"""Scenarios given to one child: enough that forking costs nothing, few enough that a leak does no harm."""


def run(model: ScenarioSpec, debug: int = 2, values: bool = True, answered: Answered | None = None) -> OracleRun:
    """Runs one scenario on the real library, in a forked child.

    `debug` is the GGML_SCHED_DEBUG the scheduler is made with (0, 1 or 2). Without `values` compute, set and get steps
    touch no memory. `answered` gets the devices whose rules are the engine's, to let others answer for them. Raises
    OracleUnavailable if the library is missing, ChildError where the scenario cannot be run there.
    """
    return next(run_on(load(model.release), [model], debug, values, answered))


def run_many(models: Iterable[ScenarioSpec], debug: int = 2, values: bool = True) -> Iterator[OracleRun]:
    """Runs scenarios in order, each on the library of its release.

    One child serves many, and is replaced when ggml aborts or crashes in it.
    """
    for release, same in groupby(models, key=lambda model: model.release):
        yield from run_on(load(release), same, debug, values)


def run_on(
    lib: Lib,
    models: Iterable[ScenarioSpec],
    debug: int = 2,
    values: bool = True,
    answered: Answered | None = None,
    states: bool = False,
) -> Iterator[OracleRun]:
    """The same on one library, whatever the scenarios' release; with `states` all of each State."""
    models = iter(models)
    start = partial(Runner, lib, debug, values, answered, states)
    while batch := list(islice(models, BATCH)):
        done = 0
        while done < len(batch):
            for result in _child_results(start, batch[done:]):
                done += 1
                yield result


def _child_results(start: Callable[[], Runner], models: Sequence[ScenarioSpec]) -> Iterator[OracleRun]:
    with closing(fork.messages_of(partial(_serve, start, models))) as messages:
        for model in models:
            result = OracleRun()
            for kind, value in messages:
                if kind in ("done", "aborted", "gone"):
                    break
                result.add(kind, value)
            if kind == "gone":
                error = {"kind": "crash", "condition": None, "message": value}
                planned = [step for step in model.steps if step.kind in ("reserve", "alloc")]
                step = planned[len(result.plans)] if len(result.plans) < len(planned) else model.steps[-1]
                result.add("plan", (failed_plan(model, step, error, []), b""))
            yield result
            if kind != "done":
                return


def _serve(start: Callable[[], Runner], models: Sequence[ScenarioSpec], emit: fork.Emit) -> None:
    def on_abort(message: bytes) -> None:
        runner.on_abort(message)
        emit("aborted", None)
        os._exit(0)

    def on_callback_failure(failure: sys.UnraisableHookArgs) -> None:
        # ggml would go on with a made-up answer. A device whose rules are the engine's may abort like a real one.
        if isinstance(failure.exc_value, GgmlError):
            on_abort(failure.exc_value.message.encode("utf-8", "surrogateescape"))
        if runner.has_freed:
            on_abort(b"a freed buffer is used, whose struct is that of something else now")
        text = traceback.format_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
        emit("raised", "".join(text))
        os._exit(1)

    sys.unraisablehook = on_callback_failure
    runner = start()
    callback = ABORT_CALLBACK(on_abort)
    runner.lib.ggml_set_abort_callback(callback)
    for model in models:
        runner.run(model, emit)
        emit("done", None)
