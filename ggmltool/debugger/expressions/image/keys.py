"""What the keys of cells say."""

from __future__ import annotations

from ggmltool.state.story.cells import AnyCells


def built(cells: AnyCells) -> list[str]:
    """The graphs of the scenario that were built so far, the newest build last."""
    return list(dict.fromkeys(str(key[1]) for key in cells if len(key) > 1 and key[0] == "cgraph"))
