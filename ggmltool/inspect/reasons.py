"""Why a tensor is on its backend, put together from what the scheduler announced: what settled it, and which backends
of higher priority were asked and do not support its op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.device import Backend
from ggmltool.ggml.events import Assigned, PassedOver, Refused, Said
from ggmltool.ggml.tensor import Tensor, op_desc


class TurnedDown(NamedTuple):
    """A backend that does not support `op`, for `why`; `lacks`: it has no such op at all, whatever the operands."""

    backend: str
    op: str
    why: str
    lacks: bool


class Reason(NamedTuple):
    """Why `tensor` is where it is.

    `settled` is the last rule that gave it a backend, None if none did. `turned_down` are the backends of higher
    priority (all, if there is no backend) that were asked and do not support its op, `passed_over` what else the rule
    that settled it says of backends of higher priority. `is_next`: every backend of higher priority was turned down.
    """

    tensor: str
    settled: Assigned | None
    turned_down: tuple[TurnedDown, ...]
    passed_over: tuple[PassedOver, ...]
    is_next: bool


def reason_of(tensor: str, op: str, said: Sequence[Said], backends: Sequence[str]) -> Reason:
    """Put together what was `said` of a tensor with this op; `backends` are all names, highest priority first."""
    settled = next((e for e in reversed(said) if isinstance(e, Assigned)), None)
    higher = list(backends) if settled is None else list(backends[: backends.index(settled.backend)])
    refusals = {e.backend: e for e in said if isinstance(e, Refused)}
    turned_down = [
        TurnedDown(name, op, refusals[name].condition, refusals[name].lacks) for name in higher if name in refusals
    ]
    rule = 1 if settled is None else settled.rule
    passed = [
        e for e in said if isinstance(e, PassedOver) and e.rule == rule and (e.backend in higher or not e.backend)
    ]
    return Reason(tensor, settled, tuple(turned_down), tuple(passed), bool(higher) and len(turned_down) == len(higher))


def unsupported(
    backends: Sequence[Backend], nodes: Iterable[Tensor], on: Mapping[str, str | None]
) -> Counter[tuple[TurnedDown, str]]:
    """How many nodes run on no GPU (on the second of the pair) since one does not support their op, by reason.

    `on` is the backend of each node. To be asked of a graph that has no memory yet. A GPU is not asked for nodes with
    a source in the memory of another one: they belong there.
    """
    names = [b.name for b in backends]
    gpus = [b for b in backends if b.device.type in ("gpu", "igpu")]
    memory = {b.device.buft: b.name for b in gpus}
    found: Counter[tuple[TurnedDown, str]] = Counter()
    for node in nodes:
        there = on.get(node.id)
        if there is None or node.is_view_op or any(there == b.name for b in gpus):
            continue
        belongs = {memory.get(src.buffer.buft) for src in node.src if src is not None and src.buffer is not None}
        for backend in gpus:
            if names.index(backend.name) > names.index(there) or belongs - {None, backend.name}:
                continue
            refusal = backend.device.refusal(node)
            if refusal is not None:
                found[TurnedDown(backend.name, op_desc(node), *refusal), there] += 1
    return found
