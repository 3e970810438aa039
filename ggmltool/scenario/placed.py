"""A graph with what it needs in the memory of one backend, as comparing takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.buffer import AddressSpace
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import Copier
from ggmltool.ggml.memory import HostArrays
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.compiled import NONE, Compiled, CompiledTensor
from ggmltool.scenario.data import INTEGER_BITS, UniformData
from ggmltool.scenario.spec import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PlacedGraph:
    """A graph with the tensors it needs, and no others, in one context that is allocated on one backend.

    `copier` is what copies graphs in the release.
    """

    def __init__(
        self,
        compiled: Compiled,
        name: str,
        backend: Backend,
        events: Listener | None,
        copier: type[Copier] = Copier,
    ) -> None:
        self.backend = backend
        self.copier = copier
        self.events = events
        self.indices = IndexSpace()
        self.addresses = AddressSpace()
        self.context = Context(indices=self.indices, name="compare")
        spec = compiled.graphs[name]
        tensors = [*(t for context in compiled.contexts for t in context), *spec.nodes]
        self._specs: list[TensorSpec] = list(compiled.model.tensors())
        needed = _needed(tensors, spec.expand)
        self._made = {at: self.context.add(tensors[at].make(0)) for at in needed}
        for at, t in self._made.items():
            ct = tensors[at]
            t.src = [None if s == NONE else self._made[s] for s in ct.src]
            if ct.view_src != NONE:
                t.view_src = self._made[ct.view_src]
        self.graph = CGraph(compiled.cgraph_size, self.indices.top)
        spec.build(self.graph, self._made.__getitem__)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors that are pre-allocated."""
        return sum(t.nbytes for t in self.context.tensors if t.view_src is None)

    def allocate(
        self, seed: int | None, given: Mapping[str, NDArray[Any]] | None = None
    ) -> tuple[list[str], list[str]]:
        """Give the tensors memory and values; the ids of those without data: which got values, and which are zero.

        The values of a tensor without data are those that are `given` (shape `ne` reversed), else random ones from -1
        to 1, made with `seed` (None: all are zero). Integers are zero, since they may be indices, and so are types
        that cannot be quantized here.
        """
        self.copier.alloc_ctx_tensors(self.context, self.backend.device.buft, self.addresses)
        made_up, zero = [], []
        for at, t in self._made.items():
            if at >= len(self._specs) or t.view_src is not None or t.buffer is None or not t.nbytes:
                continue
            data = self._specs[at].data
            if data is not None:
                data.write(t, self.events)
            elif given is not None and t.id in given:
                HostArrays().put(t, given[t.id])
            elif seed is not None and self._make_up(t, seed + at):
                made_up.append(t.id)
            else:
                zero.append(t.id)
        return made_up, zero

    def _make_up(self, t: Tensor, seed: int) -> bool:
        if t.type.name in INTEGER_BITS:
            return False
        try:
            UniformData(seed).write(t, self.events)
        except NotComputable:
            return False
        return True


def _needed(tensors: Sequence[CompiledTensor], expand: Sequence[int]) -> list[int]:
    """Which of a graph's tensors it uses, as sources or as what its views see, in their order."""
    seen: set[int] = set()
    todo = list(expand)
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            ct = tensors[at]
            todo += [s for s in (*ct.src, ct.view_src) if s != NONE]
    return sorted(seen)
