"""What ggml prints about graphs and contexts: the same text, byte for byte."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ask.context.ggml import print_objects
from ggmltool.ask.context.record import ContextRow
from ggmltool.ask.graph.record import GraphTensor, graph_print
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import LOG_CALLBACK, Lib
from ggmltool.oracle.structs import CGraphStruct
from ggmltool.oracle.tensors import Builder
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.tensor_info import arenas
from tests.conformance.fuzz import scenario
from tests.conformance.releases import release_of

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


def print_graph(lib: Lib, model: ScenarioSpec, graph: str) -> bytes:
    """ggml_graph_print of the graph as built."""
    builder = Builder(lib)
    known: dict[str, int] = {}
    tensors = [*model.tensors(), *model.graphs[graph].nodes]
    size = len(tensors) + 1
    made = builder.context(len(tensors), size)
    builder.tensors(made, tensors, known)
    built = builder.graph(made, model.graphs[graph], known, size)
    return printed(lib, lambda: lib.ggml_graph_print(built))


def without_addresses(text: str) -> str:
    """The text with every address replaced by its number in the order of appearance."""
    numbers: dict[str, str] = {}
    return re.sub(r"0x[0-9a-f]+", lambda m: numbers.setdefault(m[0], f"address {len(numbers)}"), text)


def print_objects_of(lib: Lib, model: ScenarioSpec, graph: str, size: int) -> tuple[list[bytes], list[int]]:
    """ggml_print_objects of each context and of the graph's, and where the graph has its arrays, from its own start."""
    builder = Builder(lib)
    known: dict[str, int] = {}
    made = []
    for spec in model.contexts:
        made.append(builder.context(len(spec.tensors)))
        builder.tensors(made[-1], spec.tensors, known)
    nodes = model.graphs[graph]
    made.append(builder.context(len(nodes.nodes), size))
    builder.tensors(made[-1], nodes.nodes, known)
    address = builder.graph(made[-1], nodes, known, size)
    real = CGraphStruct.from_address(address)
    pointers = [real.nodes, real.leafs, real.use_counts]
    places = [ctypes.cast(p, ctypes.c_void_p).value or 0 for p in pointers]
    places += [
        ctypes.cast(p, ctypes.c_void_p).value or 0 for p in (real.visited_hash_set.keys, real.visited_hash_set.used)
    ]
    return [printed(lib, partial(lib.ggml_print_objects, ctx)) for ctx in made], [p - address for p in places]


def check_graph(lib: Lib, source: object) -> None:
    loaded = ggmltool.load(source, ggml=release_of(lib).name)  # type: ignore[arg-type]
    graph = loaded.graph_name()
    theirs = lib.run_forked(lambda: print_graph(lib, loaded.model, graph))
    assert not isinstance(theirs, Abort), theirs
    built = loaded.start().build(graph)
    assert (
        graph_print(GraphTensor.all(built.nodes), GraphTensor.all(built.leafs)).encode("utf-8", "surrogateescape")
        == theirs
    )


def test_the_graph_of_a_sample_is_printed_as_ggml_prints_it(sample: Path, lib: Lib) -> None:
    check_graph(lib, sample)


def test_names_are_aligned_by_bytes_as_ggml_aligns_them(lib: Lib) -> None:
    check_graph(lib, SMALL)


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_are_printed_as_ggml_prints_them(seed: int, lib: Lib) -> None:
    try:
        check_graph(lib, scenario(seed))
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")


def test_the_objects_of_each_context_are_printed_as_ggml_prints_them(sample: Path, lib: Lib) -> None:
    loaded = ggmltool.load(sample, ggml=release_of(lib).name)
    graph = loaded.graph_name()
    run = loaded.start()
    size = run.build(graph).size
    theirs = lib.run_forked(lambda: print_objects_of(lib, loaded.model, graph, size))
    assert not isinstance(theirs, Abort), theirs
    texts, places = theirs
    *ours, scheduler = (print_objects(ContextRow.of(ctx)) for ctx in arenas(run, graph, run.newest[graph][1]))
    assert scheduler.count("\n") == 2
    assert [without_addresses(t) for t in ours] == [without_addresses(t.decode()) for t in texts]
    assert [at for _, at, _ in release_of(lib).graph_layout(size)[1:]] == places
