"""The arenas of contexts, graphs and the scheduler: objects, tensors, and where each of them lies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.packing import pack, records
from ggmltool.debugger.expressions.image.program import Home, Program
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.ggml.op import Op
from ggmltool.ggml.state import TensorState
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM
from ggmltool.ggml.version import MEM_ALIGN, pad
from ggmltool.scenario.tensor_info import EXTRAS, EXTRAS_STEP
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout

_GPU = 10
"""GGML_BACKEND_GPU."""


class Tensors:
    """The tensors of a point: their addresses by index, and their structs as bytes in `memory`.

    `buffer_of` is where the struct of a buffer lies, by the address of its bytes; `gpus` are the bytes of buffers that
    make a tensor one of GGML_BACKEND_GPU.
    """

    def __init__(self, program: Program, cells: AnyCells, layout: Layout, memory: Memory) -> None:
        self._program = program
        self._cells = cells
        self._layout = layout
        self._struct = layout.structs["ggml_tensor"]
        self._step = addresses.OBJECT + pad(self._struct.size, MEM_ALIGN)
        self._address: dict[int, int] = {}
        self._index: dict[int, int] = {}
        self._all_known = False
        self._all: list[tuple[int, TensorState]] | None = None
        self._named: dict[str, int] | None = None
        self._builds: dict[int, int] | None = None
        self.buffer_of: Mapping[int, int] = {}
        self.gpus: frozenset[int] = frozenset()
        self._add_arenas(memory)

    def cell(self, index: int) -> TensorState | None:
        """A tensor as it is, None if there is none of this index."""
        found: TensorState | None = self._cells.get(("tensor", index))
        return found

    def all(self) -> list[tuple[int, TensorState]]:
        """All tensors, by index."""
        if self._all is None:
            self._all = sorted((key[1], cell) for key, cell in self._cells.items() if key[0] == "tensor")  # type: ignore[misc]
        return self._all

    def named(self, name: str) -> int | None:
        """The first tensor of a name."""
        if self._named is None:
            self._named = {cell.name: index for index, cell in reversed(self.all())}
        return self._named.get(name)

    def address(self, index: int | None) -> int:
        """Where the struct of a tensor lies; 0 for None."""
        if index is None:
            return 0
        if index not in self._address:
            self._address[index] = at = self.place(index)
            # Another graph's build may have a tensor in the same place: the newer one lies there.
            self._index[at] = max(index, self._index.get(at, index))
        return self._address[index]

    def index(self, address: int) -> int | None:
        """The tensor whose struct begins at an address."""
        if address not in self._index and not self._all_known:
            self._all_known = True
            for index, _ in self.all():
                self.address(index)
        return self._index.get(address)

    def place(self, index: int) -> int:
        """The same of a tensor that may be gone, with another one in its place."""
        cell = self.cell(index)
        program = self._program
        build = self._build_of(index)
        home = program.homes[program.graphs[build]].get(cell.id) if cell is not None and cell.id else None
        if home is None:
            return self._at(Home(program.sched_arena, index), 0)
        return self._at(home, build if home.arena in program.fresh else 0)

    def _at(self, home: Home, build: int) -> int:
        return addresses.arena(home.arena, build) + addresses.OBJECT + home.place * self._step

    def _build_of(self, index: int) -> int:
        """The number of the graph whose newest build a tensor is of; 0 for what all share."""
        graphs = self._program.graphs
        if len(graphs) == 1:
            return 0
        if self._builds is None:
            self._builds = {}
            for g, graph in enumerate(graphs):
                for part in ("nodes", "leafs"):
                    for t in self._cells.get(("cgraph", graph, part), ()):
                        self._builds.setdefault(t, g)
        return self._builds.get(index, 0)

    def _add_arenas(self, memory: Memory) -> None:
        program = self._program
        for number, n in enumerate(program.arena_sizes):
            builds = range(len(program.graphs)) if number in program.fresh else range(1)
            for build in builds:
                base = addresses.arena(number, build)
                size = n * self._step if number < program.sched_arena else addresses.REBUILT
                if size:
                    memory.add(base, size, records(self._step, partial(self._object, base, n)))

    def _object(self, base: int, n: int, place: int) -> bytes:
        """Object `place` of an arena with room for `n` (0: as many as are made): its header, and the tensor."""
        offset = place * self._step + addresses.OBJECT
        index = self.index(base + offset)
        if index is None and not n:
            return b""
        header = {"offs": offset, "size": self._step - addresses.OBJECT, "next": 0}
        if place + 1 < n:
            header["next"] = base + (place + 1) * self._step
        return pack(self._layout.structs["ggml_object"], header) + self.bytes(index)

    def bytes(self, index: int | None) -> bytes:
        """The struct of a tensor; zeros where there is none yet."""
        cell = self.cell(index) if index is not None else None
        if index is None or cell is None:
            return bytes(self._struct.size)
        return pack(self._struct, self._fields(index, cell))

    def _fields(self, index: int, cell: TensorState) -> dict[str, Any]:
        release = self._program.release
        constants = self._layout.constants
        gpu = cell.buffer in self.gpus if cell.buffer is not None else False
        dims = next((d for d in (4, 3, 2) if cell.ne[d - 1] > 1), 1)
        return {
            "type": constants[f"GGML_TYPE_{cell.type.upper()}"][1],
            "backend": _GPU if gpu and release.gpu_families else 0,
            "buffer": 0 if cell.buffer is None else self.buffer_of.get(cell.buffer, 0),
            "n_dims": dims,
            "ne": cell.ne,
            "nb": cell.nb,
            "op": constants.get(f"GGML_OP_{cell.op}", (None, Op[cell.op]))[1],
            "op_params": cell.op_params,
            "flags": cell.flags if release.compute_flag else cell.flags & ~FLAG_COMPUTE,
            "is_param": bool(cell.flags & FLAG_PARAM),
            "src": [self.address(s) for s in cell.src],
            "view_src": self.address(cell.view_src),
            "view_offs": cell.view_offs,
            "data": cell.data,
            "name": cell.name.encode("utf-8", "surrogateescape")[:63],
            "extra": EXTRAS + index * EXTRAS_STEP if gpu and release.gpu_families else 0,
        }
