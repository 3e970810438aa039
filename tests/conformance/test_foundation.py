"""Types, layouts, arenas, graphs and the CPU's answers, on random tensors, against the real library."""

from __future__ import annotations

import ctypes
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.ggml import tensor as tensors
from ggmltool.ggml.context import Context
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.dtypes import F32, TYPES
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op, UnaryOp
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor, contiguous_nb
from ggmltool.ggml.version import hash_size
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib
from tests.conformance.releases import release_of
from tests.ggml.layouts import strided_tensors

PREDICATES = (
    "is_contiguous is_contiguous_1 is_contiguous_2 is_contiguous_rows is_contiguous_channels "
    "is_transposed is_permuted is_empty is_scalar is_vector is_matrix is_3d"
)


def bound(lib: Lib, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(lib.base, f"ggml_{name}")
    function.restype = result
    function.argtypes = arguments
    return function


def predicate(lib: Lib, name: str, n: int = 1) -> Any:
    return bound(lib, name, ctypes.c_bool, *[ctypes.c_void_p] * n)


class Mirror:
    """A tensor of the library's with the engine's fields."""

    def __init__(self, *of: Tensor) -> None:
        self.structs = [structs.Tensor() for _ in of]
        for s, t in zip(self.structs, of, strict=True):
            s.type = t.type.id
            s.ne[:] = t.ne
            s.nb[:] = t.nb

    @property
    def addresses(self) -> list[int]:
        return [ctypes.addressof(s) for s in self.structs]


@pytest.mark.parametrize("name", PREDICATES.split())
def test_a_predicate_is_the_librarys(lib: Lib, name: str) -> None:
    real, ours = predicate(lib, name), getattr(tensors, name)

    @settings(max_examples=60)
    @given(strided_tensors())
    def check(t: Tensor) -> None:
        assert ours(t) == real(*Mirror(t).addresses)

    check()


@settings(max_examples=200)
@given(strided_tensors())
def test_counts_and_bytes_are_the_librarys(lib: Lib, t: Tensor) -> None:
    mirror = Mirror(t)
    (address,) = mirror.addresses
    assert t.nbytes == lib.ggml_nbytes(address)
    assert tensors.nelements(t) == lib.ggml_nelements(address)
    assert tensors.nrows(t) == bound(lib, "nrows", ctypes.c_int64, ctypes.c_void_p)(address)
    assert tensors.n_dims(t) == bound(lib, "n_dims", ctypes.c_int, ctypes.c_void_p)(address)


@settings(max_examples=200)
@given(strided_tensors(("f32", "q8_0"), (0, 1, 2)), strided_tensors(("f32", "q8_0"), (0, 1, 2, 4)))
def test_pairs_compare_as_in_the_library(lib: Lib, a: Tensor, b: Tensor) -> None:
    mirror = Mirror(a, b)
    x, y = mirror.addresses
    assert tensors.can_repeat(a, b) == lib.ggml_can_repeat(x, y)
    assert tensors.are_same_shape(a, b) == lib.ggml_are_same_shape(x, y)


@given(st.integers(0, 1 << 40))
def test_hash_sizes_are_the_librarys(lib: Lib, n: int) -> None:
    assert hash_size(n) == lib.ggml_hash_size(n)


@given(st.integers(1, 1 << 18), st.booleans())
def test_the_room_of_a_graph_is_the_librarys(lib: Lib, size: int, grads: bool) -> None:
    assert DEFAULT.graph_overhead(size, grads) == lib.ggml_graph_overhead_custom(size, grads)


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.booleans())
def test_an_arena_places_its_objects_as_the_library_does(lib: Lib, seed: int, no_alloc: bool) -> None:
    rng = Random(seed)
    with lib.context(1 << 20, no_alloc) as real:
        base = lib.ggml_get_mem_buffer(real)
        ctx = Context(base=base, no_alloc=no_alloc)
        for i in range(rng.randint(1, 12)):
            if rng.random() < 0.2:
                size = rng.randint(1, 300)
                ctx.new_object("graph", DEFAULT.graph_nbytes(size))
                address = lib.ggml_new_graph_custom(real, size, False)
            else:
                type = TYPES[rng.choice(sorted(TYPES))]
                ne = (type.block_size * rng.randint(0, 3), rng.randint(1, 5))
                t = ctx.new_tensor(type, ne)
                address = lib.tensor(real, type, ne)
                assert t.data == (structs.Tensor.from_address(address).data or 0)
            assert address == base + ctx.objects()[i].offset
        assert ctx.used_mem == lib.ggml_used_mem(real)


def test_a_tensor_takes_what_the_library_says(lib: Lib) -> None:
    assert DEFAULT.tensor_overhead() == lib.ggml_tensor_overhead()
    assert DEFAULT.graph_overhead() == lib.ggml_graph_overhead()


