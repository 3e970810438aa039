"""Where the panes have their places: three columns, two, or one pane alone, by the room that there is."""

from __future__ import annotations

_WIDE, _MEDIUM = (150, 36), (100, 28)
"""Columns and rows from which on all panes have room, and all but the calls; below, one pane and the events."""
_LOW = 16
"""Rows below which the events stand behind the pane in front."""

CSS = """
Screen { layout: vertical; overflow: hidden; }
#body { height: 1fr; layout: grid; grid-gutter: 0; }
.wide #body { grid-size: 3 3; grid-columns: 10fr 13fr 9fr; grid-rows: 5fr 5fr 8; }
.wide #graph, .wide #story { row-span: 3; }
.medium #body { grid-size: 2 3; grid-columns: 5fr 6fr; grid-rows: 4fr 4fr 3fr; }
.medium #graph { row-span: 3; }
.medium #calls { display: none; }
.small #body { layout: vertical; }
.small #body Pane { display: none; height: 1fr; }
.small #body Pane.front { display: block; }
.small #body #events { display: block; height: 7; }
.small #body #events.front { height: 1fr; }
.behind #body #events { display: none; }
.behind #body #events.front { display: block; }
.answering.small #body #events { display: none; }
.answering.small #body #events.front { display: block; }
.small Tabs { display: block; }
#answer { display: none; height: 40%; }
#answer.open { display: block; }
"""


def classes_of(width: int, height: int, zoomed: bool) -> frozenset[str]:
    """What the screen is with so many columns and rows, or with one pane `zoomed`: the classes of its style."""
    wide, medium = (width >= least[0] and height >= least[1] for least in (_WIDE, _MEDIUM))
    if medium and not zoomed:
        return frozenset({"wide" if wide else "medium"})
    return frozenset({"small", "behind"} if height < _LOW or zoomed else {"small"})
