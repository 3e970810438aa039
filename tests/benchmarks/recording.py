"""Recording a run beside planning it, and walking through what was recorded.

    python -m tests.benchmarks.recording [SCENARIO]

By default a graph of 2 000 nodes. Seconds of this process, so that others on the machine
do not count, and how many times as long as planning without a listener each takes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import ggmltool
from ggmltool.state.story.history import record_history
from ggmltool.state.story.record import open_history, record_bytes
from tests.benchmarks.planning import layers

N_NODES = 2000
N_JUMPS = 200
REPEATS = 5


def seconds(call: Callable[[], object]) -> float:
    """The shortest of a few calls."""
    out = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        out.append(time.process_time() - start)
    return min(out)


def main() -> None:
    """Print a line for each figure."""
    scenario = ggmltool.load(sys.argv[1] if len(sys.argv) > 1 else layers(N_NODES))
    steps = [step for step in scenario.model.steps if step.kind in ("reserve", "alloc", "reset", "measure")]
    history = record_history(scenario)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.ggtrace"
        path.write_bytes(record_bytes(history))
        n_bytes = path.stat().st_size
        cursor = history.cursor()
        n, rng = len(history.points), Random(0)
        plan = seconds(lambda: scenario.start().run(steps))
        figures = {
            "planning": plan,
            "with a listener": seconds(lambda: scenario.start(lambda event: None).run(steps)),
            "recording": seconds(lambda: record_history(scenario)),
            "writing the file": seconds(lambda: record_bytes(history)),
            "reading it": seconds(lambda: open_history(path)),
            "a jump": seconds(lambda: [cursor.move_to(rng.randrange(n)) for _ in range(N_JUMPS)]) / N_JUMPS,
            "a step": seconds(lambda: [cursor.move_to(at) for at in range(n)]) / n,
        }
    lines = [f"{n} points, {n_bytes} bytes"]
    lines += [f"{what:<16} {1000 * took:10.4f} ms {took / plan:10.5f}" for what, took in figures.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
