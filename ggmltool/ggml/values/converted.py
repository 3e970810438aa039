"""Weights in float32, kept from one computation to the next.

Converting the weights of a model takes far longer than multiplying one token with them. What was converted is kept
while the memory it came from lives and nobody writes to it, up to a bound. What no longer fits is converted each time:
a graph meets its weights in the same order again and again, so that making room for the latest would keep none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIMIT = 5 << 28
"""Bytes of float32 that are kept at most: 1.25 GiB, a model of 335 million weights."""


class Converted:
    """What was made of parts of memory, by the memory's array and a key of the part."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.used = 0
        self._kept: dict[int, tuple[weakref.ref[Any], dict[Hashable, Any]]] = {}

    def get(self, memory: NDArray[Any], key: Hashable, convert: Callable[[], Any]) -> Any:
        """What `convert` gives for the part `key` of `memory`, from now on without calling it again."""
        at = id(memory)
        _, parts = self._kept.get(at) or (None, {})
        found = parts.get(key)
        if found is not None:
            return found
        made = convert()
        if self.used + made.nbytes <= self.limit:
            if at not in self._kept:
                self._kept[at] = (weakref.ref(memory, lambda _: self._drop(at)), parts)
            parts[key] = made
            self.used += made.nbytes
        return made

    def forget(self, memory: NDArray[Any]) -> None:
        """`memory` has been written to: nothing made of it is true any more."""
        if self._kept:
            self._drop(id(memory))

    def clear(self) -> None:
        """Keep nothing of what was made so far."""
        self._kept.clear()
        self.used = 0

    def _drop(self, at: int) -> None:
        _, parts = self._kept.pop(at, (None, {}))
        self.used -= sum(made.nbytes for made in parts.values())


CONVERTED = Converted()
"""What the kernels of this process keep."""
