"""What expressions stand on: a point of a history with the program's memory, and the selected frame."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.image import Image
from ggmltool.debugger.expressions.image.images import Images
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.debugger.expressions.values import CValue, field_of, whole
from ggmltool.ggml.state import TensorState
from ggmltool.state.story.frames import Frame
from ggmltool.state.story.history import History
from ggmltool.structs.declarations import Cursor, read_type
from ggmltool.structs.layout import Layout, layout
from ggmltool.structs.types import CType, Language, Pointer, Struct, bare


class Ground:
    """A point `at` of a history and the selected `frame` of its stack (0 is the innermost). `phase` is the moment of
    the point, as History.seen has it.

    `structs` names the ggml whose structs are shown, None for those of the release that decides. Scopes that share
    `images`, whose structs are shown then, are quickly made; a value of one holds until another one is asked.
    """

    def __init__(
        self,
        history: History,
        at: int,
        frame: int = 0,
        structs: str | None = None,
        images: Images | None = None,
        phase: int = 0,
    ) -> None:
        self.history = history
        self.at = at
        self.phase = phase
        self.frame = frame
        self.layout: Layout = images.layout if images is not None else layout(structs or history.release)
        self._images = Images(history, self.layout) if images is None else images
        self.written: list[str] = []
        """What functions that were called have printed, as the program's own output."""

    @property
    def image(self) -> Image:
        """The program's memory."""
        return self._images.at(self.at, self.phase)

    @property
    def memory(self) -> Memory:
        """The program's memory, by addresses."""
        return self.image.memory

    @cached_property
    def selected(self) -> Frame | None:
        """The selected frame, None if there is none."""
        return self.history.frame(self.at, self.frame, self.phase < 0)

    @property
    def entered(self) -> bool:
        """Whether the function of the selected frame has just been entered: its variables have no values."""
        return self.phase < 0 and self.frame == -self.phase - 1

    @property
    def event(self) -> Any:
        """What was announced at the point."""
        return self.history.points[self.at].event

    @property
    def function(self) -> str:
        """The function of the selected frame, "" if there is no such frame."""
        return "" if self.selected is None else self.selected.function

    @cached_property
    def language(self) -> Language:
        """What the source of the selected frame's function is written in."""
        return "c++" if self.layout.cxx and self.function.startswith(self.layout.cxx) else "c"

    @cached_property
    def labels(self) -> Mapping[str, int]:
        """The tensors by what events call them; of several with one id those of the graph that the step is about."""
        return self.history.labels(self.at)

    def cell(self, label: str) -> TensorState | None:
        """The tensor that an event calls so."""
        index = self.labels.get(label)
        return None if index is None else self.image.tensors.cell(index)

    def place(self, thing: str) -> int:
        """Where a thing of the scheduler or the allocator lies."""
        return addresses.HEAP[thing]

    def of(self, type: CType, number: int) -> CValue:
        """A number or an address as a value of a type."""
        return whole(self.memory, type, number, self.language)

    def typed(self, declared: str, number: int) -> CValue:
        """The same of a type that is declared in C."""
        return self.of(_type(declared, self.layout), number)

    def field(self, value: CValue, name: str) -> CValue:
        """A field of a struct, or of what a pointer points to. Raises ExpressionError."""
        return field_of(value, name)

    def optional(self, value: CValue, name: str) -> CValue | None:
        """A field that not every ggml's struct has."""
        t = value.bare
        t = bare(t.to) if isinstance(t, Pointer) else t
        if isinstance(t, Struct) and name in (t.members or {}):
            return self.field(value, name)
        return None


@lru_cache(1024)
def _type(declared: str, layout: Layout) -> CType:
    return read_type(Cursor(declared), layout)
