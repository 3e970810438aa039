"""Where an expression is evaluated: a point of a history, a frame of its stack, and the values that were printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ggmltool.debugger.expressions import arithmetic
from ggmltool.debugger.expressions.functions import FUNCTIONS, text_of
from ggmltool.debugger.expressions.ground import Ground
from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.image import TABLE_NAMES
from ggmltool.debugger.expressions.image.images import Images
from ggmltool.debugger.expressions.image.packing import pack
from ggmltool.debugger.expressions.memory import made_once
from ggmltool.debugger.expressions.values import CValue, whole
from ggmltool.ggml.events import AllocationStarted, NotReused, Reused
from ggmltool.state.story.arguments import Address
from ggmltool.state.story.history import History
from ggmltool.structs.declarations import ExpressionError, declaration
from ggmltool.structs.types import CHAR, FLOAT, INT, VOID, Array, Const, CType, Function, Pointer, Struct, bare

Local = tuple[str, int]
"""A variable: its type, as C declares it, and its value as a number or an address."""

_TENSOR = "struct ggml_tensor *"
_NODE = "struct hash_node *"


def locals_of(scope: Ground, function: str) -> Mapping[str, Local]:
    """The variables of the selected frame besides its arguments."""
    if not scope.image.there:
        return {}
    found: dict[str, Local] = {}
    for names, of in _OF.items():
        if function in names:
            found.update(of(scope))
    return found


def _tensor(scope: Ground, label: str) -> int:
    """Where the tensor lies that an event calls so; 0 if there is none."""
    index = scope.labels.get(label)
    return scope.image.tensors.address(index)


def _allocate_node(scope: Ground) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_allocate_node: the node's entry of the table, and the parent whose memory it may take."""
    event = scope.event
    label = getattr(event, "tensor", "")
    node = _tensor(scope, label)
    if not node:
        return
    galloc = scope.image.galloc
    yield "hn", (_NODE, galloc.hash_node(node))
    yield from _where(scope, label)
    if isinstance(event, (Reused, NotReused)):
        parent = _tensor(scope, event.parent)
        yield "parent", (_TENSOR, parent)
        yield "p_hn", (_NODE, galloc.hash_node(parent))
        cell = scope.cell(event.parent)
        if cell is not None and cell.view_src is not None:
            root = scope.image.tensors.address(cell.view_src)
            yield "view_src", (_TENSOR, root)
            yield "view_src_hn", (_NODE, galloc.hash_node(root))


def _where(scope: Ground, label: str) -> Iterator[tuple[str, Local]]:
    """The planner, the buffer type and the size of what was allocated or freed."""
    index = scope.labels.get(label, -1)
    node = scope.image.cells.get(("hash_node", index))
    image = scope.image
    if node is None or not image.program.release.reserves or not 0 <= node.buffer_id < len(image.program.backends):
        return
    b = node.buffer_id
    yield "alloc", ("struct ggml_dyn_tallocr *", image.galloc.tallocr(b))
    yield "buft", ("ggml_backend_buffer_type_t", image.devices.buft(image.program.buft_of[b]))
    yield "buffer_id", ("int", b)
    event = scope.event
    if hasattr(event, "size"):
        yield "size", ("size_t", event.asked or event.size)
    yield "offset", ("size_t", node.offset)


