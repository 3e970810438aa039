"""ggml's functions that only look: `p ggml_nbytes(node)`, `p *ggml_gallocr_hash_get(galloc, src)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ggmltool.ask.graph.record import GraphTensor, graph_print
from ggmltool.debugger.expressions.context import EvalContext
from ggmltool.debugger.expressions.evaluate import EvalScope
from ggmltool.debugger.expressions.image.program import buffer
from ggmltool.debugger.expressions.printing import zero_ended
from ggmltool.debugger.expressions.values import CValue, field_of, optional_field, whole
from ggmltool.ggml import tensor as rules
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.graph import FULL, hash_of
from ggmltool.ggml.op import Op
from ggmltool.ggml.printable import printable
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, SIZE_MAX, hash_size
from ggmltool.structs.declarations import ExpressionError, NoMemoryError
from ggmltool.structs.types import Array, Pointer

Answer = Callable[[EvalContext, list[CValue]], int | str]


class Known(NamedTuple):
    """A function: how it is declared, and its result of values: a number, an address, or a text."""

    declaration: str
    answer: Answer

    @property
    def name(self) -> str:
        """What it is called."""
        return self.declaration.partition("(")[0].rpartition(" ")[2]


def ggml_hash(scope: EvalScope, values: list[CValue]) -> int:
    """The hash of an address."""
    return hash_of(values[0].integer(), scope.release.hash_shift)


def ggml_hash_find(scope: EvalScope, values: list[CValue]) -> int:
    """The slot of a key in the set of scheduler, allocator or graph, or the free one where it would be."""
    keys, used = field_of(values[0], "keys").integer(), optional_field(values[0], "used")
    taken = None if used is None else used.integer()
    size, address = field_of(values[0], "size").integer(), values[1].integer()
    if size <= 0:
        raise ExpressionError("Division by zero")
    start = slot = ggml_hash(scope, [values[1]]) % size
    while True:
        key = scope.memory.number(keys + 8 * slot)
        is_taken = key != 0 if taken is None else scope.memory.number(taken + 4 * (slot >> 5), 4) >> (slot & 31) & 1
        if not is_taken or key == address:
            return slot
        slot = (slot + 1) % size
        if slot == start:
            return FULL & SIZE_MAX


def ggml_gallocr_hash_get(scope: EvalScope, values: list[CValue]) -> int:
    """The node of a tensor in the allocator's table, to which nothing is added."""
    slot = ggml_hash_find(scope, [field_of(values[0], "hash_set"), values[1]])
    return field_of(values[0], "hash_values").integer() + slot * scope.layout.structs["hash_node"].size


def ggml_gallocr_is_allocated(scope: EvalScope, values: list[CValue]) -> int:
    """Whether a tensor has memory, or the allocator has planned some."""
    if field_of(values[1], "data").integer():
        return 1
    at = ggml_gallocr_hash_get(scope, values)
    allocated = optional_field(whole(scope.memory, Pointer(scope.layout.structs["hash_node"]), at), "allocated")
    return allocated is not None and allocated.truth()


def ggml_op_can_inplace(scope: EvalScope, values: list[CValue]) -> int:
    """Whether an op may be computed in the memory of a source."""
    number = values[0].integer()
    name = next((n for n, v in scope.layout.enums["ggml_op"].members.items() if v == number), "")
    op = name.removeprefix("GGML_OP_")
    return op in Op.__members__ and Op[op] in scope.release.rules.inplace_ops


def ggml_hash_size(scope: EvalScope, values: list[CValue]) -> int:
    """The slots of a hash set with room for so many."""
    return hash_size(values[0].integer())


INLINE: Mapping[str, Callable[[EvalScope, list[CValue]], int]] = {
    function.__name__: function
    for function in (
        ggml_hash, ggml_hash_find, ggml_gallocr_hash_get, ggml_gallocr_is_allocated, ggml_op_can_inplace,
        ggml_hash_size,
    )
}  # fmt: skip
"""Functions that no program exports: they are answered by what lies in its memory."""


def tensor_of(scope: EvalContext, value: CValue) -> Tensor:
    """The tensor that a pointer points to, without its sources. Raises ExpressionError."""
    tensors = scope.image.tensors
    cell = tensors.cell(tensors.index(value.integer()))
    if cell is None:
        raise NoMemoryError(value.integer())
    t = Tensor(TYPES[cell.type], cell.ne, cell.nb, Op[cell.op], cell.op_params, cell.flags, name=cell.name, id=cell.id)
    root = tensors.cell(cell.view_src)
    if root is not None:
        t.view_src = Tensor(TYPES[root.type], root.ne, root.nb)
    return t


def _of_tensors(ask: Callable[..., int | str]) -> Answer:
    return lambda scope, values: ask(*(tensor_of(scope, value) for value in values))


def _of_field(name: str) -> Answer:
    return lambda scope, values: field_of(values[0], name).integer()


