"""How long planning takes, beside the real library's scheduler in the same run.

    python -m tests.benchmarks.planning

Prints a table of figures with the goal of each, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ggmltool
from ggmltool.oracle.lib import Lib, load
from ggmltool.oracle.tensors import Builder
from ggmltool.scenario.scenario import LoadedScenario

SAMPLES = Path(__file__).parents[2] / "sample_graphs"
GEMMA = SAMPLES / "gemma-3-270m.json.gz"
GEMMA_TWO_DEVICES = SAMPLES / "gemma-3-270m-ngl9.json.gz"


def best(function: Callable[[], object], n: int) -> float:
    """The shortest of `n` calls, in seconds."""
    times = []
    for _ in range(n):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def real_reserve(lib: Lib, scenario: LoadedScenario, n: int = 50) -> float:
    """Seconds of ggml_backend_sched_reserve on a graph of the CPU alone, each time on a graph built anew."""
    model = scenario.model
    graph = next(iter(model.graphs.values()))
    builder = Builder(lib)
    known: dict[str, int] = {}
    cpu = lib.ggml_backend_cpu_init()
    buft = lib.ggml_backend_cpu_buffer_type()
    for context in (c for c in model.contexts if c.buft is not None):
        ctx = builder.context(len(context.tensors))
        builder.tensors(ctx, context.tensors, known)
        buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft)
        lib.ggml_backend_buffer_set_usage(buffer, 1 if context.usage == "weights" else 0)
    loose = [t for c in model.contexts if c.buft is None for t in c.tensors]
    size = len(graph.nodes) + len(model.tensors()) + 1
    backends = (ctypes.c_void_p * 1)(cpu)
    sched = lib.ggml_backend_sched_new(backends, None, 1, 2048, False, True)
    times = []
    for _ in range(n):
        names = dict(known)
        ctx = builder.context(len(loose) + len(graph.nodes), size)
        builder.tensors(ctx, [*loose, *graph.nodes], names)
        built = builder.graph(ctx, graph, names, size)
        start = time.perf_counter()
        lib.ggml_backend_sched_reserve(sched, built)
        times.append(time.perf_counter() - start)
    return min(times)


def layers(n_nodes: int) -> dict[str, Any]:
    """A scenario of about `n_nodes` nodes: layers of ten, one in three with its weights on the host."""
    gpu: dict[str, str] = {}
    cpu: dict[str, str] = {}
    nodes: dict[str, str] = {}
    last = "x"
    for i in range(n_nodes // 10):
        (gpu if i % 3 else cpu)[f"w{i}"] = "f32[64, 64]"
        nodes |= {
            f"a{i}": f"rms_norm({last}, eps=1e-6)",
            f"b{i}": f"mul_mat(w{i}, a{i})",
            f"c{i}": f"scale(b{i}, s=0.5)",
            f"d{i}": f"silu(c{i})",
            f"e{i}": f"mul(d{i}, b{i})",
            f"f{i}": f"view(e{i}, ne=[64, 8], nb=[256], offset=0)",
            f"g{i}": f"add(f{i}, a{i})",
            f"h{i}": f"relu(g{i})",
            f"i{i}": f"mul_mat(w{i}, h{i})",
            f"j{i}": f"add(i{i}, {last})",
        }
        last = f"j{i}"
    return {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "profile": "custom"}, "CPU"],
        "contexts": {
            "gpu": {"buft": "CUDA0", "usage": "weights", "tensors": gpu},
            "cpu": {"buft": "CPU", "usage": "weights", "tensors": cpu},
            "inputs": {"tensors": {"x": {"type": "f32", "ne": [64, 8], "flags": ["input"]}}},
        },
        "graphs": {"main": {"nodes": nodes}},
    }


def per_node(n_nodes: int, n: int) -> float:
    """Seconds per node of planning `layers(n_nodes)`, once it is loaded."""
    scenario = ggmltool.load(layers(n_nodes))
    scenario.plan(step="reserve")
    return best(lambda: scenario.plan(step="reserve"), n) / n_nodes


def beside_the_library(scenario: LoadedScenario, rounds: int = 15) -> tuple[float, float]:
    """Seconds of the real library and of ours, the best of each: side by side, so that both have the quiet moments."""
    lib = load()
    reals, ours = [], []
    for _ in range(rounds):
        reals.append(real_reserve(lib, scenario, 10))
        ours.append(best(lambda: scenario.plan(step="reserve"), 10))
    return min(reals), min(ours)


def first_and_next(path: Path, n: int = 20) -> tuple[float, float]:
    """Seconds of the first plan of a scenario that was just loaded, and of the next ones, the best of `n` scenarios."""
    firsts, nexts = [], []
    for _ in range(n):
        plan = partial(ggmltool.load(path).plan, step="reserve")
        firsts.append(best(plan, 1))
        nexts.append(best(plan, 3))
    return min(firsts), min(nexts)


def command(*args: str) -> float:
    """Seconds of a whole process."""
    environment = os.environ | {"NO_COLOR": "1"}

    def run() -> None:
        subprocess.run([sys.executable, *args], check=True, capture_output=True, env=environment)

    run()
    return best(run, 7)


def main() -> None:
    rows: list[tuple[str, str, str]] = []
    scenario = ggmltool.load(GEMMA)
    real, ours = beside_the_library(scenario)
    rows.append(("real reserve, gemma-3-270m on the CPU", f"{real * 1e3:.3f} ms", ""))
    rows.append(("plan(step='reserve'), the same graph", f"{ours * 1e3:.2f} ms", ""))
    rows.append(("  as a multiple of the real library", f"{ours / real:.0f}", "at most 30"))
    rows.append(("plan(), which allocates", f"{best(scenario.plan, 40) * 1e3:.2f} ms", ""))
    first, following = first_and_next(GEMMA)
    rows.append(("the first plan of a scenario", f"{first * 1e3:.2f} ms", ""))
    rows.append(("the next one", f"{following * 1e3:.2f} ms", ""))
    rows.append(("  the first as a multiple", f"{first / following:.2f}", "at most 1.3"))
    two = ggmltool.load(GEMMA_TWO_DEVICES)
    two.plan(step="reserve")
    ours_two = best(lambda: two.plan(step="reserve"), 40)
    rows.append(("plan(step='reserve'), two devices, 152 splits", f"{ours_two * 1e3:.2f} ms", "at most 12 ms"))
    small, large = per_node(1_000, 40), per_node(100_000, 5)
    rows.append(("per node of 1 000", f"{small * 1e6:.2f} us", ""))
    rows.append(("per node of 100 000", f"{large * 1e6:.2f} us", ""))
    rows.append(("  as a multiple", f"{large / small:.2f}", "at most 1.3"))
    rows.append(
        ("ggmltool splits, end to end", f"{command('-m', 'ggmltool', 'splits', str(GEMMA)):.2f} s", "at most 0.5 s")
    )
    click, help_ = command("-c", "import click"), command("-m", "ggmltool", "--help")
    rows.append(("ggmltool --help", f"{help_ * 1e3:.0f} ms", ""))
    rows.append(("  as a multiple of importing click", f"{help_ / click:.2f}", "at most 3"))
    width = max(len(row[0]) for row in rows)
    for name, value, goal in rows:
        print(f"{name:<{width}}  {value:>12}  {goal}")


if __name__ == "__main__":
    main()
