"""The tables of a library against the engine's: functions, ops, types, sizes, what may take more memory."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ggmltool.ask.diff.rules import changes
from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.ops.registry import since_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.version import hash_size
from ggmltool.oracle import prototypes, structs
from ggmltool.oracle.fork import Abort, ChildError
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.run import Log
from tests.follow.library import Library, each_forked

_NAME = re.compile(rb"[A-Z][A-Z0-9_]{1,40}")
_OF_ONE_BUILD = re.compile(
    r"ggml_(backend_(init|score|load|unload|reg|register|device|dev_(by|count|get)|cpu|meta|vk|rpc|blas)\b|backend_"
    r"(init|load|reg|device|dev_by|meta|cpu|vk|rpc|blas)_|compute_|gem[mv]_|tiled_|vec_|cpu_|repack_)"
)
"""Functions that a library has by how it was built: the registry of backends, kernels, other backends."""
FURTHER = 8
"""Numbers behind the last known one that are asked for their name."""


class TableDifference(NamedTuple):
    """What a table of ggmltool's has otherwise than the library."""

    table: str
    text: str


def functions(library: Library, like: Library | None) -> Iterator[TableDifference]:
    """Functions that the tests need and the library lacks, and what it exports otherwise than the one of a release."""
    needed = {*prototypes.BASE, *prototypes.CPU, *(f"ggml_{name}" for name in prototypes.in_all_libraries())}
    for name in sorted(needed - library.exports):
        yield TableDifference("functions", f"{name} is missing")
    if like is not None:
        for name in sorted((library.exports ^ like.exports) - needed):
            if not _OF_ONE_BUILD.match(name):
                yield TableDifference("functions", f"{name} is {'new' if name in library.exports else 'gone'}")


def tables(lib: Lib, release: Release) -> Iterator[TableDifference]:
    """All tables that can be read out."""
    yield from _names(lib, "ops", "ggml_op_name", _known(Op, release))
    yield from _names(lib, "unary ops", "ggml_unary_op_name", _known(UnaryOp, release))
    yield from _names(lib, "GLU ops", "ggml_glu_op_name", _known(GluOp, release))
    yield from _types(lib)
    yield from _sizes(lib, release)
    yield from _expanding(lib, release)
    yield from _inplace(lib, release)
    yield from _failed_reserve(lib, release)


def _asked(lib: Lib, function: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own, or None where ggml aborts or crashes."""
    try:
        done = lib.run_forked(function)
    except ChildError:
        return None
    return None if isinstance(done, Abort) else done


def _known(ops: type[IntEnum], release: Release) -> list[str]:
    """The names of ops that the release has, by their numbers."""
    return [op.name for op in ops if since_of(op.name.lower()) <= release.date]


def _names(lib: Lib, table: str, function: str, known: Sequence[str]) -> Iterator[TableDifference]:
    ask = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)((function, lib.base))
    for number, said in enumerate(each_forked(lib, ask, range(len(known) + FURTHER))):
        name = said.decode() if isinstance(said, bytes) and _NAME.fullmatch(said) else None
        if number >= len(known) and name is None:
            return
        if number >= len(known):
            yield TableDifference(table, f"{number} is {name}, which is new")
        elif name != known[number]:
            yield TableDifference(table, f"{number} is {name}, not {known[number]}")


def _types(lib: Lib) -> Iterator[TableDifference]:
    get = ctypes.CFUNCTYPE(ctypes.POINTER(structs.TypeTraits), ctypes.c_int)(("ggml_get_type_traits", lib.base))

    def traits(number: int) -> tuple[str, int, int, bool] | None:
        t = get(number).contents
        name = t.type_name
        return None if not name else (name.decode(), t.blck_size, t.type_size, t.is_quantized)

    highest = max(TYPES_BY_ID)
    for number, answer in enumerate(each_forked(lib, traits, range(highest + FURTHER))):
        there = None if isinstance(answer, Abort) else answer
        type = TYPES_BY_ID.get(number)
        here = None if type is None else (type.name, type.block_size, type.type_size, type.quantized)
        if number > highest and (there is None or not re.fullmatch(r"[a-z]+\d\w*", there[0])):
            return
        if here != there and not (here is None and there is not None and there[1] == 0):
            yield TableDifference("types", f"{number} is {there}, not {here}")


def _sizes(lib: Lib, release: Release) -> Iterator[TableDifference]:
    ours = {"a tensor in a context": (release.tensor_overhead(), lib.ggml_tensor_overhead())}
    for size in (1, 31, 32, 100, 2048, 5000, 1 << 20):
        for grads in (False, True):
            what = f"a graph of {size} nodes{' with gradients' if grads else ''}"
            ours[what] = release.graph_overhead(size, grads), lib.ggml_graph_overhead_custom(size, grads)
    if lib.exports("ggml_hash_size"):
        for n in (1, 2, 3, 100, 4096, 8210, 1 << 20, 1 << 31, (1 << 31) + 12):
            ours[f"the hash set for {n}"] = hash_size(n), lib.ggml_hash_size(n)
    for what, (here, there) in ours.items():
        if here != there:
            yield TableDifference("sizes", f"{what} has {there}, not {here}")


def _expanding(lib: Lib, release: Release) -> Iterator[TableDifference]:
    """Ops for which a device may ask for more memory than the result's bytes, asked of one that always does."""
    table = lib.structs["ggml_backend_buffer_type_i"]
    callback = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)(
        lambda _, t: int(lib.ggml_nbytes(t)) + 32
    )
    buft = lib.structs["ggml_backend_buffer_type"]()
    buft.iface = table(get_alloc_size=ctypes.cast(callback, ctypes.c_void_p).value)

    def size(op: Op) -> int:
        with lib.context() as ctx:
            t = lib.tensor(ctx, "f32", (16,))
            structs.Tensor.from_address(t).op = int(op)
            return int(lib.ggml_backend_buft_get_alloc_size(ctypes.addressof(buft), t))

    rule = release.rules.expanding_ops
    there = {op for op, asked in zip(Op, each_forked(lib, size, list(Op)), strict=True) if not isinstance(asked, Abort)}
    empty = {Op.NONE, Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE}
    here = {op for op in Op if rule is None or op in rule or op in empty}
    if there != here:
        only = [op.name for op in Op if op in there - empty]
        told = "all" if len(only) + len(empty) == len(Op) else ", ".join(only) or "none"
        yield TableDifference("expanding_ops", f"a device may ask for more than a result's bytes for {told}")


