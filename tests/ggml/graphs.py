"""Small graphs made by hand, without constructors: any op between any tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_WEIGHTS
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor


class Builder:
    """Tensors of one context. `ne` of a node is that of its first source unless given."""

    def __init__(self) -> None:
        self.ctx = Context()

    def parse(self, text: str) -> dict[str, Tensor]:
        """Tensors by words: `x:64` is a leaf, `x:64!` an input; `y=ADD(x,_)` has a hole, `y=SIN(x)!` is an output,
        `v=VIEW(y)` a view. A product has the shape of its last source. In a `Bench` `w:8,8@0` is a weight on backend 0,
        `k:8&1` in memory of backend 1.
        """
        made: dict[str, Tensor] = {}
        for word in text.split():
            found = re.fullmatch(r"(\w*)(?::([\d,]+)|=(\w+)\(([\w,]*)\))(!?)(?:([@&])(\d))?", word)
            assert found, word
            name, ne, op, sources, marked, place, on = found.groups()
            if place:
                usage = USAGE_WEIGHTS if place == "@" else USAGE_ANY
                made[name] = self.placed(name, *map(int, ne.split(",")), on=int(on), usage=usage)
            elif ne:
                made[name] = self.leaf(name, *map(int, ne.split(",")), flags=FLAG_INPUT if marked else 0)
            else:
                src = [None if s == "_" else made[s] for s in sources.split(",")]
                last = src[-1]
                shape = last.ne if op == "MUL_MAT" and last is not None else None
                view = src[0] if op == "VIEW" else None
                node = self.view(name, view) if view is not None else self.node(name, Op[op], *src, ne=shape)
                node.flags |= FLAG_OUTPUT if marked else 0
                made[name] = node
        return made

    def placed(self, name: str, *ne: int, on: int, usage: int = USAGE_ANY, type: str = "f32") -> Tensor:
        """A leaf in a device's memory, where there are devices."""
        raise NotImplementedError

    def leaf(self, name: str, *ne: int, type: str = "f32", flags: int = 0) -> Tensor:
        t = self.ctx.new_tensor(TYPES[type], ne, name=name)
        t.id = name
        t.flags = flags
        return t

    def input(self, name: str, *ne: int, type: str = "f32") -> Tensor:
        return self.leaf(name, *ne, type=type, flags=FLAG_INPUT)

    def node(
        self,
        name: str,
        op: Op,
        *src: Tensor | None,
        ne: Sequence[int] | None = None,
        type: str | None = None,
        output: bool = False,
        params: tuple[int, ...] = (),
    ) -> Tensor:
        first = next((s for s in src if s is not None), None)
        if ne is None:
            assert first is not None
            ne = first.ne
        dtype = TYPES[type] if type is not None or first is None else first.type
        t = self.ctx.new_tensor(dtype, ne, name=name)
        t.id = name
        t.set_op(op, params, *src)
        if output:
            t.flags |= FLAG_OUTPUT
        return t

    def view(
        self, name: str, of: Tensor, *ne: int, offset: int = 0, op: Op = Op.VIEW, src: Sequence[Tensor | None] = ()
    ) -> Tensor:
        """A view of `of` (of all of it without `ne`), by default a VIEW node."""
        t = self.ctx.new_tensor(of.type, ne or of.ne, of, offset, name=name)
        t.id = name
        t.set_op(op, (), *(src or (of,)))
        return t

    def graph(self, *outputs: Tensor, size: int = 2048) -> CGraph:
        graph = CGraph(size, self.ctx.indices.top)
        for t in outputs:
            graph.build_forward_expand(t)
        return graph

    @property
    def n_tensors(self) -> int:
        return self.ctx.indices.top
