"""The slots of a graph's hash set beside the real library's, for the same addresses."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import ggmltool
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import CGraph
from ggmltool.oracle.tensors import Builder
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn, release_of


@in_turn("seed", range(40))
def test_a_graph_s_hash_set_has_the_same_slots_and_use_counts(seed: int, lib: Lib) -> None:
    try:
        loaded = ggmltool.load(scenario(seed), ggml=release_of(lib).name)
        name = next(iter(loaded.model.graphs))
        ours = loaded.start().build(name)
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")
    model, size = loaded.model, ours.size
    known: dict[str, int] = {}
    tensors: list[Any] = [*model.tensors(), *model.graphs[name].nodes]
    builder = Builder(lib)
    context = builder.context(len(tensors), size)
    builder.tensors(context, tensors, known)
    real = CGraph.from_address(builder.graph(context, model.graphs[name], known, size))
    theirs = ctypes.cast(real.visited_hash_set.keys, ctypes.POINTER(ctypes.c_void_p))

    slots = ours.hash_set(lambda t: known[t.id])
    assert slots.size == real.visited_hash_set.size
    taken = {i: key for i, key in enumerate(slots.keys) if key is not None}
    assert {i: theirs[i] for i in taken} == taken
    counts = {slots.find(known[t.id]): ours.use_count(t) for t in ours.visited}
    assert {i: real.use_counts[i] for i in counts} == counts
    builder.close()
