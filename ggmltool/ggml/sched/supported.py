"""Nodes that a backend is to compute and its device does not support: the user's assignments are never asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ggmltool.ggml.device import NO
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import Tensor, is_computed, op_desc

USER = "usr"


def supported(s: AnyScheduler, b: int, nodes: Iterable[Tensor]) -> Iterator[Tensor]:
    """The nodes for backend `b` in turn. Raises GgmlError before the one at which ggml ends."""
    for n in nodes:
        error = _unsupported(s, b, n)
        if error is not None:
            raise error
        yield n


def check_supported(s: AnyScheduler) -> None:
    """Raise GgmlError if ggml ends when it computes the splits, since a backend has no kernel for one of its nodes."""
    for split in s.splits[: s.n_splits]:
        for _ in supported(s, split.backend_id, split.nodes):
            pass


def _unsupported(s: AnyScheduler, b: int, n: Tensor) -> GgmlError | None:
    device = s.backends[b].device
    assigned = s.assigned_causes[n.index] == USER
    if device.unsupported is None or not (assigned or device.table[n.key] == NO):
        return None
    if not is_computed(n):
        return None
    refusal = device.refusal(n)
    if refusal is None or not (assigned or refusal.lacks):
        return None
    error = device.unsupported.of(n, s.names[b], *refusal)
    if error is not None:
        error.explanation = "\n".join(filter(None, (_why(s, b, n, assigned), error.explanation)))
    return error


def _why(s: AnyScheduler, b: int, n: Tensor, assigned: bool) -> str:
    name, op = s.names[b], op_desc(n)
    able = [other.name for other in s.backends if other.device.supports_op(n)]
    others = f"name a backend that supports it ({', '.join(able)})" if able else "give it to another device"
    if assigned:
        return (
            f"{n.label} ({op}) is assigned to {name} by the user, and {name} does not support it: the scheduler does "
            f"not ask (supports_op) where the user has chosen; leave out the assignment, or {others}"
        )
    return f"{n.label} ({op}) is on {name}, which does not support it, and the scheduler did not ask; {others}"
