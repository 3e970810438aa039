"""Tables of the state at a point: splits, tensors, copies, hash table, free blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.ggml.state import HashNodeState, SplitState, TensorState
from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Column, Shown, Style, Table
from ggmltool.show.text import dims, shortened, size
from ggmltool.state.story.points import ENDLESS

_NAMES = 6

Cells = Mapping[Any, Any]


class Names(NamedTuple):
    """What backends, their buffers and tensors are called at a point."""

    backends: Sequence[str]
    bufts: Sequence[str]
    tensors: Mapping[int, TensorState]

    @classmethod
    def of(cls, cells: Cells, backends: Sequence[str], bufts: Sequence[str]) -> Names:
        """Those of a state."""
        return cls(backends, bufts, {key[1]: cell for key, cell in cells.items() if key[0] == "tensor"})

    def tensor(self, index: int | None) -> str:
        """A tensor by its index, as events call it."""
        cell = self.tensors.get(-1 if index is None else index)
        return f"tensor {index}" if cell is None else cell.label

    def backend(self, number: int) -> Shown:
        """A backend by its number, in its color."""
        if not 0 <= number < len(self.backends):
            return Cell("none", "dim")
        name = self.backends[number]
        return Cell(name, colors(self.backends)[name].term)

    def buft(self, number: int) -> str:
        """A buffer of the allocator by its number."""
        name = self.bufts[number] if 0 <= number < len(self.bufts) else "?"
        return f"{number} {name}"


def splits_table(cells: Cells, names: Names, nodes: Sequence[int], style: Style) -> str:
    """The splits of a graph of these nodes, as far as they are made; "" if there are none."""
    rows = sorted((key[1], cell) for key, cell in cells.items() if key[0] == "split")

    def in_split(split: SplitState) -> Sequence[int]:
        return nodes[split.i_start : max(split.i_end, split.i_start)]

    table = Table[tuple[int, SplitState]](
        Column("split", lambda r: r[0], right=True),
        Column("backend", lambda r: names.backend(r[1].backend_id)),
        Column("i_start", lambda r: r[1].i_start, right=True),
        Column("i_end", lambda r: r[1].i_end, right=True),
        Column("inputs", lambda r: shortened([names.tensor(t) for t in r[1].inputs], _NAMES), cut=True),
        Column("nodes", lambda r: shortened(list(map(names.tensor, in_split(r[1]))), _NAMES), cut=True, drop=2),
    )
    return table.render(rows, style) if rows else ""


def tensors_table(cells: Cells, names: Names, wanted: str, style: Style) -> str:
    """The tensors whose names contain a text; "" if there are none."""
    rows = sorted((t, cell) for t, cell in names.tensors.items() if wanted in cell.label)
    table = Table[tuple[int, TensorState]](
        Column("tensor", lambda r: names.tensor(r[0]), cut=True),
        Column("op", lambda r: r[1].op),
        Column("shape", lambda r: f"{r[1].type}{dims(r[1].ne)}"),
        Column("backend", lambda r: names.backend(cells.get(("id", r[0]), -1))),
        Column("cause", lambda r: cells.get(("cause", r[0]), ""), drop=2),
        Column("memory", lambda r: _memory(r[0], r[1], cells, names), cut=True),
        Column("data", lambda r: f"{r[1].data:#x}" if r[1].data else Cell("0x0", "dim"), right=True, drop=1),
    )
    return table.render(rows, style) if rows else ""


def _memory(t: int, cell: TensorState, cells: Cells, names: Names) -> Shown:
    node: HashNodeState | None = cells.get(("hash_node", t))
    if cell.view_src is not None:
        return f"view of {names.tensor(cell.view_src)} + {cell.view_offs}"
    if node is not None and node.allocated:
        return f"{names.buft(node.buffer_id)} chunk {node.chunk} {node.offset:#x}"
    return Cell("–", "dim")


def copies_table(cells: Cells, names: Names, _: str, style: Style) -> str:
    """The copies that the scheduler made of tensors; "" if there are none."""
    rows = sorted(
        (key[1], backend, copies)
        for key, of in cells.items()
        if key[0] == "copies" and of is not None
        for backend, copies in enumerate(of)
        if copies
    )
    table = Table[tuple[int, int, tuple[int, ...]]](
        Column("tensor", lambda r: names.tensor(r[0]), cut=True),
        Column("backend", lambda r: names.backend(r[1])),
        Column("copies", lambda r: ", ".join(names.tensor(copy) for copy in r[2]), cut=True),
    )
    return table.render(rows, style) if rows else ""


def hash_table(cells: Cells, names: Names, _: str, style: Style) -> str:
    """What the allocator knows of every tensor; "" if it knows of none."""
    rows = sorted((key[1], node) for key, node in cells.items() if key[0] == "hash_node")
    table = Table[tuple[int, HashNodeState]](
        Column("tensor", lambda r: names.tensor(r[0]), cut=True),
        Column("n_children", lambda r: r[1].n_children, right=True),
        Column("n_views", lambda r: r[1].n_views, right=True),
        Column("buffer", lambda r: names.buft(r[1].buffer_id), cut=True),
        Column("chunk", lambda r: r[1].chunk, right=True, drop=3),
        Column("offset", lambda r: r[1].offset, right=True),
        Column("allocated", lambda r: "true" if r[1].allocated else Cell("false", "dim")),
    )
    return table.render(rows, style) if rows else ""


class _Free(NamedTuple):
    buffer: int
    chunk: int
    number: int
    offset: int
    size: int


def free_table(cells: Cells, names: Names, wanted: str, style: Style) -> str:
    """The free blocks of the allocator, of buffers whose names contain a text; "" if there are none."""
    rows = [
        _Free(b, c, number, offset, size)
        for (_, b, c), blocks in sorted((key, blocks) for key, blocks in cells.items() if key[0] == "free")
        for number, (offset, size) in enumerate(blocks)
        if wanted in names.buft(b)
    ]
    table = Table[_Free](
        Column("buffer", lambda r: names.buft(r.buffer), cut=True),
        Column("chunk", lambda r: r.chunk, right=True),
        Column("block", lambda r: r.number, right=True),
        Column("offset", lambda r: f"{r.offset:#x}", right=True),
        Column("size", lambda r: r.size, right=True),
        Column("", lambda r: Cell("the rest", "dim") if r.size >= ENDLESS else size(r.size), drop=1),
        Column("max_size", lambda r: cells.get(("max_size", r.buffer, r.chunk)), right=True, drop=2),
    )
    return table.render(rows, style) if rows else ""