@settings(max_examples=80)
@given(st.integers(0, 1 << 32))
def test_a_random_graph_is_built_in_the_librarys_order(lib: Lib, seed: int) -> None:
    rng = Random(seed)
    ctx = Context()
    with lib.context(1 << 21) as real:
        ours: list[Tensor] = []
        theirs: list[int] = []
        for i in range(rng.randint(2, 40)):
            t = ctx.new_tensor(F32, (4,), name=rng.choice(("", f"t{i}", "same")))
            address = lib.tensor(real, "f32", (4,), name=t.name)
            ours.append(t)
            theirs.append(address)
            raw = structs.Tensor.from_address(address)
            if i > 3 and rng.random() < 0.9:
                op = rng.choice((Op.ADD, Op.MUL, Op.CPY, Op.VIEW))
                src = [rng.randrange(i) if rng.random() < 0.8 else None for _ in range(rng.randint(1, 10))]
                if rng.random() < 0.1:
                    src.append(i)
                src = src[:10]
                t.set_op(op, (), *[None if s is None else ours[s] for s in src])
                raw.op = op
                raw.src[: len(src)] = [None if s is None else theirs[s] for s in src]
            elif rng.random() < 0.3:
                t.flags = raw.flags = FLAG_PARAM
        graph = CGraph(64)
        real_graph = lib.ggml_new_graph_custom(real, 64, False)
        for _ in range(rng.randint(1, 4)):
            k = rng.randrange(len(ours))
            graph.build_forward_expand(ours[k])
            lib.ggml_build_forward_expand(real_graph, theirs[k])
        at = {address: i for i, address in enumerate(theirs)}
        nodes, leafs = lib.graph_tensors(real_graph)
        assert [ours.index(t) for t in graph.nodes] == [at[n] for n in nodes]
        assert [ours.index(t) for t in graph.leafs] == [at[n] for n in leafs]
        for t, address in zip(ours, theirs, strict=True):
            raw = structs.Tensor.from_address(address)
            assert (t.name, t.flags) == (raw.name.decode(), raw.flags)


def cpu_of(release: Release) -> Device:
    profile = profiles_of(release)["CPU"]
    return make_device(profile, "CPU", make_buft(profile, "CPU", "CPU"))


INTERESTING = ("f32", "f16", "bf16", "q8_0", "q8_K", "q4_K", "iq2_s", "iq3_xxs", "i32", "i64", "tq1_0", "mxfp4")
CONDITIONAL = (
    Op.CPY, Op.SET_ROWS, Op.MUL_MAT, Op.SOFT_MAX_BACK, Op.IM2COL_BACK, Op.GET_ROWS_BACK, Op.OUT_PROD, Op.CONV_2D,
    Op.SSM_SCAN,
)  # fmt: skip


def both_run(lib: Lib, op: Op, dst: Tensor, *sources: Tensor, params: tuple[int, int] = (0, 0)) -> tuple[bool, bool]:
    """Whether the engine's CPU runs an op, and whether the library's does."""
    dst.set_op(op, params, *sources)
    mirror = Mirror(dst, *sources)
    raw = mirror.structs[0]
    raw.op = op
    raw.op_params[:2] = params
    raw.src[: len(sources)] = mirror.addresses[1:]
    device = lib.ggml_backend_reg_dev_get(lib.ggml_backend_cpu_reg(), 0)
    return cpu_of(release_of(lib)).supports_op(dst), lib.ggml_backend_dev_supports_op(device, mirror.addresses[0])


@settings(max_examples=400)
@given(st.integers(0, 1 << 32))
def test_the_cpu_runs_what_the_librarys_cpu_runs(lib: Lib, seed: int) -> None:
    rng = Random(seed)
    op = rng.choice(CONDITIONAL) if rng.random() < 0.8 else rng.choice(list(Op))
    sources = []
    for _ in range(4):
        type = TYPES[rng.choice(INTERESTING)]
        ne = (type.block_size * rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2), 1)
        nb = contiguous_nb(type, ne)
        sources.append(Tensor(type, ne, nb if rng.random() < 0.7 else (nb[0], nb[1] + 2, nb[2] + 4, nb[3] + 8)))
    dst = Tensor(TYPES[rng.choice(INTERESTING)], (256, 1, 1, 1))
    params = (rng.choice((0, 1, 2)), rng.choice((0, -(2**31), 0x3F800000)))
    if op == Op.UNARY:
        params = (rng.randrange(len(UnaryOp)), 0)
    ours, theirs = both_run(lib, op, dst, *sources, params=params)
    assert ours == theirs


@pytest.mark.parametrize("name", TYPES)
def test_the_cpu_takes_the_types_that_the_librarys_takes(lib: Lib, name: str) -> None:
    def matrix(type: str, *batches: int) -> Tensor:
        return Tensor(TYPES[type], (256, 4, *(batches or (1, 1))))  # type: ignore[arg-type]

    for op in (*CONDITIONAL, Op.MUL_MAT_ID, Op.ADD):
        for other in TYPES:
            for types in ((name, "f32", other), ("f32", name, other), (other, name, "f32")):
                ours, theirs = both_run(lib, op, *map(matrix, types), matrix("i32"), matrix("f32"))
                assert ours == theirs, (op, types)
    for batches in ((1, 1), (2, 1), (1, 2)):
        ours, theirs = both_run(lib, Op.OUT_PROD, matrix("f32"), matrix(name), matrix("f32", *batches))
        assert ours == theirs, batches
    for bias in (0, -(2**31), 0x41000000):
        sources = matrix("f32"), matrix(name)
        ours, theirs = both_run(lib, Op.SOFT_MAX_BACK, matrix("f32"), *sources, params=(0, bias))
        assert ours == theirs, bias
