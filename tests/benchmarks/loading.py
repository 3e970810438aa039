"""How long a scenario takes to load.

    python -m tests.benchmarks.loading

Prints a table of figures with the goal of each, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import copy
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from ggmltool.scenario.load import load_spec

SAMPLE = Path(__file__).parents[2] / "sample_graphs" / "gemma-3-270m.json.gz"
SIZE = 10_000_000
SHAPES = 16


def repeated(size: int, shapes: int) -> bytes:
    """A captured graph again and again, about `size` bytes of JSON; every copy up to `shapes` with other parameters."""
    with gzip.open(SAMPLE) as stream:
        scenario: dict[str, Any] = json.load(stream)
    graph = next(iter(scenario["graphs"].values()))
    nodes: dict[str, Any] = graph["nodes"]
    one = len(json.dumps(nodes))
    out: dict[str, Any] = {}
    for k in range(size // one):
        for id, node in nodes.items():
            new = copy.copy(node)
            new["src"] = [f"{s}#{k}" if s in nodes else s for s in node["src"]]
            if node.get("view_src") in nodes:
                new["view_src"] = f"{node['view_src']}#{k}"
            if "op_params" in node and node["op"] == "rms_norm":
                new["op_params"] = [node["op_params"][0] + k % shapes]
            out[f"{id}#{k}"] = new
    scenario["graphs"] = {"main": {"nodes": out}}
    scenario.pop("steps", None)
    return json.dumps(scenario).encode()


def seconds_to_load(raw: bytes, name: str) -> tuple[float, int]:
    """The shortest of three loads, and the number of nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            model = load_spec(path)
            times.append(time.perf_counter() - start)
        return min(times), len(next(iter(model.graphs.values())).nodes)


def main() -> None:
    load_spec({"ggmltool": 1, "backends": ["CPU"]})
    cases = {
        "10 MB of JSON, layers alike": (repeated(SIZE, 1), "a.json", 1.0),
        "10 MB of JSON, 16 kinds of layers": (repeated(SIZE, SHAPES), "a.json", 1.0),
        "10 MB of JSON, packed": (gzip.compress(repeated(SIZE, 1)), "a.json.gz", 1.0),
        "gemma-3-270m": (SAMPLE.read_bytes(), "a.json.gz", 0.05),
    }
    for title, (raw, name, goal) in cases.items():
        seconds, nodes = seconds_to_load(raw, name)
        print(f"{title:<36} {seconds:8.3f} s   {seconds / nodes * 1e6:6.1f} µs a node ({nodes})   goal {goal} s")


if __name__ == "__main__":
    main()
