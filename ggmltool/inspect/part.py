"""What the parts of a record have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler


class Part:
    """A part of a record: it hears the events of the kinds in `hears`, and looks at a scheduler if it wants to."""

    hears: ClassVar[frozenset[type]] = frozenset()
    looks_at_passes: ClassVar[bool] = False

    def hear(self, event: Any) -> None:
        """An event of one of the kinds in `hears`."""

    def attach(self, sched: AnyScheduler) -> None:
        """A scheduler was made."""

    def after_pass(self, number: int, sched: AnyScheduler) -> None:
        """The scheduler's `on_pass`, where `looks_at_passes`."""
