"""What ggml prints about graphs and contexts: the same text, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("libggml")

import ggmltool
from ggmltool.oracle.build import Builder
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import LOG_CALLBACK, Lib, load
from ggmltool.scenario.model import Model
from ggmltool.scenario.samples import samples
from ggmltool.views.graph_print import graph_print
from tests.conformance.fuzz import scenario

SMALL = {
    "ggmltool": 1,
    "backends": ["CPU"],
    "contexts": {
        "weights": {
            "tensors": {
                "w": {"type": "f32", "ne": [4], "flags": ["param"]},
                "a-name-of-more-than-sixteen-bytes": {"type": "f16", "ne": [100000, 123456, 7]},
                "half": {"type": "f32", "ne": [4], "name": "ä" * 40},
                "short": {"type": "f32", "ne": [4], "name": "ä"},
                "nameless": {"type": "f32", "ne": [4], "name": ""},
            }
        }
    },
    "graphs": {
        "main": {
            "nodes": {
                "a": "mul(w, nameless)",
                "b": "silu(half)",
                "c": "cpy(a-name-of-more-than-sixteen-bytes, a-name-of-more-than-sixteen-bytes)",
                "d": "add(b, short)",
            }
        }
    },
}


def printed(lib: Lib, write: Callable[[], None]) -> bytes:
    """What ggml logs during `write`; to be called in a forked child."""
    parts: list[bytes] = []
    callback = LOG_CALLBACK(lambda _level, text, _user: parts.append(text))
    lib.ggml_log_set(callback, None)
    write()
    return b"".join(parts)


def print_graph(lib: Lib, model: Model, graph: str) -> bytes:
    """ggml_graph_print of the graph as built."""
    builder = Builder(lib)
    known: dict[str, int] = {}
    tensors = [*model.tensors(), *model.graphs[graph].nodes]
    size = len(tensors) + 1
    made = builder.context(len(tensors), size)
    builder.tensors(made, tensors, known)
    built = builder.graph(made, model.graphs[graph], known, size)
    return printed(lib, lambda: lib.ggml_graph_print(built))


def check_graph(source: object) -> None:
    loaded = ggmltool.load(source)  # type: ignore[arg-type]
    graph = loaded.graph_name()
    lib = load()
    theirs = lib.run_forked(lambda: print_graph(lib, loaded.model, graph))
    assert not isinstance(theirs, Abort), theirs
    built = loaded.start().build(graph)
    assert graph_print(built.nodes, built.leafs).encode("utf-8", "surrogateescape") == theirs


@pytest.mark.parametrize("sample", [p.name for p in samples()])
def test_the_graph_of_a_sample_is_printed_as_ggml_prints_it(sample: str) -> None:
    check_graph(next(p for p in samples() if p.name == sample))


def test_names_are_aligned_by_bytes_as_ggml_aligns_them() -> None:
    check_graph(SMALL)


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_are_printed_as_ggml_prints_them(seed: int) -> None:
    try:
        check_graph(scenario(seed))
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one that ggml refuses")
