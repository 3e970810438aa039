"""How long work tells of itself, to whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol


class Advance(Protocol):
    """Called when some of the work is done: `n` more of the total."""

    def __call__(self, n: int = 1, /) -> None: ...


class Progress(Protocol):
    """Makes the block that work is done in; the block calls what it gets. `total` is how much there is of `unit`."""

    def __call__(self, label: str, total: int = 0, unit: str = "") -> AbstractContextManager[Advance]: ...


@contextmanager
def _unseen(label: str, total: int = 0, unit: str = "") -> Iterator[Advance]:
    yield lambda n=1, /: None


def _unsaid(text: str) -> None:
    """Nobody listens."""


class Work(NamedTuple):
    """Where it is said how far the work is, and what else is worth knowing; by default nowhere. `of_command`: it is a
    command's; `checks_memory`: it is refused where it needs more memory than is free."""

    progress: Progress = _unseen
    note: Callable[[str], None] = _unsaid
    of_command: bool = False
    checks_memory: bool = False


UNSEEN = Work()
