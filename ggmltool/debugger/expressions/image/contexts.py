"""struct ggml_context of the contexts, graphs and the scheduler, each over its arena."""

from __future__ import annotations

from typing import Any

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.graphs import Graphs
from ggmltool.debugger.expressions.image.packing import pack, records
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.ggml.version import MEM_ALIGN, pad
from ggmltool.structs.layout import Layout

_STEP = 0x80


class Contexts:
    """The contexts of the program, by the numbers of their arenas."""

    def __init__(self, program: Program, layout: Layout, graphs: Graphs, memory: Memory) -> None:
        self._program = program
        self._layout = layout
        self._graphs = graphs
        n = len(program.arena_sizes)
        memory.add(addresses.HEAP["contexts"], n * _STEP, records(_STEP, self._bytes))

    def address(self, number: int) -> int:
        """Where the struct of a context lies."""
        return addresses.HEAP["contexts"] + number * _STEP

    def pool(self, number: int) -> int:
        """Where the arena of a context begins: ctx->mem_buffer."""
        return addresses.arena(number)

    def _bytes(self, number: int) -> bytes:
        return pack(self._layout.structs["ggml_context"], self._fields(number))

    def _fields(self, number: int) -> dict[str, Any]:
        program = self._program
        step = addresses.OBJECT + pad(self._layout.structs["ggml_tensor"].size, MEM_ALIGN)
        n = program.arena_sizes[number]
        size, last = n * step, (n - 1) * step
        if len(program.contexts) <= number < program.sched_arena:
            last, n = n * step, n + 1
            size += addresses.OBJECT + self._graphs.nbytes
        pool = self.pool(number)
        return {
            "mem_size": size,
            "mem_buffer": pool,
            "mem_buffer_owned": number != program.sched_arena,
            "no_alloc": 1,
            "n_objects": n,
            "objects_begin": pool if n else 0,
            "objects_end": pool + last if n else 0,
        }
