"""A tensor of which a log shows some elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sample:
    """Some elements of a tensor as they were printed: `at` their numbers (ne[0] fastest) and `values`, each rounded by
    `rounding` at most. `total` is the sum of all elements, added in float32 one after the other (None: not known).
    """

    at: NDArray[Any]
    values: NDArray[Any]
    rounding: float
    total: float | None = None
