"""The views that `attach --show` is asked for: their words, and what they show of a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.errors import Error
from ggmltool.inspect.attached.seen import Seen
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.show.table import Style, render_lines
from ggmltool.views.attach import live
from ggmltool.views.attach.live_documents import Asked
from ggmltool.views.attach.tensor import lifetime_view, tensor_view

PLAIN: Mapping[str, Callable[[Seen, Style], str]] = {
    "splits": live.splits_view,
    "hash": live.hash_view,
    "hash --sched": live.sched_view,
    "allocs": live.allocs_view,
    "buffers": live.buffers_view,
    "graph": live.graph_view,
}
OF_TENSOR: Mapping[str, Callable[[Seen, int, Style], str]] = {"tensor": tensor_view, "lifetime": lifetime_view}
WORDS = (*PLAIN, *(f"{view} NODE" for view in OF_TENSOR))


class NoViewError(Error):
    """What was asked for is no view, or is of no tensor that is there."""


class Wanted(NamedTuple):
    """A view, and the tensor that it is of."""

    view: str
    tensor: str = ""


def wanted(text: str) -> list[Wanted]:
    """The views of an option: those of `PLAIN` parted by commas, or one of `OF_TENSOR` with its tensor.

    Raises NoViewError.

    >>> wanted("splits,hash --sched"), wanted("tensor a, b")
    ([Wanted(view='splits', tensor=''), Wanted(view='hash --sched', tensor='')], [Wanted(view='tensor', tensor='a, b')])
    """
    view, _, tensor = text.strip().partition(" ")
    if view in OF_TENSOR:
        if not tensor.strip():
            raise NoViewError(f"{view} is of a tensor: --show '{view} NODE'")
        return [Wanted(view, tensor.strip())]
    views = [" ".join(part.split()) for part in text.split(",")]
    for one in views:
        if one not in PLAIN:
            hint = did_you_mean(one, [*PLAIN, *OF_TENSOR])
            raise NoViewError(f"there is no view {quoted(one)}; {hint or 'there are ' + ', '.join(WORDS)}")
    return [Wanted(one) for one in views]


def shown(seen: Seen, views: Sequence[Wanted], style: Style) -> str:
    """These views, one below the other. Raises NoViewError."""
    parts = [
        OF_TENSOR[view](seen, address_of(seen, tensor), style) if tensor else PLAIN[view](seen, style)
        for view, tensor in views
    ]
    return render_lines([""], style).join(parts)


def asked(seen: Seen, views: Sequence[Wanted]) -> Asked:
    """The same, as documents are asked for them. Raises NoViewError."""
    of = {view: [address_of(seen, name) for one, name in views if one == view] for view in OF_TENSOR}
    return Asked(frozenset(view for view, tensor in views if not tensor), of["tensor"], of["lifetime"])


def address_of(seen: Seen, name: str) -> int:
    """The tensor of a name, or at an address. Raises NoViewError."""
    found = seen.named(name)
    if found is None and name.startswith("0x"):
        found = next((address for address in seen.snapshot.tensors if f"{address:#x}" == name.lower()), None)
    if found is None:
        hint = did_you_mean(name, [seen.name(address) for address in seen.snapshot.tensors])
        raise NoViewError(f"no tensor is called {quoted(name)}{'; ' if hint else ''}{hint}")
    return found
