"""The arguments of the functions on the stack of a point: values of ggml's parameters, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ggmltool.ggml import events

if TYPE_CHECKING:
    from ggmltool.state.story.points import AnyHistory


@dataclass(frozen=True, slots=True)
class ArgumentPointer:
    """What an argument points to: number `index` of a kind of things, or the one that is called so.

    Of kind "tensor", "backend", "device", "split", "split_graph" (the graph of a split), "tallocr" and "node_alloc" it
    is the number, "event" are those of the backend with this number. "graph" is one of the scenario, "buft" a buffer
    type. "data" is memory for a tensor: an address, or the program's own by the tensor's name. "id" is the place of the
    backend of a tensor with this index, "buffer" the buffer of such a tensor. There is one "sched", "galloc",
    "sched_graph" (the scheduler's own), "node_ids", "leaf_ids", "tallocrs", "hash_set" and "optimize_params".
    """

    kind: str
    index: int | str = 0


class Address(NamedTuple):
    """A place in a buffer: struct buffer_address."""

    chunk: int
    offset: int

    def __str__(self) -> str:
        return f"{{chunk = {self.chunk}, offset = {self.offset}}}"


Argument = ArgumentPointer | Address | int | str

_ONE: Mapping[str, Argument] = {
    "sched": ArgumentPointer("sched"),
    "galloc": ArgumentPointer("galloc"),
    "gf": ArgumentPointer("sched_graph"),
    "node_buffer_ids": ArgumentPointer("node_ids"),
    "leaf_buffer_ids": ArgumentPointer("leaf_ids"),
    "hash_set": ArgumentPointer("hash_set"),
    "hash_node_talloc": ArgumentPointer("tallocrs"),
    "params": ArgumentPointer("optimize_params"),
    "no_alloc": 0,
    "usage": "GGML_BACKEND_BUFFER_USAGE_COMPUTE",
}
_TENSORS = ("tensor", "node", "op", "src", "dst", "parent", "input")
_BY_WEIGHT = "1.wgt"


class Arguments:
    """The arguments at point `at` of a history; `entered`: as they were passed."""

    def __init__(self, history: AnyHistory, at: int, entered: bool = False) -> None:
        self.history = history
        self.at = at
        self.entered = entered
        self.event: Any = history.points[at].event

    @property
    def _cells(self) -> Any:
        return self.history.state(self.at)

    @cached_property
    def _indices(self) -> Mapping[str, int]:
        return self.history.labels(self.at)

    @property
    def _graph(self) -> str:
        return self.history.graph(self.at)

    def of(self, function: str, parameter: str) -> Argument:
        """The value of a parameter of a function that is on the stack."""
        if parameter in _ONE:
            return _ONE[parameter]
        if parameter in _TENSORS:
            return self._tensor(self._label(function, parameter))
        match parameter:
            case "graph" | "cgraph" | "measure_graph":
                return self._of_graph(function)
            case "backend" | "device" | "dev" | "backend_src" | "backend_dst" | "event":
                kind = {"dev": "device", "device": "device", "event": "event"}.get(parameter, "backend")
                return ArgumentPointer(kind, self._backend(parameter))
            case "buffer":
                return ArgumentPointer("buffer", self._tensor(self._label(function, "tensor")).index)
            case "buft":
                return ArgumentPointer("buft", self._buft())
            case "alloc" | "talloc":
                return self._allocator(function)
            case "split":
                return ArgumentPointer("split", self._split())
            case "cur_backend_id":
                return self._backend("backend")
            case "node_backend_id":
                return ArgumentPointer("id", self._tensor(self.event.tensor).index)
            case "buffer_id":
                return self._buffer_id()
            case "addr":
                return Address(self.event.chunk, self.event.offset)
            case "data":
                return self._data()
        return self._number(parameter)

    def _tensor(self, label: str) -> ArgumentPointer:
        return ArgumentPointer("tensor", self._indices.get(label, label))

    def _cell(self, label: str) -> Any:
        return self._cells.get(("tensor", self._indices.get(label, -1)))

    def _label(self, function: str, parameter: str) -> str:
        """What events call the tensor that a parameter is."""
        event = self.event
        of_event: str = getattr(event, "tensor", "")
        match event:
            case events.TensorCopied(src, dst):
                return dst if parameter == "dst" or "set_tensor" in function or "tensor_set" in function else src
            case events.Freed(extra=True) if parameter == "node":
                return str(self._before(events.Reused).tensor)
            case events.Assigned() | events.PassedOver() if parameter == "tensor" and function.endswith("_from_buffer"):
                return self._asked_of()
        if parameter == "input":
            points = self.history.points
            following = (points[i].event for i in range(self.at, len(points)))
            return next((e.src for e in following if isinstance(e, events.TensorCopied)), "")
        return of_event or getattr(event, "node", "")

    def _asked_of(self) -> str:
        """Whose memory decides: a weight, in January 2024 also the root of a view."""
        cell, cause = self._cell(self.event.tensor), self.event.cause
        if cell is None:
            return str(self.event.tensor)
        at = cell.view_src if cause == "1.vsrc" else None
        if cause.startswith(_BY_WEIGHT):
            at = cell.src[int(cause[len(_BY_WEIGHT) :])]
        other = self._cells.get(("tensor", at))
        return str(self.event.tensor if other is None else other.label)

    def _before(self, kind: type) -> Any:
        """The last event of this kind in the step; None if there is none."""
        points = self.history.points
        for i in range(self.at, -1, -1):
            event = points[i].event
            if event is None:
                return None
            if isinstance(event, kind):
                return event
        return None

    def _of_graph(self, function: str) -> ArgumentPointer:
        if function.startswith(("ggml_gallocr", "ggml_tallocr")):
            return ArgumentPointer("sched_graph")
        if "optimize" in function or "." in function or isinstance(self.event, events.Computed):
            in_split = function.startswith(("ggml_backend_i.", "ggml_backend_graph_"))
            return ArgumentPointer("split_graph", self._split()) if in_split else ArgumentPointer("graph", self._graph)
        return ArgumentPointer("graph", self._graph)

    def _split(self) -> int:
        """The split that is being made, put into order, copied to or computed."""
        match self.event:
            case events.Computed(split):
                return split
            case events.Reordered(_, at):
                return self._split_with(at)
            case events.KeptUntil():
                nodes = self._cells.get(("cgraph", self._graph, "nodes"), ())
                node = self._indices.get(self.event.until, -1)
                return self._split_with(nodes.index(node)) if node in nodes else 0
        if any(function.endswith("sched_compute_splits") for function in self.history.entered[self.at]):
            last = self._before(events.Computed)
            return 0 if last is None else int(last.split) + 1
        last = self._before(events.SplitStarted)
        return 0 if last is None else int(last.split)

    def _split_with(self, node: int) -> int:
        """The split that a node is in, by its number in the graph."""
        splits = [(key[1], cell) for key, cell in self._cells.items() if key[0] == "split"]
        return next((i for i, cell in splits if cell.i_start <= node < cell.i_end), 0)

    def _backend(self, parameter: str) -> int:
        event = self.event
        if isinstance(event, events.TensorCopied):
            source = parameter == "backend_src"
            split = self._cells.get(("split", self._split()))
            at = self._cells.get(("id", self._indices.get(event.src, -1)), -1) if source else None
            return at if at is not None else (-1 if split is None else split.backend_id)
        name = getattr(event, "backend", "")
        return next((i for i, backend in enumerate(self.history.backends) if backend.name == name), -1)

    def _buft(self) -> str:
        facts = getattr(self.event, "facts", None)
        return getattr(self.event, "buft", None) or (facts.buft if facts is not None else None) or ""

    def _allocator(self, function: str) -> Argument:
        if "needs_realloc" in function:
            nodes = self._cells.get(("sched_graph", "nodes"), ())
            node = self._indices.get(self.event.node, -1)
            return ArgumentPointer("node_alloc", nodes.index(node) if node in nodes else -1)
        named = self._buft()
        bufts = ((b.memory, b.buft) for b in self.history.backends)
        return ArgumentPointer("tallocr", next((i for i, both in enumerate(bufts) if named in both), -1))

    def _buffer_id(self) -> int:
        started = self._before(events.AllocationStarted)
        ids = ("node_ids", started.at) if started is not None and started.at >= 0 else None
        if ids in self._cells:
            return int(self._cells[ids])
        hash_node = self._cells.get(("hash_node", self._indices.get(self.event.tensor, -1)))
        return -1 if hash_node is None else hash_node.buffer_id

    def _data(self) -> Argument:
        event = self.event
        if isinstance(event, events.TensorCopied):
            cell = self._cell(event.src if event.how == "set" else event.dst)
            return ArgumentPointer("data", "" if cell is None else int(cell.data))
        return ArgumentPointer("data", getattr(event, "tensor", ""))

    def _number(self, parameter: str) -> int:
        event = self.event
        if parameter == "size":
            for name in ("asked", "size", "nbytes", "new_size") if self.entered else ("size", "nbytes", "new_size"):
                if getattr(event, name, 0):
                    return int(getattr(event, name))
        return int(getattr(event, parameter, 0))
