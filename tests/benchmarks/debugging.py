"""How fast the debugger is: recording, the state at points, steps, conditions, watchpoints, and a key on the screen.

    python -m tests.benchmarks.debugging [SCENARIO...]

Prints a table of processor times with the goal of each, and never fails. Without a scenario: gemma-3-270m, and a
graph of 2000 nodes. The screen needs Textual.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import ggmltool
from ggmltool.debugger.breakpoints import StopKind
from ggmltool.debugger.reading import Reading
from ggmltool.debugger.walk import Walker
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.story.history import History, record_history
from tests.benchmarks.gemma import show
from tests.benchmarks.planning import layers

NODES = 2000
STEPS = 1000
KEYS = 20
PLACE = "ggml_gallocr_allocate_node"
CONDITIONS = ("hn->addr.offset > 1000000000000", "node->ne[0] == 12345", "sched->n_splits > 100")
WATCHED = ("sched->n_splits", "sched->splits[0].i_end", "galloc->hash_values[7].n_children")


def took(do: Callable[[], object]) -> float:
    """The processor time that something takes."""
    start = time.process_time()
    do()
    return time.process_time() - start


def measure(name: str, scenario: LoadedScenario) -> None:
    """All figures of a scenario."""
    found: list[History] = []
    recording = took(lambda: found.append(record_history(scenario)))
    history = found[0]
    n = len(history.points)
    show(f"{name}: recording {n} events", f"{recording * 1e3:.0f} ms")
    random = Random(1)
    history.cells(0)
    points = [random.randrange(n) for _ in range(100)]
    show(f"{name}: the state at a random point", f"{took(lambda: [history.cells(at) for at in points]) * 10:.2f} ms")
    walker = Walker(history)
    walker.goto(0)
    one = took(lambda: [walker.step() for _ in range(min(STEPS, n - 2))]) / min(STEPS, n - 2)
    show(f"{name}: a step", f"{one * 1e3:.3f} ms")
    show(f"{name}: continue to the end", f"{stopping(history) * 1e3:.1f} ms")
    for condition in CONDITIONS:
        places = walker.calls.starts(PLACE)
        asked = stopping(history, PLACE, places, condition)
        show(f"{name}: 5000 times if {condition}", f"{asked / max(len(places), 1) * 5000:.2f} s", "1 s")
    for expression in WATCHED:
        show(f"{name}: watch {expression}", f"{stopping(history, expression):.2f} s", "1 s")
    screen(name, scenario, history)


def stopping(history: History, what: str = "", places: Any = (), condition: str = "") -> float:
    """How long it takes from the first event to the last, over all stops; `what` without places is watched."""
    walker = Walker(history, Reading(history))
    if what:
        kind, function = (StopKind.BREAKPOINT, what) if places else (StopKind.WATCHPOINT, "")
        walker.breakpoints.add(what, places, kind, condition, function=function)
    walker.goto(0)

    def go() -> None:
        while not walker.over:
            walker.continue_()

    return took(go)


def screen(name: str, scenario: LoadedScenario, history: History) -> None:
    """A key on the screen, until everything is drawn."""
    try:
        from tests.debugger.screen.screens import WIDE, DebuggerApp, Scene, drive
    except ImportError:
        print("the screen: Textual is not installed")
        return
    app = DebuggerApp(Scene(Opened(scenario, name), history))
    times: list[float] = []

    async def keys(pilot: Any) -> None:
        app.goto(len(history.points) // 2)
        await pilot.pause()
        for _ in range(KEYS):
            start = time.process_time()
            await pilot.press("right")
            await pilot.pause()
            times.append(time.process_time() - start)

    drive(app, keys, WIDE)
    times.sort()
    show(f"{name}: a key at 200×60, median", f"{times[KEYS // 2] * 1e3:.0f} ms", "30 ms")
    show(f"{name}: a key at 200×60, slowest", f"{times[-1] * 1e3:.0f} ms")


def main() -> None:
    names = sys.argv[1:]
    scenarios = {name: ggmltool.load(name) for name in names or ["gemma-3-270m"]}
    if not names:
        scenarios[f"{NODES} nodes"] = ggmltool.load(layers(NODES))
    for name, scenario in scenarios.items():
        measure(name, scenario)


if __name__ == "__main__":
    main()
