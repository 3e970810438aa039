"""What panes know of the app that they are in: what is shown now, and how."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import Now, Scene


class Home(Protocol):
    """`told` is what stands in the last line, `tab` the number of the pane in front, `found` the tensors that were
    looked for."""

    scene: Scene
    look: Look
    selected: str
    found: Collection[str]
    told: str
    tab: int

    @property
    def console(self) -> Console:
        """Who renders text."""

    @property
    def now(self) -> Now:
        """The state that is shown."""

    @property
    def takes_commands(self) -> bool:
        """Whether somebody answers commands."""

    @property
    def here(self) -> Sequence[str]:
        """The tensors that the event is about."""

    @property
    def stops(self) -> Collection[str]:
        """What breakpoints stand at, as the user named it."""

    @property
    def marked(self) -> Sequence[int]:
        """The points of breakpoints."""

    @property
    def titles(self) -> Sequence[str]:
        """The names of the panes, in the order of their numbers."""

    def stops_at(self, at: int) -> bool:
        """Whether a breakpoint stands at a point."""

    def is_hit(self, at: int) -> bool:
        """Whether a point was found."""

    def action_pane(self, number: int) -> None:
        """The focus to a pane."""
