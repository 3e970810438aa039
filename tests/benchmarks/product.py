"""How fast a product of f16 matrices is on a GPU, beside cupy alone.

    python -m tests.benchmarks.product

Prints both and their ratio with its goal, and never fails; without a GPU it says why there is nothing to measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import ggmltool
from ggmltool.ggml.devices.gpu import find

SIZE = 8192
TIMES = 30
ROUNDS = 5
GOAL = 0.85


def scenario(size: int) -> dict[str, Any]:
    """A product of two f16 matrices, both on the GPU."""
    tensors = {n: {"type": "f16", "ne": [size, size], "data": {"uniform": {"seed": i}}} for i, n in enumerate("ab", 1)}
    return {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "engine": "cupy"}, "CPU"],
        "contexts": {"matrices": {"buft": "CUDA0", "usage": "weights", "tensors": tensors}},
        "graphs": {"g": {"nodes": {"y": {"op": "mul_mat", "src": ["a", "b"], "flags": ["output"]}}}},
    }


def _uniform(seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (SIZE, SIZE)).astype(np.float16)


def seconds(begin: Callable[[], object], wait: Callable[[], object]) -> float:
    """What one call takes, of many that are begun one after the other and then waited for; the best of some rounds."""
    begin()
    wait()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(TIMES):
            begin()
        wait()
        best = min(best, (time.perf_counter() - start) / TIMES)
    return best


def main() -> None:
    found = find()
    if not found.gpus:
        print(f"nothing to measure: {found.why}; {found.remedy}")
        return
    gpu = found.gpus[0]
    run = ggmltool.load(scenario(SIZE)).start(values=True)
    sched = run.start()
    plan = run.alloc("g")
    if not plan.ok:
        raise run.failure(plan)
    ours = seconds(lambda: run.compute("g", wait=False), sched.synchronize)
    xp = gpu.xp
    with gpu.device, xp.cuda.Stream(non_blocking=True) as stream:
        a, b = (xp.asarray(_uniform(seed)) for seed in (1, 2))
        alone = seconds(lambda: b @ a.T, stream.synchronize)
    work = 2 * SIZE**3 / 1e12
    print(f"{SIZE}³ in f16 on {gpu.name}")
    print(f"  cupy alone  {alone * 1e3:8.3f} ms  {work / alone:7.1f} TFLOPS")
    print(f"  ggmltool    {ours * 1e3:8.3f} ms  {work / ours:7.1f} TFLOPS")
    print(f"  ratio       {alone / ours:8.2f}     goal {GOAL}")


if __name__ == "__main__":
    main()
