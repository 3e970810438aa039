"""The keys of cells, area by area."""

from __future__ import annotations

from ggmltool.inspect.history.cells import State


def numbered(cells: State, area: str) -> list[int]:
    """The numbers behind the keys of an area, in the order of the cells."""
    return [key[1] for key in cells if len(key) > 1 and key[0] == area and isinstance(key[1], int)]


def built(cells: State) -> list[str]:
    """The graphs of the scenario that were built so far, the newest build last."""
    return list(dict.fromkeys(str(key[1]) for key in cells if len(key) > 1 and key[0] == "cgraph"))