def _inplace(lib: Lib, release: Release) -> Iterator[TableDifference]:
    """Ops that a graph allocator computes in the memory of a source, asked with two nodes each."""

    def computed_in_place(op: Op) -> bool:
        with lib.context() as ctx:
            a = lib.call("sqr", ctx, lib.tensor(ctx, "f32", (16,)))
            b = lib.call("sqr", ctx, a)
            structs.Tensor.from_address(b).op = int(op)
            bufts = (ctypes.c_void_p * 1)(lib.ggml_backend_cpu_buffer_type())
            galloc = lib.ggml_gallocr_new_n(bufts, 1)
            lib.ggml_gallocr_alloc_graph(galloc, lib.graph(ctx, [b], 16))
            same = structs.Tensor.from_address(a).data == structs.Tensor.from_address(b).data
            lib.ggml_gallocr_free(galloc)
            return bool(same)

    computing = [op for op in Op if op != Op.NONE]
    there = _asked(lib, lambda: {int(op): computed_in_place(op) for op in computing})
    here = release.rules.inplace_ops
    for op in computing:
        if there is None or there[op] != (op in here):
            said = "can" if there and there[op] else "cannot"
            yield TableDifference("inplace_ops", f"{op.name} {said} be computed in place")
            if there is None:
                return


def _failed_reserve(lib: Lib, release: Release) -> Iterator[TableDifference]:
    """Whether ggml says that a graph could not be reserved, where no memory is to be had."""

    def told() -> list[str]:
        log = Log(lib)
        no_memory = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(lambda _, size: None)
        theirs = lib.structs["ggml_backend_buffer_type"].from_address(lib.ggml_backend_cpu_buffer_type())
        buft = lib.structs["ggml_backend_buffer_type"].from_buffer_copy(theirs)
        buft.iface.alloc_buffer = ctypes.cast(no_memory, ctypes.c_void_p).value
        ctx = lib.init(1 << 20)
        graph = lib.graph(ctx, [lib.call("sqr", ctx, lib.tensor(ctx, "f32", (16,)))])
        pointers = ctypes.c_void_p * 1
        sched = lib.ggml_backend_sched_new(
            pointers(lib.cpu_backend()), pointers(ctypes.addressof(buft)), 1, 100, False, True
        )
        log.take()
        lib.ggml_backend_sched_alloc_graph(sched, graph)
        return log.take()[0]

    lines = _asked(lib, told)
    there = any("failed to reserve" in line for line in lines or ())
    here = any(change.key == "failed-reserve" and change.since <= release.date for change in changes())
    if here != there:
        said = "ggml crashes" if lines is None else f"the log is: {'; '.join(lines) or 'empty'}"
        yield TableDifference("failed-reserve", f"of a graph that gets no memory {said}")
