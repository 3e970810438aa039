"""Captured graphs: nodes told as they lie in memory, thousands of them, of which most have been seen before.

A graph repeats itself layer by layer. What the rules made of a node once, they make of every other with the same op,
parameters and source layouts, so that only the first one is run through its constructor; the others are compared with
what came out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Dims
from ggmltool.scenario.nodes.long_form import KEYS
from ggmltool.scenario.nodes.nodes import NodeScope
from ggmltool.scenario.spec import TensorSpec

_DESCRIBED_KEYS = frozenset(KEYS) - {"inplace"}
_SELF = -1
_EMPTY = -2
_NO_VIEW = -1
_LISTS = (list, tuple, type(None))
_VIEW_SLOT = {int(Op.CPY): 1, int(Op.SET_ROWS): 2}
"""The slot whose memory a node shares, if it is not the first."""


def is_described(nodes: Mapping[str, object]) -> bool:
    """Whether a graph is told as it lies in memory: every node with its type, four extents and raw words only.

    That is what captured graphs are. Whoever made them called the constructors already, perhaps those of another
    release, so where this release's constructor would refuse, the node is taken as it is written.
    """
    return bool(nodes) and all(
        isinstance(v, dict) and v.keys() <= _DESCRIBED_KEYS and "type" in v
        and isinstance(ne := v.get("ne"), list) and len(ne) == 4
        for v in nodes.values()
    )  # fmt: skip


class KnownNode(NamedTuple):
    """What the rules made of a node: its layout, and which slot's memory it shares, `delta` bytes further on."""

    type: DType
    ne: Dims
    nb: Dims
    op: int
    op_params: tuple[int, ...]
    view_slot: int
    delta: int
    layout: int


class Seen:
    """The nodes seen so far, by all that their rules depend on."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], KnownNode] = {}
        self._layouts: dict[tuple[DType, Dims, Dims], int] = {}

    def layout(self, spec: TensorSpec) -> int:
        """A small number for a type, extents and strides."""
        return self._layouts.setdefault((spec.type, spec.ne, spec.nb), len(self._layouts))

    def find(
        self, id: str, value: dict[str, Any], scope: NodeScope, layouts: dict[str, int]
    ) -> tuple[KnownNode, tuple[str | None, ...], str | None, int] | None:
        """What is known of a node like this one: it, and this one's sources, root and offset.

        None for a node that is new, or says anything else than the one like it did.
        """
        try:
            key = self._key(id, value, scope, layouts)
            known = self._known.get(key) if key is not None else None
        except (TypeError, ValueError, KeyError):  # it is malformed
            return None
        if known is None:
            return None
        src = tuple(value.get("src") or ())
        view_src, view_offs = value.get("view_src"), value.get("view_offs")
        if known.view_slot == _NO_VIEW:
            return (known, src, None, 0) if view_src is None and view_offs is None else None
        parent = src[known.view_slot]
        if parent is None:
            return None
        seen = scope.specs[parent]
        root = seen.view_src or parent
        offs = seen.view_offs + known.delta
        if view_src is None:
            return (known, src, root, offs) if view_offs is None and "flags" not in value else None
        if view_src != root:
            known_src = isinstance(view_src, str) and view_src in scope
            if not known_src or scope.view(view_src, 0) != (root, 0):
                return None
        if view_offs is not None and (view_offs.__class__ is not int or scope.view(view_src, view_offs)[1] != offs):
            return None
        return known, src, root, offs

    def remember(self, value: dict[str, Any], spec: TensorSpec, scope: NodeScope, layouts: dict[str, int]) -> None:
        """Keep what the rules made of a node, for the next one like it."""
        try:
            key = self._key(spec.id, value, scope, layouts)
            hash(key)
        except (TypeError, ValueError, KeyError):
            return
        slot, delta = _NO_VIEW, 0
        if key is None:
            return
        if spec.view_src is not None:
            slot = _VIEW_SLOT.get(spec.op, 0)
            parent = spec.src[slot] if slot < len(spec.src) else None
            if parent is None or parent == spec.id:
                return
            root, offs = scope.view(parent, 0)
            if root != spec.view_src:
                return
            delta = spec.view_offs - offs
        self._known[key] = KnownNode(
            spec.type, spec.ne, spec.nb, spec.op, spec.op_params, slot, delta, self.layout(spec)
        )

    def _key(
        self, id: str, value: dict[str, Any], scope: NodeScope, layouts: dict[str, int]
    ) -> tuple[object, ...] | None:
        """All that decides what the rules make of a node and whether what it says agrees; None if it has no key.

        Raises KeyError, TypeError and ValueError for what is malformed.
        """
        get = value.get
        if "data" in value or get("src").__class__ not in _LISTS:
            return None
        ne, nb = get("ne"), get("nb")
        return (
            value["op"],
            get("type"),
            tuple(ne) if ne is not None else None,
            tuple(nb) if nb is not None else None,
            tuple(value["op_params"]) if "op_params" in value else None,
            get("view_src") is None,
            scope.described,
            tuple([_EMPTY if s is None else _SELF if s == id else layouts[s] for s in get("src") or ()]),
            None
            if value.keys() <= _DESCRIBED_KEYS
            else tuple([(k, v.__class__, v) for k, v in value.items() if k not in _DESCRIBED_KEYS]),
        )
