"""The steps of a scenario: `reserve G`, `alloc G`, `compute G`, `reset`, `{set: …}`, `{get: …}`.

Which of them there are depends on the release of ggml that the scenario is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from msgspec import Meta, defstruct

from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.scenario.data import Data
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.read_data import DATA, parse_data
from ggmltool.scenario.spec import GraphSpec, Step, StepKind, TensorSpec
from ggmltool.scenario.values import MAX_ID, Id, Keys, as_id, as_list, as_map, at, check_keys, kind_of

GRAPH_STEPS = DEFAULT.steps
ALL_GRAPH_STEPS = tuple(dict.fromkeys(kind for release in RELEASES.values() for kind in release.steps))
"""The steps that take a graph: of today's ggml, of any."""
OTHER_STEPS = ("reset", "set", "get")
MAX_STEPS = 100_000

StepKeys = defstruct(
    "StepKeys",
    [
        *((kind, Id, "") for kind in ALL_GRAPH_STEPS),
        ("reset", None, None),
        ("set", Annotated[dict[Annotated[str, Meta(min_length=1, max_length=MAX_ID)], DATA], Meta(min_length=1)], {}),
        ("get", Id | Annotated[list[Id], Meta(min_length=1)], []),
    ],
    bases=(Keys,),
    module=__name__,
    namespace={"together": {"minProperties": 1, "maxProperties": 1}},
)
"""A step as a map, of any release."""


def default_steps(graphs: Mapping[str, GraphSpec], kinds: Sequence[str] = GRAPH_STEPS) -> list[Step]:
    """Every kind of step that takes a graph, of the first graph: reserve, alloc and compute."""
    first = next(iter(graphs), None)
    return [] if first is None else [Step(cast("StepKind", kind), first) for kind in kinds]


def computed_by(steps: Iterable[Step], release: Release) -> Iterator[tuple[Step, str | None]]:
    """Each step with the graph that it computes, None for one that computes none: of a ggml that reserves, `compute`
    computes the graph that the scheduler holds allocated, whatever graph it is given.
    """
    held: str | None = None
    for step in steps:
        match step.kind:
            case "alloc":
                held = step.graph
            case "compute":
                held = held or step.graph if release.reserves else step.graph
            case "reserve" | "reset":
                held = None
        yield step, held if step.kind == "compute" else None


def translated(steps: Sequence[Step], kinds: Sequence[str]) -> list[Step]:
    """Steps that were written for another release, in the words of one that has these kinds.

    What one ggml calls measure is reserve in another; where `compute` builds, allocates and resets by itself, the
    others do it in steps of their own.
    """
    used = {step.kind for step in steps if step.graph is not None}
    measured = "measure" in kinds
    if used <= set(kinds) and ("measure" in used or not (used and measured)):
        return list(steps)
    if measured:
        return _as_measured(steps)
    out: list[Step] = []
    for step in steps:
        match step.kind:
            case "measure":
                out.append(Step("reserve", step.graph))
            case "compute":
                if any(before.kind == "alloc" for before in out):
                    out.append(Step("reset"))
                out += [Step("alloc", step.graph), step]
            case _:
                out.append(step)
    return out


def _as_measured(steps: Sequence[Step]) -> list[Step]:
    """Today's steps for a ggml that measures once and allocates a graph to compute it."""
    out: list[Step] = []
    allocated: str | None = None
    for step in steps:
        match step.kind:
            case "reserve":
                if not out:
                    out.append(Step("measure", step.graph))
            case "alloc" | "compute":
                if not any(before.kind == "measure" for before in out):
                    out.append(Step("measure", step.graph))
                if step.kind == "alloc" or allocated != step.graph:
                    out.append(Step("compute", step.graph))
                allocated = step.graph if step.kind == "alloc" else None
            case "reset":
                allocated = None
            case _:
                out.append(step)
    return out


