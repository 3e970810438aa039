"""What views need to know of a tensor and the plan does not say: its bytes, where it comes from, its own sources."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.scenario.tensor_info import TensorInfo
from ggmltool.show.text import size_between


def bytes_of(infos: Iterable[TensorInfo]) -> str:
    """The total size of some tensors as text: a size, or the two sizes it lies between."""
    low = high = 0
    for info in infos:
        low += info.nbytes
        high += info.nbytes + info.slack
    return size_between(low, high)
