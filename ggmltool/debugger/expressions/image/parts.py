"""What the image of a scheduler is made with."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.graphs import Graphs
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout


class Parts(NamedTuple):
    """The program and its state at a point, the structs, what lies in memory already, and that memory."""

    program: Program
    cells: AnyCells
    layout: Layout
    tensors: Tensors
    devices: Devices
    graphs: Graphs
    memory: Memory
