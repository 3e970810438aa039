"""Which tensors a graph reads that have no values of their own: computing with them is computing with zeros."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ggmltool.ggml.tensor import nbytes_of
from ggmltool.scenario.spec import ScenarioSpec, Step, TensorSpec


class Valueless(NamedTuple):
    """The ids of tensors without values: of contexts with `usage: weights`, and of others."""

    weights: list[str]
    inputs: list[str]


def valueless(model: ScenarioSpec, graphs: Iterable[str], steps: Iterable[Step] = ()) -> Valueless:
    """The tensors that the graphs' computed nodes read and that have neither data nor a `set` among the steps.

    What a graph writes to, as to a KV cache, may well begin as zeros and is left out; so is what has no bytes.
    """
    given = {name for step in steps for name, _ in step.data}
    read, written = _used(model, graphs)
    found = Valueless([], [])
    for context in model.contexts:
        for t in context.tensors:
            if t.id not in read or t.id in written or t.id in given or t.data is not None or t.view_src is not None:
                continue
            if nbytes_of(t.type, t.ne, t.nb):
                (found.weights if context.usage == "weights" else found.inputs).append(t.id)
    return found


def _used(model: ScenarioSpec, graphs: Iterable[str]) -> tuple[set[str], set[str]]:
    """What the graphs' computed nodes read, directly or through a view, and what they write to."""
    from ggmltool.ggml.op import VIEW_OPS

    tensors = {t.id: t for t in model.tensors()}
    read: set[str] = set()
    written: set[str] = set()
    for name in graphs:
        known = tensors | {n.id: n for n in model.graphs[name].nodes}
        for n in model.graphs[name].computed():
            if n.op not in VIEW_OPS and n.view_src is not None:
                written.add(n.view_src)
            for s in n.src:
                source = known.get(s) if s is not None else None
                if source is not None:
                    read.update(_seen(source))
    return read, written


def _seen(t: TensorSpec) -> tuple[str, ...]:
    return (t.id,) if t.view_src is None else (t.id, t.view_src)
