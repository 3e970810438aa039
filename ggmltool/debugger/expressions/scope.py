"""Where an expression is evaluated: what names, functions and variables stand for at a point of a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ggmltool.debugger.expressions.context import EvalContext, locals_of
from ggmltool.debugger.expressions.functions import FUNCTIONS, text_of
from ggmltool.debugger.expressions.image.image import HALVES, TABLE_NAMES, Images
from ggmltool.debugger.expressions.image.program import HEAP, TABLES, TEXT, TEXT_STEP
from ggmltool.debugger.expressions.memory import made_once, pack
from ggmltool.debugger.expressions.values import CValue, cast, whole
from ggmltool.state.story.arguments import Address
from ggmltool.state.story.history import History
from ggmltool.structs import types as c
from ggmltool.structs.declarations import ExpressionError, declaration
from ggmltool.structs.layout import Layout

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


class Scope(EvalContext):
    """The names of a point and a frame. Scopes may share `values` and `variables`."""

    def __init__(
        self,
        history: History,
        at: int,
        frame: int = 0,
        values: Sequence[CValue] = (),
        variables: dict[str, CValue] | None = None,
        images: Images | None = None,
        phase: int = 0,
    ) -> None:
        super().__init__(history, at, frame, images, phase)
        self.values = values
        self.variables = {} if variables is None else variables

    def arguments(self) -> dict[str, CValue]:
        """The arguments of the selected frame, by the names of ggml's parameters."""
        arguments = () if self.selected is None else self.selected.arguments
        return {name: self._argument(name, value) for name, value in arguments}

    def locals(self) -> dict[str, CValue]:
        """The other variables of the selected frame that are known."""
        found = {} if self.entered else locals_of(self)
        return {name: self.typed(type, number) for name, (type, number) in found.items()}

    def _argument(self, name: str, value: Any) -> CValue:
        if isinstance(value, int):
            return self.of(c.INT, value) if name not in _SIZES else self.typed("size_t", value)
        if isinstance(value, str):
            constant = self.layout.constants.get(value)
            if constant is not None:
                return self.of(constant[0], constant[1])
            return CValue(
                c.Array(c.CHAR, len(value) + 1), self.memory, own=value.encode() + b"\0", language=self.language
            )
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
                return image.devices.backend(index)
            case "device":
                return image.devices.device(index) if index >= 0 else 0
            case "buft":
                bufts = [buft.name for buft in image.program.bufts]
                return image.devices.buft(bufts.index(index)) if index in bufts else 0
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
                return HEAP["node_allocs"] + int(index) * self.layout.structs["node_alloc"].size
            case "event":
                return image.sched.event(index)
            case "id":
                return HEAP["hv_tensor_backend_ids"] + 4 * image.sched.slot(image.tensors.address(index))
            case "hash_set":
                return HEAP["sched"] + image.sched.offset("ggml_backend_sched", "hash_set")
        return HEAP.get(_PLACES.get(kind, ""), 0)

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
        local = locals_of(self).get(name)
        if local is not None and self.entered:
            raise ExpressionError(f'"{name}" has no value yet where {self.function} is entered; `next` goes on.')
        return None if local is None else self.typed(*local)

    def _tensor(self, name: str) -> CValue | None:
        if name not in self._images.names:
            return None
        index = self.labels.get(name)
        index = self.image.tensors.named.get(name) if index is None else index
        return None if index is None else self.typed(_TENSOR, self.image.tensors.address(index))

    def _global(self, name: str) -> CValue | None:
        image, program = self.image, self.image.program
        if name in ("sched", "galloc") and image.there:
            return self.typed(_TYPES[name], HEAP[name])
        if name in ("graph", "cgraph", "gf") and image.there:
            return self.typed(_GRAPH, image.graphs.address(image.graphs.newest or program.graphs[0]))
        if name in program.graphs:
            return self.typed(_GRAPH, image.graphs.address(name))
        if name == "ctx" or name in program.contexts:
            number = program.contexts.index(name) if name != "ctx" else 0
            return self.typed("struct ggml_context *", image.graphs.context(number))
        if name in TABLE_NAMES:
            return CValue(c.Array(c.FLOAT, HALVES), self.memory, TABLES, language=self.language)
        found = self.constant(name)
        return self._function(name) if found is None else found

    def _function(self, name: str) -> CValue | None:
        found = self.image.devices.functions.get(name)
        if found is not None:
            return CValue(found[1], self.memory, found[0], language=self.language)
        if name not in FUNCTIONS:
            return None
        at = TEXT + list(FUNCTIONS).index(name) * TEXT_STEP
        self.memory.add(at, TEXT_STEP, lambda offset, n: b"\xc3" * n, name)
        return CValue(signature(name, self.layout), self.memory, at, language=self.language)

    def call(self, name: str, arguments: list[CValue]) -> CValue:
        """The result of a function of ggml. Raises ExpressionError."""
        if name == "tensor" and len(arguments) == 1:
            text = text_of(arguments[0]).decode("utf-8", "surrogateescape")
            found = self._tensor(text)
            if found is None:
                raise ExpressionError(f'No tensor is called "{text}".')
            return found
        if name not in FUNCTIONS:
            self.name(name)
            raise ExpressionError("You can't do that without a process to debug.")
        type = signature(name, self.layout, arguments)
        given = [_passed(value, parameter) for value, parameter in zip(arguments, type.parameters, strict=True)]
        result = FUNCTIONS[name].answer(self, given)
        return self.of(type.result, self.image.program.interned(result) if isinstance(result, str) else result)

    def variable(self, text: str) -> CValue:
        """The value of `$`, `$$`, `$3`, `$$3` or `$name`. Raises ExpressionError."""
        name = text.removeprefix("$")
        if name == "" or name[0].isdigit():
            back = 0 if name == "" else len(self.values) - int(name)
        elif name.startswith("$"):
            back = int(name[1:] or 1)
        else:
            return replace(self.variables.get(name, CValue(c.VOID, self.memory)), memory=self.memory)
        if name and name[0].isdigit() and not 1 <= int(name) <= len(self.values):
            raise ExpressionError(f"History has not yet reached ${name}.")
        if back >= len(self.values):
            return CValue(c.VOID, self.memory)
        # What a value of before points to is what is there now.
        return replace(self.values[len(self.values) - 1 - back], memory=self.memory)


def signature(name: str, layout: Layout, arguments: Sequence[CValue] | None = None) -> c.Function:
    """How one of FUNCTIONS is declared. Raises ExpressionError if it does not take so many arguments."""
    type = declaration(FUNCTIONS[name].declaration, layout)[1]
    assert isinstance(type, c.Function)
    if arguments is not None and len(arguments) != len(type.parameters):
        few = "few" if len(arguments) < len(type.parameters) else "many"
        raise ExpressionError(f"Too {few} arguments in function call.")
    return type


def _passed(value: CValue, parameter: c.CType) -> CValue:
    t = c.bare(parameter)
    if isinstance(t, c.Pointer) and isinstance(value.bare, c.Struct) and c.bare(t.to) is value.bare:
        # The hash set that some ggml's functions take as it is, and others a pointer to.
        return whole(value.memory, parameter, value.address or 0, value.language)
    if isinstance(t, c.Pointer) and isinstance(value.bare, c.Array) and value.address is None:
        return value
    return cast(parameter.to if isinstance(parameter, c.Const) else parameter, value)