def _alloc_graph_impl(scope: Ground) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_alloc_graph_impl: what it is about, leaf, node or parent."""
    event = scope.event
    cells, address = scope.image.cells, scope.image.tensors.address
    label = getattr(event, "tensor", "") or getattr(event, "node", "")
    index = scope.labels.get(label)
    walked = _walked(scope)
    for name, part in (("leaf", "leafs"), ("node", "nodes")):
        own = cells.get(("sched_graph", part), ())
        if index in own and (walked is None or part == "leafs"):
            yield name, (_TENSOR, address(index))
            yield "i", ("int", own.index(index))
    if walked is not None:
        nodes = cells.get(("sched_graph", "nodes"), ())
        if 0 <= walked < len(nodes):
            yield "node", (_TENSOR, address(nodes[walked]))
            yield "i", ("int", walked)
            yield from _parent(scope, nodes[walked], index)


def _parent(scope: Ground, node: int, index: int | None) -> Iterator[tuple[str, Local]]:
    cell = scope.image.tensors.cell(node)
    if cell is None:
        return
    sources = [s for s in cell.src if s is not None]
    if sources:
        parent = scope.image.tensors.address(index if index in sources else sources[0])
        yield "parent", (_TENSOR, parent)
        yield "p_hn", (_NODE, scope.image.galloc.hash_node(parent))


def _walked(scope: Ground) -> int | None:
    """The node that the allocator walks, None before the first."""
    points = scope.history.points
    for at in range(scope.at, -1, -1):
        event = points[at].event
        if event is None:
            return None
        if isinstance(event, AllocationStarted):
            return event.at if event.at >= 0 else None
    return None


def _free_node(scope: Ground) -> Iterator[tuple[str, Local]]:
    """ggml_gallocr_free_node."""
    label = getattr(scope.event, "tensor", "")
    node = _tensor(scope, label)
    if node:
        yield "hn", (_NODE, scope.image.galloc.hash_node(node))
        yield from _where(scope, label)


def _first_node(scope: Ground) -> Iterator[tuple[str, Local]]:
    """The first round of a loop over the nodes of the scheduler's graph, as ggml_gallocr_reserve_n has one."""
    image = scope.image
    nodes = image.cells.get(("sched_graph", "nodes"), ())
    if not nodes:
        return
    node = image.tensors.address(nodes[0])
    yield "i", ("int", 0)
    yield "node", (_TENSOR, node)
    if image.program.release.reserves and image.cells.get(("galloc", "n_nodes"), 0):
        yield "node_alloc", ("struct node_alloc *", scope.place("node_allocs"))
        yield "hn", (_NODE, image.galloc.hash_node(node))
    cell = image.tensors.cell(nodes[0])
    sources = [s for s in cell.src if s is not None] if cell is not None else []
    if sources:
        yield "src", (_TENSOR, image.tensors.address(sources[0]))
    leafs = image.cells.get(("sched_graph", "leafs"), ())
    if leafs:
        yield "leaf", (_TENSOR, image.tensors.address(leafs[0]))


