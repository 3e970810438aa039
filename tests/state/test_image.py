"""The image of a point is written of its state: read back from its bytes, it is the state of the engine there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from msgspec.structs import asdict

import ggmltool
from ggmltool.debugger.expressions.image.image import Image, Images
from ggmltool.debugger.expressions.image.program import HEAP
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.sched.assign import NULL_KEY
from ggmltool.ggml.state import GallocState, GraphState, SchedState, State
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.memory.pages import OwnMemory
from ggmltool.state.memory.schedulers import Schedulers
from ggmltool.state.memory.tensors import MemoryGraphs
from ggmltool.state.story.history import History, record_history, visit_points
from ggmltool.state.story.shadow import run_state
from ggmltool.structs.layout import layout
from tests.state.story.randomly import RELEASES, random_scenarios

SAMPLES = ("graph-twice", "pipeline", "offload", "chunks", "views", "outgrown", "two-orders", "moe")


def states(scenario: LoadedScenario, history: History) -> Iterator[tuple[int, State]]:
    """The states at the ends of steps that have planned a graph, from a fresh run."""
    found: list[tuple[int, State]] = []
    at = -1

    def visit(run: Any, point: Any) -> None:
        nonlocal at
        at += 1
        graph = history.graph(at)
        if point.ends and point.step >= 0 and graph in run.newest and run.plans and run.plans[-1].ok:
            state = run_state(run, graph)
            assert state is not None
            found.append((at, state))

    visit_points(scenario, False, visit)
    return iter(found)


def read(image: Image, graph: str) -> tuple[SchedState, GraphState]:
    """The scheduler and a graph of the scenario, from the bytes of an image."""
    memory = OwnMemory(image.memory.read)
    graphs = MemoryGraphs(memory, image.layout)
    sched = Schedulers(memory, image.layout, graphs).sched(HEAP["sched"])
    return sched, graphs.graph(image.graphs.address(graph))


class Names:
    """Tensors by where they lie in an image: another build may have one in the same place, and lies there then."""

    def __init__(self, image: Image, is_engine: bool) -> None:
        self.image = image
        self.is_engine = is_engine

    def one(self, t: int | None) -> int | None:
        if not self.is_engine or t is None:
            return t
        return 0 if t == NULL_KEY else self.image.tensors.place(t)

    def all(self, tensors: Iterable[int | None]) -> list[int | None]:
        return [self.one(t) for t in tensors]

    def there(self, t: int) -> bool:
        """Whether a tensor lies where it was made."""
        return not self.is_engine or t == NULL_KEY or self.image.tensors.index(self.image.tensors.place(t)) == t


def told(sched: SchedState, graph: GraphState, names: Names, like: SchedState) -> dict[str, Any]:
    """What both readers know, comparable: of arrays as much as the graph now, and the one before, had."""
    plain = ("is_reset", "is_alloc", "n_copies", "cur_copy", "next_copy", "context_buffer_size", "graph_size")
    before = {name: getattr(sched, name)[: len(getattr(like, name))] for name in PREVIOUS}
    n, n_leafs = len(sched.graph.nodes), len(sched.graph.leafs)
    copies = {
        names.one(t): [of and names.all(of) for of in made] for t, made in sched.tensor_copies.items() if names.there(t)
    }
    splits = [(s.backend_id, s.i_start, s.i_end, names.all(s.inputs)) for s in sched.splits]
    return {
        **{name: getattr(sched, name) for name in plain},
        **before,
        "keys": sorted(map(str, names.all(t for t in sched.hash_set.keys if names.there(t)))),
        "ids": {names.one(t): b for t, b in sched.tensor_backend_ids.items() if names.there(t)},
        "copies": copies,
        "node_backend_ids": sched.node_backend_ids[:n],
        "leaf_backend_ids": sched.leaf_backend_ids[:n_leafs],
        "own graph": (names.all(sched.graph.nodes), names.all(sched.graph.leafs), sched.graph.size),
        "splits": splits,
        "capacities": [s.inputs_capacity for s in sched.splits],
        "graph_inputs": names.all(sched.graph_inputs) if sched.n_copies > 1 else [],
        "graph": (names.all(graph.nodes), names.all(graph.leafs)),
        "visited": sorted(map(str, names.all(graph.hash_set.keys))),
        "uses": {names.one(t): n for t, n in graph.use_counts.items()},
        **allocator(sched.galloc, names),
    }


PREVIOUS = ("prev_node_backend_ids", "prev_leaf_backend_ids")


def allocator(galloc: GallocState, names: Names) -> dict[str, Any]:
    nodes = [(place(dst), places(src)) for dst, src in galloc.node_allocs]
    return {
        "hash_set": (galloc.hash_set.size, sorted(map(str, names.all(galloc.hash_set.keys)))),
        "hash_values": {names.one(t): asdict(node) for t, node in galloc.hash_values.items()},
        "buf_tallocs": galloc.buf_tallocs,
        "node_allocs": nodes,
        "leaf_allocs": list(map(place, galloc.leaf_allocs)),
        "buffers": list(map(len, galloc.buffers)),
    }


def place(at: TensorAlloc) -> TensorAlloc | None:
    return None if at.buffer_id < 0 else at


def places(several: Iterable[TensorAlloc]) -> list[TensorAlloc | None]:
    out = list(map(place, several))
    while out and out[-1] is None:
        out.pop()
    return out


def check(scenario: LoadedScenario) -> int:
    """Compare all of it at each end of a step; how often."""
    history = record_history(scenario)
    types = layout(history.release)
    images = Images(history, types)
    compared = 0
    for at, state in states(scenario, history):
        assert state.sched is not None
        assert state.graph is not None
        image = images.at(at)
        sched, graph = read(image, history.graph(at))
        mine = told(sched, graph, Names(image, False), state.sched)
        theirs = told(state.sched, state.graph, Names(image, True), state.sched)
        lacks = {"uses"} if "use_counts" not in (types.structs["ggml_cgraph"].members or {}) else set()
        lacks |= {"capacities"} if None in mine["capacities"] else set()
        for area in mine.keys() - lacks:
            assert mine[area] == theirs[area], (scenario.model.name, at, area)
        compared += 1
    return compared


@pytest.mark.parametrize("release", [name for name, release in RELEASES.items() if release.reserves])
def test_what_is_written_of_a_random_state_is_read_back(release: str) -> None:
    assert sum(map(check, random_scenarios(release, range(8)))) > 2


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_written_of_the_state_of_a_sample_is_read_back(sample: str) -> None:
    assert check(ggmltool.load(sample, ggml="0.26"))
