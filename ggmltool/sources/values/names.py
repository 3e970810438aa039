"""Which tensor of a graph a name from outside means: its id, or ggml's name, the second of one name as `name~2`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ggmltool.scenario.spec import ScenarioSpec, TensorSpec


def tensors_by_name(model: ScenarioSpec, graph: str) -> dict[str, TensorSpec]:
    """The tensors of the contexts and the nodes of a graph by every name that they go by.

    Several nodes may have one name in ggml: the first of them is `name`, the others are `name~2`, `name~3` …, as
    `capture` and `run --dump` call them. Ids go first.
    """
    specs = [*model.graphs[graph].nodes, *model.tensors()]
    out = {t.id: t for t in specs}
    seen: dict[str, int] = {}
    for t in specs:
        seen[t.name] = seen.get(t.name, 0) + 1
        out.setdefault(t.name if seen[t.name] == 1 else f"{t.name}~{seen[t.name]}", t)
    return out


def matched(names: Iterable[str], known: Mapping[str, TensorSpec]) -> tuple[dict[str, str], list[str]]:
    """The name of each tensor's values by its id, and the names that no tensor goes by."""
    found: dict[str, str] = {}
    unknown = []
    for name in names:
        t = known.get(name)
        if t is None:
            unknown.append(name)
        else:
            found.setdefault(t.id, name)
    return found, unknown