def _enum_name(scope: EvalContext, enum: str, value: CValue) -> str:
    """What an enum calls a number, without ggml's prefix."""
    number = value.integer()
    for name, member in scope.layout.enums[enum].members.items():
        if member == number:
            return name.removeprefix(f"{enum.upper()}_")
    raise ExpressionError(f"There is no {enum} of number {number}.")


def _op_name(scope: EvalContext, values: list[CValue]) -> str:
    return _enum_name(scope, "ggml_op", values[0])


def _type_name(scope: EvalContext, values: list[CValue]) -> str:
    return _enum_name(scope, "ggml_type", values[0]).lower().replace("_k", "_K")


def _of_type(ask: str) -> Answer:
    def answer(scope: EvalContext, values: list[CValue]) -> int:
        name = _enum_name(scope, "ggml_type", values[0])
        found = next((t for n, t in TYPES.items() if n.upper() == name), None)
        if found is None:
            raise ExpressionError(f"Nothing is known of the type {name}.")
        return int(getattr(found, ask))

    return answer


def _buft(scope: EvalContext, value: CValue) -> int:
    return _found(value, map(scope.image.devices.buft, range(len(scope.image.program.bufts))))


def _found(value: CValue, addresses: Iterable[int]) -> int:
    for number, address in enumerate(addresses):
        if address == value.integer():
            return number
    raise NoMemoryError(value.integer())


def _of_buft(ask: str, of_buffer: bool = False) -> Answer:

    def answer(scope: EvalContext, values: list[CValue]) -> int | str:
        buft = field_of(values[0], "buft") if of_buffer else values[0]
        fact: int | str = getattr(scope.image.program.bufts[_buft(scope, buft)], ask)
        return fact

    return answer


def _alloc_size(scope: EvalContext, values: list[CValue]) -> int:
    return scope.image.program.bufts[_buft(scope, values[0])].get_alloc_size(tensor_of(scope, values[1]))


def _buffer_base(scope: EvalContext, values: list[CValue]) -> int:
    buffers = scope.image.devices.buffers
    facts = buffers[_found(values[0], map(buffer, range(len(buffers))))]
    if facts is None:
        raise NoMemoryError(values[0].integer())
    return facts.base


def _backend_name(scope: EvalContext, values: list[CValue]) -> str:
    if not values[0].integer():
        return "NULL"
    for b, backend in enumerate(scope.image.program.backends):
        if values[0].integer() in (scope.image.devices.backend(b), scope.image.devices.device(b)):
            return backend.name
    raise NoMemoryError(values[0].integer())


def _tensor_backend(scope: EvalContext, values: list[CValue]) -> int:
    index = scope.image.tensors.index(values[1].integer())
    return scope.image.devices.backend(scope.image.cells.get(("id", -1 if index is None else index), -1))


def text_of(value: CValue) -> bytes:
    """A string of the expression or of the program, without its zero. Raises ExpressionError."""
    if isinstance(value.bare, Array):
        return value.raw().partition(b"\0")[0]
    return zero_ended(value.memory, value.integer())[0]


def _compare(scope: EvalContext, values: list[CValue]) -> int:
    n = max(values[2].integer(), 0) if len(values) > 2 else None
    a, b = text_of(values[0])[:n], text_of(values[1])[:n]
    return (a > b) - (a < b)


def _without_process(scope: EvalContext, values: list[CValue]) -> int:
    raise ExpressionError("You can't do that without a process to debug.")


def _graph_node(scope: EvalContext, values: list[CValue]) -> int:
    n, i = field_of(values[0], "n_nodes").integer(), values[1].integer()
    i = n + i if i < 0 else i
    if not 0 <= i < n:
        raise ExpressionError(f"The graph has {n} nodes.")
    return scope.memory.number(field_of(values[0], "nodes").integer() + 8 * i)


def _graph_print(scope: EvalContext, values: list[CValue]) -> int:
    pointer = Pointer(scope.layout.structs["ggml_tensor"])
    said = []
    for part in ("nodes", "leafs"):
        at, n = field_of(values[0], part).integer(), field_of(values[0], f"n_{part}").integer()
        tensors = [tensor_of(scope, scope.of(pointer, address)) for address in scope.memory.numbers(at, n)]
        for tensor in tensors:
            tensor.name = printable(tensor.name)
        said.append(GraphTensor.all(tensors))
    scope.written.append(graph_print(*said))
    return 0


