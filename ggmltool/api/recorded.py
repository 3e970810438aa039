"""`Scenario.record` and `open_record`: histories, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ggmltool.ask.checked import checked
from ggmltool.inspect.ready import check_weights, computed_graphs
from ggmltool.state.story.history import History, record_history

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened


def record(opened: Opened, path: str | Path | None, compute: bool, zeros: bool) -> History:
    """The history of a scenario's steps, also written to `path` (see `Scenario.record`)."""
    graphs = computed_graphs(opened.model)
    if compute and graphs and not zeros:
        check_weights(opened.model, graphs, opened.model.steps, "record(compute=False)")
    history = record_history(opened.scenario, compute)
    if path is not None:
        from ggmltool.state.story.record import record_bytes

        Path(path).write_bytes(record_bytes(history))
    return history


@checked
def open_record(path: str | Path) -> History:
    """The history in the file of a record: its points, the state at each, and the call stack.

    Raises ScenarioError for a file that is none, or cannot be read.
    """
    from ggmltool.state.story.record import open_history

    return open_history(path)
