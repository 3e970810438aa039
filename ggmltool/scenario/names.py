"""Names that a caller gives in place of the file: of a graph, of a tensor."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.values import kind_of


def graph_called(model: ScenarioSpec, name: object = None) -> str:
    """The name of a graph, by default that of the first one. Raises ScenarioError for one that is not there."""
    if name is None:
        if not model.graphs:
            raise ScenarioError("the scenario has no graph", model.source)
        return next(iter(model.graphs))
    if not isinstance(name, str):
        raise ScenarioError(f"the name of a graph must be text, not {kind_of(name)}", model.source)
    if name not in model.graphs:
        hint = did_you_mean(name, model.graphs) or "its graphs are " + ", ".join(model.graphs)
        raise ScenarioError(f"no graph is called {quoted(name)}", model.source, None, hint)
    return name


def no_tensor(model: ScenarioSpec, id: object, ids: Iterable[str], where: str = "there is") -> ScenarioError:
    """What to raise for an id that none of `ids` is."""
    if not isinstance(id, str):
        return ScenarioError(f"the id of a tensor must be text, not {kind_of(id)}", model.source)
    return ScenarioError(f"{where} no tensor {quoted(id)}", model.source, None, did_you_mean(id, ids))
