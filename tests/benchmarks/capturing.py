"""How long many captures of one model take: 30 sets of options of a mixture of experts with 3 033 nodes.

    python -m tests.benchmarks.capturing

Prints a table of figures, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import resource
import time
from itertools import product

from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.capture.capture import Captured, capture_many
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.sources.real_models import real


def main() -> None:
    """Capture, load each, and print what it took."""
    sizes = product((4096, 8192, 16384, 32768, 65536), (256, 512, 1024), ("f16", "q8_0"))
    asked = [CaptureOptions(n_ctx=c, n_batch=2048, n_ubatch=u, type_k=k, phase="both") for c, u, k in sizes]
    path = real("qwen3-30b-a3b")
    start, work, first = time.perf_counter(), time.process_time(), 0.0
    nodes = 0
    for captured in capture_many(path, asked):
        if not isinstance(captured, Captured):
            raise captured
        first = first or time.perf_counter() - start
        model = load_spec(captured.scenario)
        nodes += sum(len(graph.nodes) for graph in model.graphs.values())
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = {
        "the first graph, since the start": first,
        "all": time.perf_counter() - start,
        "work of the capturing process": child.ru_utime + child.ru_stime,
        "work here, loading them": time.process_time() - work,
    }
    print(f"{len(asked)} captures, {nodes} nodes")
    for name, seconds in rows.items():
        print(f"{name:36} {seconds:6.2f} s")


if __name__ == "__main__":
    main()