class StepReader:
    """Reads the steps in order; knows which graphs were built, the newest of whose nodes `set` and `get` mean.

    `kinds` are the steps that take a graph.
    """

    def __init__(
        self,
        graphs: Mapping[str, GraphSpec],
        tensors: Mapping[str, TensorSpec],
        folder: Path | None,
        kinds: Sequence[str] = GRAPH_STEPS,
    ) -> None:
        self.kinds = kinds
        self.all = (*kinds, *OTHER_STEPS)
        self.graphs = graphs
        self.tensors = tensors
        self.folder = folder
        self._nodes: dict[str, dict[str, TensorSpec]] = {}
        self._built: dict[str, None] = {}

    def read(self, value: object) -> list[Step]:
        """All steps. Raises Mistake."""
        items = as_list(value, "steps")
        if len(items) > MAX_STEPS:
            raise Mistake(f"there are {len(items)} steps", f"at most {MAX_STEPS}")
        return [at(i, self._step, item) for i, item in enumerate(items)]

    def _step(self, value: object) -> Step:
        if isinstance(value, str):
            return self._plain(value)
        if not isinstance(value, dict):
            raise Mistake(f"a step must be text or a map, not {kind_of(value)}", "for example `alloc main`")
        given = as_map(value, "a step")
        check_keys(given, self.all, "a step")
        if len(given) != 1:
            raise Mistake(f"a step is one thing, not {len(given)}", "for example {get: [y]}")
        ((kind, content),) = given.items()
        if kind in ("set", "get"):
            return at(kind, self._set if kind == "set" else self._get, content)
        if kind == "reset":
            if content is not None:
                raise Mistake("reset takes nothing", "write `reset`", kind)
            return Step("reset")
        return at(kind, self._graph_step, kind, at(kind, as_id, content, "a graph's name"))

    def _plain(self, text: str) -> Step:
        kind, _, graph = text.strip().partition(" ")
        graph = graph.strip()
        if kind not in (*self.kinds, "reset"):
            if kind in OTHER_STEPS:
                raise Mistake(f"{kind} is written as a map", f"for example {{{kind}: ...}}", offset=0)
            # What would have been a step, or which ggml has this one.
            others = [release.name for release in RELEASES.values() if kind in release.steps]
            there = f"steps are {', '.join(self.all)}"
            hint = f"it is one of ggml {' and '.join(others)}; {there}" if others else did_you_mean(kind, self.all)
            raise Mistake(f"{quoted(kind)} is not a step", hint or there)
        if kind == "reset":
            if graph:
                raise Mistake("reset takes no graph", "write `reset`", offset=len("reset "))
            return Step("reset")
        if not graph:
            raise Mistake(f"{kind} needs a graph", f"for example `{kind} {next(iter(self.graphs), 'main')}`")
        try:
            return self._graph_step(kind, graph)
        except Mistake as mistake:
            mistake.offset = text.find(graph, text.find(kind) + len(kind))
            raise

    def _graph_step(self, kind: str, graph: str) -> Step:
        if graph not in self.graphs:
            hint = did_you_mean(graph, self.graphs) or f"there are {', '.join(self.graphs) or 'none'}"
            raise Mistake(f"there is no graph {quoted(graph)}", hint)
        if kind != "compute":
            self._built.pop(graph, None)
        self._built[graph] = None
        return Step(cast("StepKind", kind), graph)

    def _tensor(self, id: str) -> TensorSpec:
        """What an id means at this step: a tensor of a context, or a node of the graph that was built last."""
        found = self.tensors.get(id)
        if found is not None:
            return found
        for graph in (*reversed(self._built), *self.graphs):
            nodes = self._nodes_of(graph)
            if id in nodes:
                return nodes[id]
        known = [*self.tensors, *(node for graph in self.graphs for node in self._nodes_of(graph))]
        raise Mistake(f"there is no tensor {quoted(id)}", did_you_mean(id, known))

    def _nodes_of(self, graph: str) -> dict[str, TensorSpec]:
        if graph not in self._nodes:
            self._nodes[graph] = {node.id: node for node in self.graphs[graph].nodes}
        return self._nodes[graph]

    def _set(self, content: Any) -> Step:
        out: list[tuple[str, Data]] = []
        for id, value in as_map(content, "set").items():
            try:
                spec = self._tensor(id)
            except Mistake as mistake:
                mistake.on_key = True
                raise mistake.below(id) from None
            out.append((id, at(id, parse_data, value, spec.type, spec.ne, self.folder, spec.nb)))
        if not out:
            raise Mistake("set names no tensor", "{set: {tensor: data}}")
        return Step("set", data=tuple(out))

    def _get(self, content: Any) -> Step:
        if isinstance(content, str):
            return Step("get", tensors=(self._tensor(as_id(content, "a tensor's id")).id,))
        items = enumerate(as_list(content, "get"))
        out = [at(i, self._tensor, at(i, as_id, item, "a tensor's id")).id for i, item in items]
        if not out:
            raise Mistake("get names no tensor", "{get: [tensor, ...]}")
        return Step("get", tensors=tuple(out))
