"""A graph of some nodes of another, with what they read, computes what they computed there."""

from __future__ import annotations

import base64
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.scenario.dump import dump
from ggmltool.scenario.run.run import values_of
from ggmltool.sources.values.cut import CutGraph, computed_nodes, cut, packed
from tests.conformance.fuzz import scenario

SEEDS = range(90)

INPLACE: dict[str, Any] = {
    "ggmltool": 1,
    "backends": ["CPU"],
    "contexts": {
        "kv": {"buft": "CPU", "tensors": {"cache": {"type": "f32", "ne": [4, 4], "data": list(range(16))}}},
        "in": {"tensors": {
            "x": {"type": "f32", "ne": [4, 2], "flags": ["input"], "data": [1, 2, 3, 4, 5, 6, 7, 8]},
            "rows": {"type": "i64", "ne": [2], "flags": ["input"], "data": [1, 2]},
        }},
    },
    "graphs": {"main": {"nodes": {
        "twice": {"op": "scale", "src": "x", "s": 2},
        "more": {"op": "scale", "src": "twice", "s": 3, "inplace": True},
        "stored": {"op": "set_rows", "src": ["more", "rows", "cache"]},
        "seen": {"op": "reshape", "src": "stored", "ne": [16]},
        "squared": {"op": "sqr", "src": "seen"},
        "again": {"op": "set_rows", "src": ["twice", "rows", "stored"]},
        "sum": {"op": "sum", "src": "again"},
    }}},
    "steps": ["alloc main", "compute main"],
}  # fmt: skip


def captured(document: dict[str, Any], graph: str, wanted: list[str]) -> tuple[CutGraph, dict[str, Any]]:
    """What is to be read, read while the engine computes the graph node by node."""
    taken = cut(document, graph, wanted)
    loaded = ggmltool.load(document)
    run = loaded.start(values=True)
    content: dict[str, bytes] = {}
    results: dict[str, Any] = {}

    def read(node: str | None) -> None:
        for name, id in taken.inputs.get(node, ()):
            t = run.tensor(id)
            content[name] = packed(HostArrays().get_bytes(t).tobytes(), t.type, t.ne, t.nb)

    def seen(t: Tensor, ask: bool) -> bool:
        if ask and not results:
            results[""] = None
            read(None)
        if not ask:
            results[t.id] = values_of(t).copy()
            read(t.id)
        return True

    alloc, compute = loaded.model.steps
    run.step(alloc)
    run.start().set_eval_callback(seen)
    run.step(compute)
    contexts = {
        name: {**context, "tensors": {id: _with(t, content.get(id)) for id, t in context["tensors"].items()}}
        for name, context in taken.document["contexts"].items()
    }
    steps = [f"alloc {graph}", f"compute {graph}", {"get": taken.nodes}]
    taken.document = {**taken.document, "contexts": contexts, "steps": steps}
    return taken, results


def _with(t: dict[str, Any], content: bytes | None) -> dict[str, Any]:
    return t if content is None else {**t, "data": {"base64": base64.b64encode(content).decode()}}


class RefusedError(Exception):
    """ggml refuses to compute the cut, as where a node is on another device now that its sources are inputs."""


def agree(document: dict[str, Any], wanted: list[str]) -> CutGraph:
    """Compute the cut and compare each of its nodes with what the whole graph made of it."""
    graph = next(iter(document["graphs"]))
    taken, results = captured(document, graph, wanted)
    loaded = ggmltool.load(taken.document)
    run = loaded.start(values=True)
    seen: dict[str, Any] = {}

    def keep(t: Tensor, ask: bool) -> bool:
        if not ask:
            seen[t.id] = values_of(t).copy()
        return True

    alloc, compute = loaded.model.steps[:2]
    run.step(alloc)
    assert run.plans[-1].ok, run.plans[-1].error
    run.start().set_eval_callback(keep)
    run.step(compute)
    if not run.plans[-1].ok:
        raise RefusedError(run.plans[-1].error)
    for id in wanted:
        assert np.array_equal(seen[id], results[id], equal_nan=True), id
    return taken


@pytest.mark.parametrize("wanted", [["squared"], ["again"], ["stored", "sum"], ["more"], ["twice", "again", "squared"]])
def test_inputs_are_what_they_were_before_a_node_wrote_to_them(wanted: list[str]) -> None:
    agree(dump(ggmltool.load(INPLACE).model), wanted)


def test_a_tensor_that_changes_between_two_readers_is_two_inputs() -> None:
    taken = agree(dump(ggmltool.load(INPLACE).model), ["stored", "sum"])
    assert list(taken.all_inputs) == [
        ("twice", "twice"), ("rows", "rows"), ("cache", "cache"), ("cache@again", "cache")
    ]  # fmt: skip


def test_with_all_nodes_the_scenario_stays_as_it_is() -> None:
    document = dump(ggmltool.load(INPLACE).model)
    taken = cut(document, "main", computed_nodes(document, "main"))
    assert taken.document is document
    assert taken.inputs == {None: [("x", "x"), ("rows", "rows"), ("cache", "cache")]}


def in_order(document: dict[str, Any]) -> list[str]:
    """The nodes of a graph that compute something, as they are computed; none where something is refused."""
    loaded = ggmltool.load(document)
    run = loaded.start(values=True)
    alloc, compute = loaded.model.steps
    run.step(alloc)
    order: dict[str, None] = {}
    run.start().set_eval_callback(lambda t, ask: order.setdefault(t.id) is None)
    run.step(compute)
    return list(order) if run.plans[-1].ok else []


def test_some_nodes_of_random_graphs_compute_what_they_did() -> None:
    n_cut = 0
    for seed in SEEDS:
        document = dump(ggmltool.load(scenario(seed, values=True)).model)
        graph, spec = next(iter(document["graphs"].items()))
        document["steps"] = [f"alloc {graph}", f"compute {graph}"]
        spec["nodes"] = {id: spec["nodes"][id] for id in in_order(document) if id in spec["nodes"]}
        rng = Random(seed)
        nodes = computed_nodes(document, graph)
        wanted = [id for id in nodes if rng.random() < 0.4] or nodes[-1:]
        if wanted:
            with suppress(RefusedError):
                agree(document, wanted)
                n_cut += 1
    assert n_cut > len(SEEDS) / 2