_T = "const struct ggml_tensor *"
_ASKED: Mapping[str, Callable[..., int | str]] = {
    f"size_t ggml_nbytes({_T})": lambda t: t.nbytes,
    f"int64_t ggml_nelements({_T})": rules.nelements,
    f"int64_t ggml_nrows({_T})": lambda t: t.ne[1] * t.ne[2] * t.ne[3],
    f"int ggml_n_dims({_T})": lambda t: next((d for d in (4, 3, 2) if t.ne[d - 1] > 1), 1),
    f"size_t ggml_element_size({_T})": lambda t: t.type.type_size,
    f"const char * ggml_get_name({_T})": lambda t: t.name,
    f"const char * ggml_op_desc({_T})": rules.op_desc,
    f"bool ggml_is_view({_T})": lambda t: t.view_src is not None,
    f"bool ggml_is_empty({_T})": rules.is_empty,
    f"bool ggml_is_contiguous({_T})": rules.is_contiguous,
    f"bool ggml_is_transposed({_T})": rules.is_transposed,
    f"bool ggml_is_permuted({_T})": rules.is_permuted,
    f"bool ggml_is_scalar({_T})": rules.is_scalar,
    f"bool ggml_is_vector({_T})": rules.is_vector,
    f"bool ggml_is_matrix({_T})": rules.is_matrix,
    f"bool ggml_is_3d({_T})": rules.is_3d,
    f"bool ggml_are_same_shape({_T}, {_T})": rules.are_same_shape,
    f"bool ggml_are_same_layout({_T}, {_T})": rules.are_same_layout,
    f"bool ggml_can_mul_mat({_T}, {_T})": rules.can_mul_mat,
    f"bool ggml_can_repeat({_T}, {_T})": rules.can_repeat,
}
_KNOWN = (
    *(Known(declaration, _of_tensors(ask)) for declaration, ask in _ASKED.items()),
    Known(f"size_t ggml_hash({_T})", ggml_hash),
    Known(f"size_t ggml_hash_find(const struct ggml_hash_set *, {_T})", ggml_hash_find),
    Known("struct hash_node * ggml_gallocr_hash_get(ggml_gallocr_t, struct ggml_tensor *)", ggml_gallocr_hash_get),
    Known("bool ggml_gallocr_is_allocated(ggml_gallocr_t, struct ggml_tensor *)", ggml_gallocr_is_allocated),
    Known("const char * ggml_op_name(enum ggml_op)", _op_name),
    Known("bool ggml_op_can_inplace(enum ggml_op)", ggml_op_can_inplace),
    Known("const char * ggml_type_name(enum ggml_type)", _type_name),
    Known("size_t ggml_type_size(enum ggml_type)", _of_type("type_size")),
    Known("int64_t ggml_blck_size(enum ggml_type)", _of_type("block_size")),
    Known("bool ggml_is_quantized(enum ggml_type)", _of_type("quantized")),
    Known("const char * ggml_backend_name(ggml_backend_t)", _backend_name),
    Known("const char * ggml_backend_buft_name(ggml_backend_buffer_type_t)", _of_buft("name")),
    Known("size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t)", _of_buft("alignment")),
    Known("size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t)", _of_buft("max_size")),
    Known("bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t)", _of_buft("host")),
    Known(f"size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t, {_T})", _alloc_size),
    Known("const char * ggml_backend_buffer_name(ggml_backend_buffer_t)", _of_buft("name", of_buffer=True)),
    Known("bool ggml_backend_buffer_is_host(ggml_backend_buffer_t)", _of_buft("host", of_buffer=True)),
    Known("void * ggml_backend_buffer_get_base(ggml_backend_buffer_t)", _buffer_base),
    Known("size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t)", _of_field("size")),
    Known("int ggml_backend_sched_get_n_splits(ggml_backend_sched_t)", _of_field("n_splits")),
    Known(
        "ggml_backend_t ggml_backend_sched_get_tensor_backend(ggml_backend_sched_t, struct ggml_tensor *)",
        _tensor_backend,
    ),
    Known("int ggml_graph_n_nodes(struct ggml_cgraph *)", _of_field("n_nodes")),
    Known("void ggml_graph_print(const struct ggml_cgraph *)", _graph_print),
    Known("struct ggml_tensor * ggml_graph_node(struct ggml_cgraph *, int)", _graph_node),
    Known("size_t ggml_tensor_overhead(void)", lambda s, v: s.release.tensor_overhead()),
    Known("size_t ggml_graph_overhead(void)", lambda s, v: s.release.graph_overhead(DEFAULT_GRAPH_SIZE)),
    Known("int strcmp(const char *, const char *)", _compare),
    Known("int strncmp(const char *, const char *, size_t)", _compare),
    Known("size_t strlen(const char *)", lambda s, v: len(text_of(v[0]))),
    Known("struct ggml_context * ggml_init(struct ggml_init_params)", _without_process),
    Known("size_t ggml_hash_size(size_t)", ggml_hash_size),
    Known("size_t ggml_graph_nbytes(size_t, bool)", lambda s, v: s.release.graph_nbytes(v[0].integer(), v[1].truth())),
)
FUNCTIONS = {known.name: known for known in _KNOWN}
"""By name; some are of later releases only."""
