"""What expressions stand on: a point of a history with the program's memory, and the selected frame with its locals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ggmltool.debugger.expressions.evaluate import EvalScope
from ggmltool.debugger.expressions.image.image import Image, Images
from ggmltool.debugger.expressions.image.program import HEAP
from ggmltool.debugger.expressions.memory import ImageMemory
from ggmltool.ggml.events import AllocationStarted, NotReused, Reused
from ggmltool.ggml.state import TensorState
from ggmltool.state.story.frames import Frame
from ggmltool.state.story.history import History
from ggmltool.structs.layout import layout
from ggmltool.structs.types import Language


class EvalContext(EvalScope):
    """A point `at` of a history and the selected `frame` of its stack (0 is the innermost). `phase` is the moment of
    the point, as History.seen has it. Contexts that share `images`, whose structs are shown then, are quickly made; a
    value of one holds until another one is asked. Without, the structs are those of the release that decides."""

    def __init__(self, history: History, at: int, frame: int = 0, images: Images | None = None, phase: int = 0) -> None:
        self.history = history
        self.at = at
        self.phase = phase
        self.frame = frame
        self._images = Images(history, layout(history.release)) if images is None else images
        self.layout = self._images.layout
        self.release = self.image.program.release
        self.written: list[str] = []
        """What functions that were called have printed, as the program's own output."""

    @property
    def image(self) -> Image:
        """The program's memory."""
        return self._images.at(self.at, self.phase)

    @property
    def memory(self) -> ImageMemory:
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
        return self.image.tensors.cell(self.labels.get(label))


Local = tuple[str, int]
"""A variable: its type, as C declares it, and its value as a number or an address."""

_TENSOR = "struct ggml_tensor *"
_NODE = "struct hash_node *"


def locals_of(context: EvalContext) -> Mapping[str, Local]:
    """The variables of the selected frame besides its arguments."""
    found: dict[str, Local] = {}
    for names, of in _OF.items():
        if context.function in names and context.image.there:
            found.update(of(context))
    return found


def _allocate_node(context: EvalContext) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_allocate_node: the node's entry of the table, and the parent whose memory it may take."""
    event, galloc, tensors = context.event, context.image.galloc, context.image.tensors
    node = tensors.address(context.labels.get(getattr(event, "tensor", "")))
    if not node:
        return
    yield from _free_node(context)
    if isinstance(event, (Reused, NotReused)):
        parent = tensors.address(context.labels.get(event.parent))
        yield "parent", (_TENSOR, parent)
        yield "p_hn", (_NODE, galloc.hash_node(parent))
        cell = context.cell(event.parent)
        if cell is not None and cell.view_src is not None:
            root = tensors.address(cell.view_src)
            yield "view_src", (_TENSOR, root)
            yield "view_src_hn", (_NODE, galloc.hash_node(root))


def _free_node(context: EvalContext) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_free_node: the node's entry, and the planner, the buffer type and the size of what is freed."""
    event, image = context.event, context.image
    index = context.labels.get(getattr(event, "tensor", ""))
    if index is None:
        return
    yield "hn", (_NODE, image.galloc.hash_node(image.tensors.address(index)))
    node = image.cells.get(("hash_node", index))
    if node is None or not context.release.reserves or not 0 <= node.buffer_id < len(image.program.backends):
        return
    b = node.buffer_id
    yield "alloc", ("struct ggml_dyn_tallocr *", image.galloc.tallocr(b))
    yield "buft", ("ggml_backend_buffer_type_t", image.devices.buft(image.program.buft_of[b]))
    yield "buffer_id", ("int", b)
    if hasattr(event, "size"):
        yield "size", ("size_t", event.asked or event.size)
    yield "offset", ("size_t", node.offset)


def _alloc_graph_impl(context: EvalContext) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_alloc_graph_impl: what it is about, leaf, node or parent."""
    event, cells, tensors = context.event, context.image.cells, context.image.tensors
    index = context.labels.get(getattr(event, "tensor", "") or getattr(event, "node", ""))
    walked = _walked(context)
    nodes = cells.get(("sched_graph", "nodes"), ())
    for name, own in (("leaf", cells.get(("sched_graph", "leafs"), ())), ("node", nodes)):
        if index in own and (walked is None or name == "leaf"):
            yield name, (_TENSOR, tensors.address(index))
            yield "i", ("int", own.index(index))
    if walked is not None and 0 <= walked < len(nodes):
        yield "node", (_TENSOR, tensors.address(nodes[walked]))
        yield "i", ("int", walked)
        sources = _sources(context, nodes[walked])
        if sources:
            parent = tensors.address(index if index in sources else sources[0])
            yield "parent", (_TENSOR, parent)
            yield "p_hn", (_NODE, context.image.galloc.hash_node(parent))


def _sources(context: EvalContext, node: int) -> list[int]:
    cell = context.image.tensors.cell(node)
    return [] if cell is None else [s for s in cell.src if s is not None]


def _walked(context: EvalContext) -> int | None:
    """The node that the allocator walks, None before the first."""
    for at in range(context.at, -1, -1):
        event = context.history.points[at].event
        if event is None:
            return None
        if isinstance(event, AllocationStarted):
            return event.at if event.at >= 0 else None
    return None


def _first_node(context: EvalContext) -> Iterator[tuple[str, Local]]:
    """The first round of a loop over the nodes of the scheduler's graph, as ggml_gallocr_reserve_n has one."""
    image = context.image
    nodes = image.cells.get(("sched_graph", "nodes"), ())
    if not nodes:
        return
    node = image.tensors.address(nodes[0])
    yield "i", ("int", 0)
    yield "node", (_TENSOR, node)
    if context.release.reserves and image.cells.get(("galloc", "n_nodes"), 0):
        yield "node_alloc", ("struct node_alloc *", HEAP["node_allocs"])
        yield "hn", (_NODE, image.galloc.hash_node(node))
    for source in _sources(context, nodes[0])[:1]:
        yield "src", (_TENSOR, image.tensors.address(source))
    for leaf in image.cells.get(("sched_graph", "leafs"), ())[:1]:
        yield "leaf", (_TENSOR, image.tensors.address(leaf))


_OF: Mapping[tuple[str, ...], Callable[[EvalContext], Iterator[tuple[str, Local]]]] = {
    ("ggml_gallocr_allocate_node", "ggml_dyn_tallocr_alloc"): _allocate_node,
    ("ggml_gallocr_alloc_graph_impl",): _alloc_graph_impl,
    ("ggml_gallocr_free_node", "ggml_dyn_tallocr_free_tensor", "ggml_dyn_tallocr_free_bytes"): _free_node,
    (
        "ggml_gallocr_reserve_n",
        "ggml_gallocr_reserve_n_impl",
        "ggml_gallocr_reserve",
        "ggml_gallocr_alloc_graph",
        "ggml_gallocr_needs_realloc",
        "ggml_backend_sched_alloc_splits",
        "ggml_backend_sched_split_graph",
    ): _first_node,
}
