"""What tests read of a scheduler's memory themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.oracle.structs import KNOWN


def splits_of(sched: Any) -> Sequence[Any]:
    """The splits of a ggml_backend_sched."""
    return (KNOWN["ggml_backend_sched_split"] * sched.n_splits).from_address(sched.splits) if sched.n_splits else ()