_OF: Mapping[tuple[str, ...], Callable[[Any], Iterator[tuple[str, Local]]]] = {
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


_HALVES = 1 << 16
_SIZES = frozenset(("size", "offset", "nbytes"))
_TENSOR = "struct ggml_tensor *"
_GRAPH = "struct ggml_cgraph *"
_TYPES = {
    "sched": "ggml_backend_sched_t", "galloc": "ggml_gallocr_t", "tensor": _TENSOR, "backend": "ggml_backend_t",
    "device": "ggml_backend_dev_t", "split": "struct ggml_backend_sched_split *", "split_graph": _GRAPH,
    "graph": _GRAPH, "sched_graph": _GRAPH, "tallocr": "struct ggml_dyn_tallocr *",
    "node_alloc": "struct tensor_alloc *", "event": "ggml_backend_event_t", "buft": "ggml_backend_buffer_type_t",
    "data": "const void *", "node_ids": "const int *", "leaf_ids": "const int *", "id": "int *",
    "buffer": "ggml_backend_buffer_t", "hash_set": "struct ggml_hash_set *", "tallocrs": "ggml_tallocr_t *",
    "optimize_params": "void *",
}  # fmt: skip
"""The type of an argument, by what it points to."""
_PLACES = {
    "sched": "sched", "galloc": "galloc", "node_ids": "node_backend_ids", "leaf_ids": "leaf_backend_ids",
    "tallocrs": "hv_tensor_backend_ids",
}  # fmt: skip
"""Where such things lie, of which there is one."""


class Scope(Ground):
    """The names of a point and a frame.

    `values` are the values of `$1`, `$2` and so on, `variables` the convenience variables by name: scopes may share
    both.
    """

    def __init__(
        self,
        history: History,
        at: int,
        frame: int = 0,
        values: Sequence[CValue] = (),
        variables: dict[str, CValue] | None = None,
        structs: str | None = None,
        images: Images | None = None,
        phase: int = 0,
    ) -> None:
        super().__init__(history, at, frame, structs, images, phase)
        self.values = values
        self.variables = {} if variables is None else variables

    def arguments(self) -> dict[str, CValue]:
        """The arguments of the selected frame, by the names of ggml's parameters."""
        if self.selected is None:
            return {}
        return {name: self._argument(name, value) for name, value in self.selected.arguments}

    def locals(self) -> dict[str, CValue]:
        """The other variables of the selected frame that are known."""
        found = {} if self.entered else locals_of(self, self.function)
        return {name: self.typed(type, number) for name, (type, number) in found.items()}

    def _argument(self, name: str, value: Any) -> CValue:
        if isinstance(value, int):
            return self.of(INT, value) if name not in _SIZES else self.typed("size_t", value)
        if isinstance(value, str):
            constant = self.layout.constants.get(value)
            if constant is not None:
                return self.of(constant[0], constant[1])
            return CValue(Array(CHAR, len(value) + 1), self.memory, own=value.encode() + b"\0", language=self.language)
        if isinstance(value, Address):
            return self.address(value.chunk, value.offset)
        declared = _TYPES.get(value.kind, "void *")
        if value.kind == "tallocr" and "ggml_dyn_tallocr" not in self.layout.structs:
            declared = "ggml_tallocr_t"
        return self.typed(declared, self._target(value.kind, value.index))

    def address(self, chunk: int, offset: int) -> CValue:
        """A struct buffer_address. Raises ExpressionError where the structs that are shown lack it."""
        type = self.layout.struct("buffer_address")
        own = pack(type, {"chunk": chunk, "offset": offset})
        return CValue(type, self.memory, own=own, language=self.language)

    def _target(self, kind: str, index: Any) -> int:
        """Where the thing lies that an argument points to."""
        image = self.image
        match kind:
            case "tensor":
                return image.tensors.address(index if isinstance(index, int) else self.labels.get(index))
            case "backend":
                return int(image.devices.backend(index))
            case "device":
                return image.devices.device(index) if index >= 0 else 0
            case "buft":
                return self._buft(index)
            case "buffer":
                cell = image.tensors.cell(index)
                return 0 if cell is None or cell.buffer is None else image.tensors.buffer_of.get(cell.buffer, 0)
            case "data":
                return index if isinstance(index, int) else self._own_data(index)
        if not image.there:
            return 0
        match kind:
            case "split":
                return image.sched.split(index)
            case "split_graph":
                return image.sched.split_graph(index)
            case "graph":
                return image.graphs.address(str(index)) if index in image.program.graphs else 0
            case "sched_graph":
                return image.sched.own_graph()
            case "tallocr":
                return image.galloc.tallocr(index) if index >= 0 else 0
            case "node_alloc":
                return addresses.HEAP["node_allocs"] + int(index) * self.layout.structs["node_alloc"].size
            case "event":
                return image.sched.event(index)
            case "id":
                return addresses.HEAP["hv_tensor_backend_ids"] + 4 * image.sched.slot(image.tensors.address(index))
            case "hash_set":
                members = self.layout.structs["ggml_backend_sched"].members or {}
                return addresses.HEAP["sched"] + members["hash_set"].offset
        return addresses.HEAP.get(_PLACES.get(kind, ""), 0)

    def _own_data(self, label: str) -> int:
        """Where the program has the bytes that it writes into a tensor, or gets from it."""
        at = self.image.program.own_data.get(label, 0)
        step, model = self.history.points[self.at].step, self.history.scenario.model
        given = dict(model.steps[step].data) if step >= 0 else {}
        spec = next((t for t in model.tensors() if t.id == label), None)
        data = given.get(label, None if spec is None else spec.data)
        if at and spec is not None and data is not None and not getattr(self.event, "get", False):
            whole = made_once(lambda: data.raw(spec.type, spec.ne, spec.nb, model.bounds))
            self.memory.add(at, spec.nb[3] * spec.ne[3], whole)
        return at

    def _buft(self, name: str) -> int:
        for number, buft in enumerate(self.image.program.bufts):
            if buft.name == name:
                return self.image.devices.buft(number)
        return 0

    def name(self, name: str, quoted: bool = False) -> CValue:
        """The value of a name: a variable of the frame, a tensor, a global, a function. Raises ExpressionError."""
        found = None if quoted else self._of_frame(name)
        found = found or self._tensor(name) or self._global(name)
        if found is None:
            raise ExpressionError(f'No symbol "{name}" in current context.')
        return found

    def _of_frame(self, name: str) -> CValue | None:
        for argument, value in () if self.selected is None else self.selected.arguments:
            if argument == name:
                return self._argument(name, value)
        local = locals_of(self, self.function).get(name)
        if local is not None and self.entered:
            raise ExpressionError(f'"{name}" has no value yet where {self.function} is entered; `next` goes on.')
        return None if local is None else self.typed(*local)

    def _tensor(self, name: str) -> CValue | None:
        """The tensor of this id, else the first of this name."""
        if name not in self._images.names:
            return None
        index = self.labels.get(name)
        if index is None:
            index = self.image.tensors.named(name)
        return None if index is None else self.typed(_TENSOR, self.image.tensors.address(index))

    def _global(self, name: str) -> CValue | None:
        image = self.image
        if name in ("sched", "galloc") and image.there:
            return self.typed(_TYPES[name], addresses.HEAP[name])
        if name in ("graph", "cgraph", "gf") and image.there:
            return self.typed(_GRAPH, image.graphs.address(self._newest_graph()))
        if name in image.program.graphs:
            return self.typed(_GRAPH, image.graphs.address(name))
        if name == "ctx" or name in image.program.contexts:
            number = image.program.contexts.index(name) if name != "ctx" else 0
            return self.typed("struct ggml_context *", image.contexts.address(number))
        if name in TABLE_NAMES:
            type = Array(FLOAT, _HALVES)
            return CValue(type, self.memory, addresses.TABLES, language=self.language)
        if name in ("true", "false"):
            return arithmetic.truth_value(name == "true", self.of(INT, 0))
        if name == "NULL":
            return self.of(Pointer(VOID), 0)
        constant = self.layout.constants.get(name)
        if constant is not None:
            return self.of(constant[0], constant[1])
        return self._function(name)

    def _newest_graph(self) -> str:
        return self.image.graphs.newest or self.image.program.graphs[0]

    def _function(self, name: str) -> CValue | None:
        """A function, with where it lies."""
        found = self.image.devices.functions.get(name)
        if found is not None:
            return CValue(found[1], self.memory, found[0], language=self.language)
        known = FUNCTIONS.get(name)
        if known is None:
            return None
        at = addresses.TEXT + list(FUNCTIONS).index(name) * addresses.TEXT_STEP
        self.memory.add(at, addresses.TEXT_STEP, lambda offset, n: b"\xc3" * n, name)
        return CValue(self._signature(known.declaration), self.memory, at, language=self.language)

    def _signature(self, declared: str) -> Function:
        type = declaration(declared, self.layout)[1]
        assert isinstance(type, Function)
        return type

    def call(self, name: str, arguments: list[CValue]) -> CValue:
        """The result of a function of ggml. Raises ExpressionError."""
        if name == "tensor" and len(arguments) == 1:
            return self._called(text_of(arguments[0]).decode("utf-8", "surrogateescape"))
        known = FUNCTIONS.get(name)
        if known is None:
            self.name(name)
            raise ExpressionError("You can't do that without a process to debug.")
        type = self._signature(known.declaration)
        if len(arguments) < len(type.parameters):
            raise ExpressionError("Too few arguments in function call.")
        if len(arguments) > len(type.parameters):
            raise ExpressionError("Too many arguments in function call.")
        given = [_passed(value, parameter) for value, parameter in zip(arguments, type.parameters, strict=True)]
        result = known.answer(self, given)
        if isinstance(result, str):
            return self.of(type.result, self._interned(result))
        return self.of(type.result, result)

    def _called(self, name: str) -> CValue:
        found = self._tensor(name)
        if found is None:
            raise ExpressionError(f'No tensor is called "{name}".')
        return found

    def _interned(self, text: str) -> int:
        """Where a string of the program lies."""
        return addresses.STRINGS + self.image.program.interned(text.encode("utf-8", "surrogateescape") + b"\0")

    def variable(self, text: str) -> CValue:
        """The value of `$`, `$$`, `$3`, `$$3` or `$name`. Raises ExpressionError."""
        name = text.removeprefix("$")
        if name == "" or name[0].isdigit():
            back = 0 if name == "" else len(self.values) - int(name)
        elif name.startswith("$"):
            back = int(name[1:] or 1)
        else:
            return self._kept(self.variables.get(name, CValue(VOID, self.memory)))
        if name and name[0].isdigit() and not 1 <= int(name) <= len(self.values):
            raise ExpressionError(f"History has not yet reached ${name}.")
        if back >= len(self.values):
            return CValue(VOID, self.memory)
        return self._kept(self.values[len(self.values) - 1 - back])

    def _kept(self, value: CValue) -> CValue:
        """A value of before: what it points to is what is there now."""
        return replace(value, memory=self.memory)

    def set_variable(self, text: str, value: CValue) -> bool:
        """`$name = value`; False of what is no convenience variable."""
        name = text.removeprefix("$")
        if not name or name[0].isdigit() or name.startswith("$"):
            return False
        self.variables[name] = value.fetched()
        return True


def _passed(value: CValue, parameter: CType) -> CValue:
    """A value as a function gets it."""
    t = bare(parameter)
    if isinstance(t, Pointer) and isinstance(value.bare, Struct) and bare(t.to) is value.bare:
        # The hash set that some ggml's functions take as it is, and others a pointer to.
        return whole(value.memory, parameter, value.address or 0, value.language)
    if isinstance(t, Pointer) and isinstance(value.bare, Array) and value.address is None:
        return value
    return arithmetic.cast(parameter.to if isinstance(parameter, Const) else parameter, value)
