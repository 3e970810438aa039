"""What the scheduler makes for itself: splits, and the arena its copies and dependencies live in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb, cut_name

_CLEARED: Dims = (1, 1, 1, 1)
"""The extents of a tensor that ggml_new_tensor_impl has just begun to make."""

Copies = list[list[Tensor] | None]
"""The copies of one tensor: per backend None or one tensor per pipeline copy."""


class Split:
    """ggml_backend_sched_split: nodes `[i_start, i_end)` on one backend, after copying `inputs`.

    A split object belongs to its position and outlives the graph: `inputs_capacity` only grows, as in ggml.
    """

    __slots__ = ("backend_id", "i_end", "i_start", "inputs", "inputs_capacity", "nodes")

    def __init__(self) -> None:
        self.backend_id = 0
        self.i_start = 0
        self.i_end = 0
        self.inputs: list[Tensor] = []
        self.inputs_capacity = 0
        self.nodes: list[Tensor] = []

    def fields(self, i: int) -> dict[str, int | bool]:
        """Its plain fields as split `i` of a scheduler."""
        ends = {"i_start": self.i_start, "i_end": self.i_end, "n_inputs": len(self.inputs)}
        return {f"splits[{i}].{name}": value for name, value in ends.items()}


class AnyArena(ABC):
    """The scheduler's own context of `size` bytes: what it makes is made anew at every split, in the same memory.

    A tensor of an earlier split stays where it was and turns into whatever is made at its place next, so a graph
    that still points to it sees what ggml would see.
    """

    __slots__ = ("_next", "indices", "overhead", "size", "slots")

    def __init__(self, size: int, indices: IndexSpace, release: Release) -> None:
        self.size = size
        self.overhead = release.tensor_overhead()
        self.indices = indices
        self.slots: list[Tensor] = []
        self._next = 0

    @property
    def used(self) -> int:
        """ggml_used_mem of the scheduler's context, whose `size` is in bytes too."""
        return self._next * self.overhead

    def clear(self) -> None:
        self._next = 0

    @abstractmethod
    def described(self) -> str:
        """What is in it, in words."""

    @abstractmethod
    def check_room(self, src: Tensor) -> None:
        """Raises GgmlError if it has no room for one more tensor, made of `src`."""

    def made(self) -> list[Tensor]:
        """The tensors of the last split, in the order of the arena."""
        return self.slots[: self._next]

    def dup_layout(self, src: Tensor, before: str, after: str) -> Tensor:
        """ggml_dup_tensor_layout: a tensor of the same type, extents and strides, with the name of `src` between
        `before` and `after`.

        Where `src` is of an earlier split and lies where the new tensor is made, ggml has cleared it before it reads
        the extents; its name is what was written so far.
        """
        self.check_room(src)
        if self._next < len(self.slots):
            t = self.slots[self._next]
            index = t.index
        else:
            t = Tensor.__new__(Tensor)
            index = self.indices.take()
            self.slots.append(t)
        self._next += 1
        name = before + before + after if t is src else before + src.name + after
        t.become_like(src, cut_name(name), index)
        if t is src:
            t.set_layout(_CLEARED, contiguous_nb(t.type, _CLEARED))
        return t


class Arena(AnyArena):
    """The context of copies and dependencies."""

    __slots__ = ("capacity",)

    def __init__(self, graph_size: int, indices: IndexSpace, release: Release) -> None:
        of_tensors = graph_size * release.rules.max_split_inputs * 2 * release.tensor_size
        super().__init__(of_tensors + release.graph_overhead(graph_size), indices, release)
        self.capacity = self.size // self.overhead

    def described(self) -> str:
        """What is in it, in words."""
        return f"{len(self.made())} copies and dependencies"

    def check_room(self, src: Tensor) -> None:
        """Raises GgmlAssert if it is full."""
        if self._next >= self.capacity:
            raise GgmlAssert(
                "ggml_new_tensor_impl",
                "obj_new",
                f"the scheduler's context has room for {self.capacity} copies and dependencies, and a copy or view of "
                f"{src.name or src.id} is one more; a larger graph_size makes it larger, fewer splits and no pipeline "
                "copies need less",
            ).of("sched_context", self.used + self.overhead)

    def view(self, src: Tensor, keeps: Sequence[Tensor] = ()) -> Tensor:
        """ggml_view_tensor, with `src` as its source too: keeps `src` alive until the copy is made.

        Or with all that it `keeps` as its sources, of which `src` is the first.
        """
        root, offs = (src.view_src, src.view_offs) if src.view_src is not None else (src, 0)
        size = src.type.row_size(src.ne[0]) * src.ne[1] * src.ne[2] * src.ne[3]
        fits = src.nbytes + offs <= root.nbytes and src.nb == contiguous_nb(src.type, src.ne)
        if not fits and size and size + offs > root.nbytes:
            raise GgmlAssert(
                "ggml_new_tensor_impl",
                "view_src == NULL || data_size == 0 || data_size + view_offs <= ggml_nbytes(view_src)",
                f"{src.name or src.id} is to be copied; the scheduler makes a view of it, whose contiguous size of "
                f"{size} bytes at offset {offs} is more than the {root.nbytes} bytes of {root.name or root.id}",
            )
        t = self.dup_layout(src, "", " (view)")
        t.view_src, t.view_offs = root, offs
        t.src = [*keeps] or [src]
        return t
