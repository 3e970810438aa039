"""ggml's functions that only look: `p ggml_nbytes(node)`, `p *ggml_gallocr_hash_get(galloc, src)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ggmltool.ask.graph.record import GraphTensor
from ggmltool.ask.graph.text import graph_print
from ggmltool.debugger.expressions.ground import Ground
from ggmltool.debugger.expressions.image.addresses import buffer
from ggmltool.debugger.expressions.printing import zero_ended
from ggmltool.debugger.expressions.values import CValue
from ggmltool.ggml import tensor as rules
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.graph import FULL, hash_of
from ggmltool.ggml.op import Op
from ggmltool.ggml.printable import printable
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, SIZE_MAX, hash_size
from ggmltool.structs.declarations import ExpressionError, NoMemoryError
from ggmltool.structs.types import Array, Pointer

Answer = Callable[[Ground, list[CValue]], int | str]


class Known(NamedTuple):
    """A function: how it is declared, and its result of values: a number, an address, or a text."""

    declaration: str
    answer: Answer


def tensor_of(scope: Ground, value: CValue) -> Tensor:
    """The tensor that a pointer points to, without its sources. Raises ExpressionError."""
    address = value.integer()
    index = scope.image.tensors.index(address)
    cell = scope.image.tensors.cell(index) if index is not None else None
    if cell is None:
        raise NoMemoryError(address)
    t = Tensor(TYPES[cell.type], cell.ne, cell.nb, Op[cell.op], cell.op_params, cell.flags, name=cell.name, id=cell.id)
    if cell.view_src is not None:
        root = scope.image.tensors.cell(cell.view_src)
        if root is not None:
            t.view_src = Tensor(TYPES[root.type], root.ne, root.nb)
    return t


def _of_tensor(ask: Callable[[Tensor], int | str]) -> Answer:
    return lambda scope, values: ask(tensor_of(scope, values[0]))


def _of_field(name: str) -> Answer:
    return lambda scope, values: scope.field(values[0], name).integer()


def _of_two(ask: Callable[[Tensor, Tensor], bool]) -> Answer:
    return lambda scope, values: ask(tensor_of(scope, values[0]), tensor_of(scope, values[1]))


def _enum_name(scope: Ground, enum: str, number: int) -> str:
    for name, value in scope.layout.enums[enum].members.items():
        if value == number:
            return name
    raise ExpressionError(f"There is no {enum} of number {number}.")


def _op(scope: Ground, value: CValue) -> str:
    return _enum_name(scope, "ggml_op", value.integer()).removeprefix("GGML_OP_")


def _can_inplace(scope: Ground, values: list[CValue]) -> int:
    name = _op(scope, values[0])
    return name in Op.__members__ and Op[name] in scope.image.program.release.rules.inplace_ops


def _type(scope: Ground, value: CValue) -> str:
    return _enum_name(scope, "ggml_type", value.integer()).removeprefix("GGML_TYPE_")


def _of_type(ask: str) -> Answer:
    def answer(scope: Ground, values: list[CValue]) -> int:
        name = _type(scope, values[0])
        found = next((t for n, t in TYPES.items() if n.upper() == name), None)
        if found is None:
            raise ExpressionError(f"Nothing is known of the type {name}.")
        return int(getattr(found, ask))

    return answer


def _hash(scope: Ground, values: list[CValue]) -> int:
    return hash_of(values[0].integer(), scope.image.program.release.hash_shift)


def _hash_find(scope: Ground, values: list[CValue]) -> int:
    """ggml_hash_find in the set of scheduler, allocator or graph: by its keys in memory."""
    keys, used = scope.field(values[0], "keys"), scope.optional(values[0], "used")
    size = scope.field(values[0], "size").integer()
    address = values[1].integer()
    if not size:
        raise ExpressionError("Division by zero")
    start = slot = _hash(scope, [values[1]]) % size
    while True:
        key = int.from_bytes(scope.memory.read(keys.integer() + 8 * slot, 8), "little")
        word = int.from_bytes(scope.memory.read(used.integer() + 4 * (slot >> 5), 4), "little") if used else 0
        taken = word >> (slot & 31) & 1 if used else key != 0
        if not taken or key == address:
            return slot
        slot = (slot + 1) % size
        if slot == start:
            return FULL & SIZE_MAX


def _hash_node(scope: Ground, values: list[CValue]) -> int:
    return scope.image.galloc.hash_node(values[1].integer())


def _is_allocated(scope: Ground, values: list[CValue]) -> int:
    node = scope.of(Pointer(scope.layout.structs["hash_node"]), scope.image.galloc.hash_node(values[1].integer()))
    allocated = scope.optional(node, "allocated")
    return bool(scope.field(values[1], "data").integer()) or (allocated is not None and allocated.truth())


def _buft(scope: Ground, value: CValue) -> int:
    image = scope.image
    for number in range(len(image.program.bufts)):
        if image.devices.buft(number) == value.integer():
            return number
    raise NoMemoryError(value.integer())


def _buft_fact(ask: str) -> Answer:
    return lambda scope, values: getattr(scope.image.program.bufts[_buft(scope, values[0])], ask)


def _alloc_size(scope: Ground, values: list[CValue]) -> int:
    return scope.image.program.bufts[_buft(scope, values[0])].get_alloc_size(tensor_of(scope, values[1]))


def _of_buffer(scope: Ground, value: CValue) -> int:
    return _buft(scope, scope.field(value, "buft"))


def _buffer_fact(ask: str) -> Answer:
    return lambda scope, values: getattr(scope.image.program.bufts[_of_buffer(scope, values[0])], ask)


def _buffer_base(scope: Ground, values: list[CValue]) -> int:
    for facts, number in ((f, n) for n, f in enumerate(scope.image.devices.buffers()) if f is not None):
        if buffer(number) == values[0].integer():
            return facts.base
    raise NoMemoryError(values[0].integer())


def _backend(scope: Ground, values: list[CValue]) -> str:
    if not values[0].integer():
        return "NULL"
    for b, backend in enumerate(scope.image.program.backends):
        if values[0].integer() in (scope.image.devices.backend(b), scope.image.devices.device(b)):
            return backend.name
    raise NoMemoryError(values[0].integer())


def _tensor_backend(scope: Ground, values: list[CValue]) -> int:
    index = scope.image.tensors.index(values[1].integer())
    return scope.image.devices.backend(scope.image.cells.get(("id", -1 if index is None else index), -1))


def text_of(value: CValue) -> bytes:
    """A string of the expression or of the program, without its zero. Raises ExpressionError."""
    if isinstance(value.bare, Array):
        return value.raw().partition(b"\0")[0]
    return zero_ended(value, value.integer())[0]


def _strcmp(scope: Ground, values: list[CValue]) -> int:
    a, b = text_of(values[0]), text_of(values[1])
    return (a > b) - (a < b)


def _strncmp(scope: Ground, values: list[CValue]) -> int:
    n = max(values[2].integer(), 0)
    a, b = text_of(values[0])[:n], text_of(values[1])[:n]
    return (a > b) - (a < b)


def _without_process(scope: Ground, values: list[CValue]) -> int:
    raise ExpressionError("You can't do that without a process to debug.")


def _graph_node(scope: Ground, values: list[CValue]) -> int:
    n, i = scope.field(values[0], "n_nodes").integer(), values[1].integer()
    i = n + i if i < 0 else i
    if not 0 <= i < n:
        raise ExpressionError(f"The graph has {n} nodes.")
    return int.from_bytes(scope.memory.read(scope.field(values[0], "nodes").integer() + 8 * i, 8), "little")


def _graph_nbytes(scope: Ground, values: list[CValue]) -> int:
    return scope.image.program.release.graph_nbytes(values[0].integer(), values[1].truth())


def _tensors_of(scope: Ground, graph: CValue, part: str) -> list[Tensor]:
    at, n = scope.field(graph, part).integer(), scope.field(graph, f"n_{part}").integer()
    raw = scope.memory.read(at, 8 * n) if n else b""
    pointer = Pointer(scope.layout.structs["ggml_tensor"])
    addresses = (int.from_bytes(raw[i : i + 8], "little") for i in range(0, 8 * n, 8))
    tensors = [tensor_of(scope, scope.of(pointer, address)) for address in addresses]
    for tensor in tensors:
        tensor.name = printable(tensor.name)
    return tensors


def _graph_print(scope: Ground, values: list[CValue]) -> int:
    nodes, leafs = (GraphTensor.all(_tensors_of(scope, values[0], part)) for part in ("nodes", "leafs"))
    scope.written.append(graph_print(nodes, leafs))
    return 0


_T = "const struct ggml_tensor *"
_ASKED: Mapping[str, Callable[[Tensor], int | str]] = {
    "size_t ggml_nbytes": lambda t: t.nbytes,
    "int64_t ggml_nelements": rules.nelements,
    "int64_t ggml_nrows": lambda t: t.ne[1] * t.ne[2] * t.ne[3],
    "int ggml_n_dims": lambda t: next((d for d in (4, 3, 2) if t.ne[d - 1] > 1), 1),
    "size_t ggml_element_size": lambda t: t.type.type_size,
    "const char * ggml_get_name": lambda t: t.name,
    "const char * ggml_op_desc": rules.op_desc,
    "bool ggml_is_view": lambda t: t.view_src is not None,
    "bool ggml_is_empty": rules.is_empty,
    "bool ggml_is_contiguous": rules.is_contiguous,
    "bool ggml_is_transposed": rules.is_transposed,
    "bool ggml_is_permuted": rules.is_permuted,
    "bool ggml_is_scalar": rules.is_scalar,
    "bool ggml_is_vector": rules.is_vector,
    "bool ggml_is_matrix": rules.is_matrix,
    "bool ggml_is_3d": rules.is_3d,
}
_COMPARED: Mapping[str, Callable[[Tensor, Tensor], bool]] = {
    "ggml_are_same_shape": rules.are_same_shape,
    "ggml_are_same_layout": rules.are_same_layout,
    "ggml_can_mul_mat": rules.can_mul_mat,
    "ggml_can_repeat": rules.can_repeat,
}
_KNOWN = (
    *(Known(f"{said}({_T})", _of_tensor(ask)) for said, ask in _ASKED.items()),
    *(Known(f"bool {name}({_T}, {_T})", _of_two(ask)) for name, ask in _COMPARED.items()),
    Known(f"size_t ggml_hash({_T})", _hash),
    Known(f"size_t ggml_hash_find(const struct ggml_hash_set *, {_T})", _hash_find),
    Known("struct hash_node * ggml_gallocr_hash_get(ggml_gallocr_t, struct ggml_tensor *)", _hash_node),
    Known("bool ggml_gallocr_is_allocated(ggml_gallocr_t, struct ggml_tensor *)", _is_allocated),
    Known("const char * ggml_op_name(enum ggml_op)", lambda scope, values: _op(scope, values[0])),
    Known("bool ggml_op_can_inplace(enum ggml_op)", _can_inplace),
    Known("const char * ggml_type_name(enum ggml_type)", lambda s, v: _type(s, v[0]).lower().replace("_k", "_K")),
    Known("size_t ggml_type_size(enum ggml_type)", _of_type("type_size")),
    Known("int64_t ggml_blck_size(enum ggml_type)", _of_type("block_size")),
    Known("bool ggml_is_quantized(enum ggml_type)", _of_type("quantized")),
    Known("const char * ggml_backend_name(ggml_backend_t)", _backend),
    Known("const char * ggml_backend_buft_name(ggml_backend_buffer_type_t)", _buft_fact("name")),
    Known("size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t)", _buft_fact("alignment")),
    Known("size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t)", _buft_fact("max_size")),
    Known("bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t)", _buft_fact("host")),
    Known(f"size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t, {_T})", _alloc_size),
    Known("const char * ggml_backend_buffer_name(ggml_backend_buffer_t)", _buffer_fact("name")),
    Known("bool ggml_backend_buffer_is_host(ggml_backend_buffer_t)", _buffer_fact("host")),
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
    Known("size_t ggml_tensor_overhead(void)", lambda s, v: s.image.program.release.tensor_overhead()),
    Known("size_t ggml_graph_overhead(void)", lambda s, v: s.image.program.release.graph_overhead(DEFAULT_GRAPH_SIZE)),
    Known("int strcmp(const char *, const char *)", _strcmp),
    Known("int strncmp(const char *, const char *, size_t)", _strncmp),
    Known("size_t strlen(const char *)", lambda s, v: len(text_of(v[0]))),
    Known("struct ggml_context * ggml_init(struct ggml_init_params)", _without_process),
    Known("size_t ggml_hash_size(size_t)", lambda s, v: hash_size(v[0].integer())),
    Known("size_t ggml_graph_nbytes(size_t, bool)", _graph_nbytes),
)  # fmt: skip


def name_of(known: Known) -> str:
    """What a function is called."""
    return known.declaration.partition("(")[0].rpartition(" ")[2]


FUNCTIONS = {name_of(known): known for known in _KNOWN}
"""By name; some are of later releases only."""
