"""How much of a cache a batch looks at: a graph is built for a whole context, of which a part may be filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, root_of

CELLS = 256
"""llama.cpp shows attention so many cells of a cache more at a time (llama_kv_cache::get_n_kv)."""

_KEEPS = (Op.SOFT_MAX, Op.SCALE, Op.ADD, Op.CPY, Op.CONT, Op.UNARY, Op.MUL, Op.DUP)
"""What becomes of scores and masks before they are used: one number for each cell still."""


class Share(NamedTuple):
    """Shares of the cells that a graph was built for: those that are `read`, and those that are `seen`, on average over
    the tokens of the batch, which do not look at what comes behind them."""

    read: float
    seen: float


WHOLE = Share(1.0, 1.0)


class Cells:
    """The shares of caches, masks and scores in a graph, when the caches hold `cached` tokens before this batch.

    Caches are leafs that the graph writes rows of. With `cached` None they are as full as the graph was built for.
    """

    def __init__(self, nodes: Sequence[Tensor], cached: int | None) -> None:
        self.cached = cached
        self._written = {id(root_of(n)) for n in nodes if n.op in (Op.SET_ROWS, Op.CPY)}
        self._shares: dict[int, Share] = {}
        self._scores: set[int] = set()
        if cached is not None:
            for n in nodes:
                self._look(n)

    def of(self, t: Tensor | None) -> Share:
        """The share of a tensor that is looked at."""
        return WHOLE if t is None else self._shares.get(id(t), WHOLE)

    def is_cache(self, t: Tensor) -> bool:
        """Whether a tensor is a cache or a part of one."""
        root = root_of(t)
        return root.op == Op.NONE and id(root) in self._written

    def _look(self, n: Tensor) -> None:
        src = [s for s in n.src if s is not None]
        if n.op == Op.FLASH_ATTN_EXT:
            self._note(self._share(src[1].ne[1], src[0].ne[1]), *src[1:4])
        elif n.op == Op.MUL_MAT and self.is_cache(src[0]):
            if id(root_of(src[1])) in self._scores:
                self._note(self.of(src[1]), src[0])
            else:
                share = self._share(src[0].ne[1], src[1].ne[1])
                self._note(share, src[0], n)
                self._scores.add(id(n))
        elif n.op in _KEEPS and src and id(root_of(src[0])) in self._scores:
            share = self.of(src[0])
            self._note(share, n, *([src[1]] if n.op == Op.SOFT_MAX and len(src) > 1 else []))
            self._scores.add(id(root_of(n)))

    def _note(self, share: Share, *tensors: Tensor) -> None:
        for t in tensors:
            for made_of in _history(t):
                if id(made_of) not in self._written:
                    self._shares[id(made_of)] = share

    def _share(self, cells: int, n_tokens: int) -> Share:
        """The shares of a cache that is shown with so many cells to a batch of so many tokens."""
        if self.cached is None or cells <= 0:
            return WHOLE
        shown = min(cells, -(-(self.cached + n_tokens) // CELLS) * CELLS)
        return Share(shown / cells, min(shown, self.cached + (n_tokens + 1) / 2) / cells)


def _history(t: Tensor) -> Iterator[Tensor]:
    """A mask, cache or score with what it is a view or a cast of."""
    yield t
    while t.op in (Op.VIEW, Op.PERMUTE, Op.RESHAPE, Op.TRANSPOSE, Op.CPY, Op.CONT) and t.src and t.src[0] is not None:
        t = t.src[0]
        yield t
