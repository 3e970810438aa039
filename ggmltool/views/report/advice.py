"""What could be changed: options, changes that were planned, and limits that are near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.views.report.document import AdviceRow

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Moment, Opened
    from ggmltool.inspect.watched import Watched
    from ggmltool.views.report.events import Tables


def advice_rows(opened: Opened, moment: Moment, at: Watched, tables: Tables) -> list[AdviceRow]:
    """Now first, then what was planned otherwise."""
    return []
