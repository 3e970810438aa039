"""What a node can name: the tensors of the contexts and the nodes before it, by id."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.ggml.context import Context
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.spec import TensorSpec


class Scope:
    """The tensors that a node can name, as specs, and as scratch tensors for those that a constructor asks for.

    `later` are the ids of all nodes of the graph, to tell a source that comes too late from an unknown one, and
    `elsewhere` the graphs of nodes that belong to other graphs. `described` says that the graph is told as it lies in
    memory (see `captured.is_described`), `release` whose constructors make its nodes.
    """

    __slots__ = ("_tensors", "ctx", "described", "elsewhere", "later", "release", "specs")

    def __init__(
        self,
        ctx: Context,
        later: Mapping[str, object],
        elsewhere: Mapping[str, str] | None = None,
        described: bool = False,
        outer: Scope | None = None,
        release: Release = DEFAULT,
    ) -> None:
        self.ctx = ctx
        self.release = release
        self.later = later
        self.elsewhere: Mapping[str, str] = elsewhere if elsewhere is not None else {}
        self.described = described
        self.specs: dict[str, TensorSpec] = dict(outer.specs) if outer is not None else {}
        self._tensors: dict[str, Tensor] = dict(outer._tensors) if outer is not None else {}

    def __contains__(self, id: object) -> bool:
        return id in self.specs

    def add(self, spec: TensorSpec, tensor: Tensor | None = None) -> None:
        """Make a tensor known; `tensor` is what a constructor made of it, if one did."""
        self.specs[spec.id] = spec
        if tensor is not None:
            tensor.id = spec.id
            tensor.name = spec.name
            tensor.flags = spec.flags
            self._tensors[spec.id] = tensor

    def tensor(self, id: str) -> Tensor:
        """The scratch tensor of a known id."""
        found = self._tensors.get(id)
        if found is None:
            spec = self.specs[id]
            root = self.tensor(spec.view_src) if spec.view_src is not None else None
            found = Tensor(
                spec.type,
                spec.ne,
                spec.nb,
                spec.op,
                spec.op_params,
                spec.flags,
                None,
                root,
                spec.view_offs,
                spec.name,
                id,
            )
            self._tensors[id] = found
        return found

    def view(self, id: str, offset: int) -> tuple[str, int]:
        """The root of a known tensor, and an offset into the tensor as one into the root."""
        spec = self.specs[id]
        return (id, offset) if spec.view_src is None else (spec.view_src, spec.view_offs + offset)

    def missing(self, id: str, what: str) -> Mistake:
        """What is wrong with an id that is not known here."""
        if id in self.later:
            expected = "a node uses tensors and nodes before it, so there are no cycles"
            return Mistake(f"{what} {quoted(id)} comes after this node", expected)
        if id in self.elsewhere:
            return Mistake(f"{what} {quoted(id)} is a node of graph {quoted(self.elsewhere[id])}, not of this one")
        return Mistake(f"{what} {quoted(id)} does not exist", did_you_mean(id, self.specs))
