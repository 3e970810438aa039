"""What computing takes for granted: that the tensors it reads have values, and that there is memory for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ggmltool.ggml import bounds
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.need import need_of_compare, need_of_run
from ggmltool.scenario.spec import valueless
from ggmltool.scenario.steps import computed_by
from ggmltool.show.text import shortened, size

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.spec import ScenarioSpec, Step

_NAMES_SHOWN = 3


def check_weights(model: ScenarioSpec, graphs: Iterable[str], steps: Iterable[Step], without: str) -> list[str]:
    """Refuse to compute graphs whose weights have no values; the other tensors without values, which are zero.

    `without` is how the command is told to compute nothing. Raises InspectError.
    """
    graphs = list(dict.fromkeys(graphs))
    found = valueless(model, graphs, steps)
    if found.weights:
        names = shortened(found.weights, _NAMES_SHOWN)
        raise InspectError(
            f"{model.source}: the weights have no values ({names}), so the result would be zeros. Give them `data` "
            f"(for a model, `ggmltool capture --weights` does). {without} only plans; --zeros computes with zeros"
        )
    return found.inputs


def computed_graphs(model: ScenarioSpec) -> list[str]:
    """The graphs that the steps of a scenario compute."""
    return [graph for _, graph in computed_by(model.steps, model.release) if graph is not None]


def check_memory(opened: Opened, compared: str | None = None) -> None:
    """Refuse to compute what needs more memory than is free: the scenario's steps, or a graph on two sides.

    Raises InspectError.
    """
    free = bounds.free_memory()
    graphs = computed_graphs(opened.model)
    if free is None or not (graphs or compared):
        return
    need = (
        need_of_run(opened.scenario, graphs, free) if compared is None else need_of_compare(opened.scenario, compared)
    )
    if need.total <= free:
        return
    parts = f"tensors {size(need.contexts)}, results {size(need.buffers)}, values as floats {size(need.converted)}"
    raise InspectError(
        f"computing needs about {size(need.total)} ({parts}), but only {size(free)} is free here. Use fewer tokens or "
        "a smaller context (`capture --n-tokens`, -c); --no-memory-check computes anyway"
    )
