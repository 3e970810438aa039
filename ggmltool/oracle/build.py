"""Makes a scenario's tensors and graphs in the real library's memory, field by field as the model has them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, MutableMapping

from ggmltool.ggml.version import MEM_ALIGN
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.state import TENSOR_LAYOUT
from ggmltool.oracle.structs import MAX_NAME, MAX_PARAMS, MAX_SRC
from ggmltool.scenario.spec import GraphSpec, TensorSpec

F32 = 0


class Builder:
    """Makes tensors and graphs. `ids` gets every tensor ever made, so that state can be named by address."""

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.ids: dict[int, str] = {}
        self._contexts: list[int] = []
        self._overhead: int = lib.ggml_tensor_overhead()

    def close(self) -> None:
        """Frees all contexts."""
        for ctx in self._contexts:
            self.lib.ggml_free(ctx)
        self._contexts.clear()

    def context(self, n_tensors: int, graph_size: int = 0) -> int:
        """A no_alloc context with room for so many tensors and a graph."""
        size = n_tensors * self._overhead
        if graph_size:
            size += self.lib.ggml_graph_overhead_custom(graph_size, False)
        ctx = self.lib.init(size + MEM_ALIGN)
        self._contexts.append(ctx)
        return ctx

    def tensors(self, ctx: int, specs: Iterable[TensorSpec], known: MutableMapping[str, int]) -> None:
        """Makes `specs` in order in `ctx`; `known` maps ids to addresses and gets the new ones."""
        new = self.lib.ggml_new_tensor
        one = (ctypes.c_int64 * 1)(1)
        made = []
        for spec in specs:
            address = int(new(ctx, F32, 1, one))
            known[spec.id] = address
            self.ids[address] = spec.id
            made.append((address, spec))
        for address, spec in made:
            self._write(address, spec, known)

    def _write(self, address: int, spec: TensorSpec, known: Mapping[str, int]) -> None:
        src = [0 if s is None else known[s] for s in spec.src]
        data = TENSOR_LAYOUT.pack(
            spec.type.id,
            0,
            *spec.ne,
            *spec.nb,
            spec.op,
            *spec.op_params,
            *[0] * (MAX_PARAMS - len(spec.op_params)),
            spec.flags,
            *src,
            *[0] * (MAX_SRC - len(src)),
            known[spec.view_src] if spec.view_src is not None else 0,
            spec.view_offs,
            0,
            spec.name.encode("utf-8", "surrogateescape")[: MAX_NAME - 1],
            0,
        )
        ctypes.memmove(address, data, len(data))

    def graph(self, ctx: int, spec: GraphSpec, known: Mapping[str, int], size: int) -> int:
        """A graph of at most `size` nodes and leafs, expanded as the scenario says."""
        graph = int(self.lib.ggml_new_graph_custom(ctx, size, False))
        for name in spec.expand:
            if name in spec.uncomputed:
                self.lib.ggml_build_forward_order(graph, known[name])
            else:
                self.lib.ggml_build_forward_expand(graph, known[name])
        return graph
