"""All of a program's memory at a point, as far as ggml's structs are known."""

from __future__ import annotations

import struct
from functools import cache

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.contents import Contents
from ggmltool.debugger.expressions.image.contexts import Contexts
from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.galloc import Galloc
from ggmltool.debugger.expressions.image.graphs import Graphs
from ggmltool.debugger.expressions.image.old import OldGalloc, OldSched
from ggmltool.debugger.expressions.image.parts import Parts
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.image.sched import Sched
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import NOT_KNOWN, Memory, Read, made_once
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout

_HALVES = 1 << 16
TABLE_NAMES = ("ggml_table_f32_f16", "table_f32_f16")
"""What the table of float16 values is called: now, and in ggml until October 2023."""


class Image:
    """The program in a state, in the structs of `layout`; `computed` reads what was computed by its address.

    `there`: the scheduler was made; before that there is nothing to see but the program's devices and contexts.
    """

    def __init__(self, program: Program, cells: AnyCells, layout: Layout, computed: Read) -> None:
        self.program = program
        self.cells = cells
        self.layout = layout
        self.there = ("sched", "n_splits") in cells
        self.memory = memory = Memory()
        self.tensors = tensors = Tensors(program, cells, layout, memory)
        self.devices = Devices(program, cells, layout, memory)
        self.graphs = Graphs(program, cells, layout, tensors, memory)
        self.contexts = Contexts(program, layout, self.graphs, memory)
        tensors.buffer_of = self.devices.by_base()
        tensors.gpus = self.devices.gpu_bases()
        self.galloc: Galloc | OldGalloc
        self.sched: Sched | OldSched
        parts = Parts(program, cells, layout, tensors, self.devices, self.graphs, memory)
        if program.release.reserves:
            self.galloc = Galloc(program, cells, layout, tensors, self.devices, memory)
            self.sched = Sched(parts)
        else:
            self.galloc = OldGalloc(program, cells, layout, tensors, memory)
            self.sched = OldSched(parts)
        Contents(program, tensors, self.devices, memory, computed)
        memory.add(addresses.TABLES, 4 * _HALVES, made_once(_halves), TABLE_NAMES[0])
        memory.add(addresses.UNKNOWN, 0, lambda offset, n: b"", NOT_KNOWN)
        memory.add(addresses.STRINGS, addresses.STRINGS_ROOM, program.strings)


@cache
def _halves() -> bytes:
    """The table with a float for each of the 65536 half-precision numbers."""
    halves = struct.unpack(f"<{_HALVES}e", b"".join(i.to_bytes(2, "little") for i in range(_HALVES)))
    return struct.pack(f"<{_HALVES}f", *halves)
