"""One call of a constructor, made in the engine and in the real library, compared as a tensor and as values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_int64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load as load_ops
from ggmltool.ggml.ops.cpu.limits import check
from ggmltool.ggml.ops.registry import CONSTRUCTORS, KERNELS, since_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb, nbytes_of
from ggmltool.ggml.values.arrays import HostArrays, dequantize, numpy_type
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Abort, Lib, load
from ggmltool.scenario.versions import lacks
from tests.another_cpu import MovedArray
from tests.batches import each
from tests.conformance.releases import release_of
from tests.conformance.small import each_apart

load_ops()


@dataclass(frozen=True)
class Src:
    """A source: a tensor of its own, or (with `nb` or `offset`) a view of a tensor that is large enough for it.

    `slack` are bytes that tensor has beyond what the view needs, `flags` are those of the tensor. `data` says how it is
    filled: normal, positive, special (infinities, NaN, zeros), ints, mask, or an array; bytes fill its memory as they
    are.
    """

    type: str = "f32"
    ne: tuple[int, ...] = (4, 3)
    nb: tuple[int, ...] | None = None
    offset: int = 0
    data: Any = "normal"
    name: str = ""
    slack: int = 0
    flags: int = 0

    @property
    def dtype(self) -> DType:
        return TYPES[self.type]

    @property
    def dims(self) -> Dims:
        a, b, c, d = (*self.ne, *[1] * (4 - len(self.ne)))
        return (a, b, c, d)

    @property
    def strides(self) -> Dims:
        if self.nb is None:
            return contiguous_nb(self.dtype, self.dims)
        a, b, c, d = self.nb
        return (a, b, c, d)

    @property
    def is_view(self) -> bool:
        return self.nb is not None or bool(self.offset)

    @property
    def base_elements(self) -> int:
        """Elements of the tensor behind a view."""
        contiguous = nbytes_of(self.dtype, self.dims, contiguous_nb(self.dtype, self.dims))
        size = self.offset + self.slack + max(nbytes_of(self.dtype, self.dims, self.strides), contiguous)
        blocks = -(-size // self.dtype.type_size)
        return blocks * self.dtype.block_size


def permuted(type: str, ne: Sequence[int], axes: Sequence[int], **more: Any) -> Src:
    """A source as ggml_permute gives it: dimension i of a contiguous tensor `ne` becomes dimension axes[i]."""
    dims = (*ne, *[1] * (4 - len(ne)))
    a, b, c, d = dims
    nb = contiguous_nb(TYPES[type], (a, b, c, d))
    out_ne, out_nb = [0] * 4, [0] * 4
    for i, axis in enumerate(axes):
        out_ne[axis], out_nb[axis] = dims[i], nb[i]
    return Src(type, tuple(out_ne), tuple(out_nb), **more)


def cut(type: str, ne: Sequence[int], whole: Sequence[int], offset: int = 0, **more: Any) -> Src:
    """A source as ggml_view_4d gives it: the first `ne` elements of a contiguous tensor `whole`."""
    a, b, c, d = (*whole, *[1] * (4 - len(whole)))
    return Src(type, tuple(ne), contiguous_nb(TYPES[type], (a, b, c, d)), offset, **more)


@dataclass(frozen=True)
class Call:
    """`fn(*sources, *params)` in the engine; `real` the name, or name and arguments, in the library where they differ.

    In `real` a source is its index, parameters are wrapped in a tuple: ("soft_max_ext", 0, None, (1.0,), (0.0,)). One
    that is a function is called with the `Real`.
    `after` is a function of the library's that is then called with the result and numbers; it sets what `kwargs` say,
    where `real` does not. Releases before the day `since` do not have the call.
    """

    fn: str
    sources: tuple[Src | None, ...] = ()
    params: tuple[Any, ...] = ()
    inplace: bool = False
    kwargs: dict[str, Any] = field(default_factory=dict)
    real: tuple[Any, ...] | str = ""
    sinks: Src | None = None
    after: tuple[Any, ...] | None = None
    nmse: float = 1e-7
    since: str = ""

    def is_in(self, release: Release) -> bool:
        """Whether the release has the constructor, the op that it is named after, and what is called."""
        name = self.fn + ("_inplace" if self.inplace else "")
        first = (self.since, since_of(name))
        return not any(lacks(release, day) for day in first)

    def __str__(self) -> str:
        parts = [f"{s.type}{list(s.ne)}{'v' if s.is_view else ''}" if s else "null" for s in self.sources]
        parts += [s.data for s in self.sources if s and isinstance(s.data, str) and s.data != "normal"]
        words = [*parts, *map(str, self.params), *(f"{k}={v}" for k, v in self.kwargs.items())]
        return f"{self.fn}{'_inplace' if self.inplace else ''}({', '.join(words)})"


def call(fn: str, *args: Any, inplace: bool = False, **kwargs: Any) -> Call:
    """A Call from sources and parameters in one row; keyword arguments that Call has go there."""
    own = {k: kwargs.pop(k) for k in ("real", "sinks", "after", "nmse", "since") if k in kwargs}
    n = len([a for a in args if isinstance(a, Src) or a is None])
    return Call(fn, args[:n], args[n:], inplace, kwargs, **own)


class Engine:
    """A call in the engine, as a release."""

    def __init__(self, case: Call, release: Release) -> None:
        self.release = release
        self.buft = BufferType("CPU", "CPU")
        self.ctx = Context(rules=release.ops)
        self.owners: list[Tensor] = []
        self.sources = [self._source(s, "abcdefghij"[i]) for i, s in enumerate(case.sources)]
        extra = {"sinks": self._source(case.sinks, "sinks")} if case.sinks else {}
        if case.inplace:
            extra["inplace"] = True  # type: ignore[assignment]
        build = CONSTRUCTORS[case.fn].build
        self.result: Tensor = build(self.ctx, *self.sources, *case.params, **case.kwargs, **extra)

    def _source(self, s: Src | None, name: str) -> Tensor | None:
        if s is None:
            return None
        name = s.name or name
        if not s.is_view:
            t = self.ctx.new_tensor(s.dtype, s.dims, name=name)
            t.flags |= s.flags
            self.owners.append(t)
            return t
        base = self.ctx.new_tensor(s.dtype, (s.base_elements,), name=f"{name}.base")
        self.owners.append(base)
        t = self.ctx.new_tensor(s.dtype, s.dims, base, s.offset, name=name)
        t.set_layout(s.dims, s.strides)
        t.flags |= s.flags
        return t

    def fields(self) -> dict[str, Any]:
        t = self.result
        known = {id(s): i for i, s in enumerate(self.ctx.tensors)}
        return {
            "type": t.type.name,
            "ne": t.ne,
            "nb": t.nb,
            "op": t.op,
            "op_params": t.op_params + (0,) * (16 - len(t.op_params)),
            "src": tuple(None if s is None else known[id(s)] for s in t.src),
            "view_src": None if t.view_src is None else known[id(t.view_src)],
            "view_offs": t.view_offs,
            "name": t.name,
        }

    def place(self) -> None:
        """Give every tensor memory."""
        addresses = AddressSpace()
        for t in self.ctx.tensors:
            if t.view_src is None:
                t.buffer = Buffer(self.buft, max(t.nbytes, 1), addresses)
                t.data = t.buffer.base
            else:
                t.buffer, t.data = t.view_src.buffer, t.view_src.data + t.view_offs

    def compute(self, data: Sequence[bytes]) -> Any:
        self.place()
        arrays = HostArrays()
        arrays.rules = self.release.ops
        for t, raw in zip(self.owners, data, strict=True):
            arrays.set_bytes(t, raw)
        for node in self.ctx.tensors:
            if node.op != Op.NONE and node.op in KERNELS:
                KERNELS[node.op](arrays, node)
        return arrays.raw(self.result)


class Real:
    """The same call in the library."""

    def __init__(self, lib: Lib, ctx: int, case: Call) -> None:
        self.lib, self.ctx = lib, ctx
        self.owners: list[int] = []
        self.sources = [self._source(s, "abcdefghij"[i]) for i, s in enumerate(case.sources)]
        sinks = self._source(case.sinks, "sinks")
        name, *args = case.real if isinstance(case.real, tuple) else self._default(case)
        self.result = lib.call(name, ctx, *map(self._argument, args))
        if sinks:
            add_sinks = lib.ggml_flash_attn_ext_add_sinks if "flash" in case.fn else lib.ggml_soft_max_add_sinks
            add_sinks(self.result, sinks)
        if case.after:
            getattr(lib, case.after[0])(self.result, *case.after[1:])

    def _default(self, case: Call) -> list[Any]:
        values = [*case.params, *(() if case.after else case.kwargs.values())]
        if case.fn == "im2col_back":
            values[0] = (c_int64 * 4)(*values[0])
        twin = case.inplace
        if case.fn == "leaky_relu":
            values.append(case.inplace)
            twin = False
        name = (case.real or case.fn) + ("_inplace" if twin else "")
        return [name, *range(len(case.sources)), *((v,) for v in values)]

    def _argument(self, a: Any) -> Any:
        if not isinstance(a, tuple):
            return self._at(a)
        return a[0](self) if callable(a[0]) else a[0]

    def _at(self, i: int | None) -> int | None:
        return None if i is None else self.sources[i]

    def _source(self, s: Src | None, name: str) -> int | None:
        if s is None:
            return None
        name = s.name or name
        if not s.is_view:
            t = self.lib.tensor(self.ctx, s.dtype, s.dims, name=name)
            structs.Tensor.from_address(t).flags |= s.flags
            self.owners.append(t)
            return t
        base = self.lib.tensor(self.ctx, s.dtype, (s.base_elements,), name=f"{name}.base")
        self.owners.append(base)
        t = self.lib.call("view_4d", self.ctx, base, *s.dims, *s.strides[1:], s.offset)
        structs.Tensor.from_address(t).nb[:] = list(s.strides)
        structs.Tensor.from_address(t).flags |= s.flags
        self.lib.ggml_set_name(t, name.encode())
        return t

    def fields(self) -> dict[str, Any]:
        out = self.lib.fields(self.result)
        known: dict[int, int] = {}
        t = self.lib.ggml_get_first_tensor(self.ctx)
        while t:
            known[t] = len(known)
            t = self.lib.ggml_get_next_tensor(self.ctx, t)
        out["src"] = tuple(known[s] if s else None for s in out["src"])
        out["view_src"] = known[out["view_src"]] if out["view_src"] else None
        del out["flags"]
        return out

    def compute(self, data: Sequence[bytes]) -> Any:
        """The result's values."""
        lib = self.lib
        with self._computed(data):
            out = lib.fields(self.result)
            dtype = TYPES[out["type"]]
            shape, strides = out["ne"][::-1], out["nb"][::-1]
            if dtype.quantized:
                shape, strides = (*shape[:3], dtype.row_size(shape[3])), (*strides[:3], 1)
            raw = lib.get(self.result) if lib.ggml_nbytes(self.result) else b""
            if not raw:
                return np.empty(shape, dtype=numpy_type(dtype))
            return np.ndarray(shape, numpy_type(dtype), raw, 0, strides).copy()

    def memory_after(self, data: Sequence[bytes]) -> list[bytes]:
        """The bytes of the sources, after the result was computed."""
        with self._computed(data):
            return [self.lib.get(t) for t in self.owners]

    @contextmanager
    def _computed(self, data: Sequence[bytes]) -> Iterator[None]:
        """While the result and the sources have their values."""
        lib = self.lib
        graph = lib.graph(self.ctx, [self.result])
        buffer = lib.allocate(self.ctx)
        try:
            for t, raw in zip(self.owners, data, strict=True):
                if raw:
                    lib.set(t, raw)
            status = lib.compute(graph)
            if status:
                raise RuntimeError(f"ggml_status {status}")
            yield
        finally:
            if buffer:
                lib.ggml_backend_buffer_free(buffer)


NEEDS_IMPORTANCE = ("iq2_xxs", "iq2_xs", "iq1_s")
"""ggml_quantize_requires_imatrix."""

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 0.5, -0.5, 2.5, 89.0, -104.0]


def values_of(s: Src, n: int, rng: np.random.Generator) -> Any:
    """`n` float32 values of the kind that the source asks for."""
    if not isinstance(s.data, str):
        return np.resize(np.asarray(s.data).reshape(-1), n)
    match s.data:
        case "normal":
            return rng.standard_normal(n).astype(np.float32)
        case "wide":
            return (rng.standard_normal(n) * 20).astype(np.float32)
        case "positive":
            return rng.uniform(0.1, 3, n).astype(np.float32)
        case "special":
            return np.resize(np.float32(SPECIAL), n)
        case "ints":
            return rng.integers(0, 5, n)
        case "distinct":
            return rng.permutation(n).astype(np.float32) - n // 2
        case "mask":
            return np.where(rng.random(n) < 0.3, -np.inf, rng.standard_normal(n)).astype(np.float32)
    raise ValueError(s.data)


def bytes_of(lib: Lib, s: Src, rng: np.random.Generator) -> bytes:
    """The bytes a source's memory is filled with (of the tensor behind it, for a view)."""
    n = s.base_elements if s.is_view else int(np.prod(s.dims))
    if isinstance(s.data, bytes):
        return s.data
    values = values_of(s, n, rng)
    if s.dtype.quantized:
        values = np.ascontiguousarray(values, dtype=np.float32)
        out = ctypes.create_string_buffer(s.dtype.row_size(n))
        block = s.dtype.block_size
        ones = np.ones(block, dtype=np.float32)
        importance = ones.ctypes.data if s.type in NEEDS_IMPORTANCE else None
        lib.ggml_quantize_chunk(s.dtype.id, values.ctypes.data, out, 0, n // block, block, importance)
        return out.raw
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(values.astype(numpy_type(s.dtype))).tobytes()


def check_tensor(lib: Lib, case: Call) -> None:
    """Both make the same tensor."""
    with lib.context() as ctx:
        expected = Real(lib, ctx, case).fields()
    assert Engine(case, release_of(lib)).fields() == expected


def build(release: str, case: Call) -> None:
    """Have the library make the tensor, in memory that is not given back."""
    lib = load(RELEASES[release])
    Real(lib, lib.init(1 << 22), case)


def refuse(lib: Lib, calls: Sequence[Call]) -> None:
    """Both refuse each of the calls, for the same reason."""
    release = release_of(lib)

    def check(pair: tuple[Call, Any]) -> None:
        case, outcome = pair
        assert isinstance(outcome, Abort), "the library accepts it"
        with pytest.raises(GgmlError) as caught:
            Engine(case, release)
        assert caught.value.message == outcome.text
        assert caught.value.explanation
        assert caught.value.function.startswith("ggml_")

    each(zip(calls, each_apart(release.name, build, calls), strict=True), check, lambda pair: str(pair[0]))


def both_values(lib: Lib, case: Call, seed: int = 1) -> tuple[Any, Any]:
    """The values that the engine and the library compute, in the result's own type."""
    data = data_of(lib, case, seed)
    with lib.context() as ctx:
        expected = Real(lib, ctx, case).compute(data)
    return Engine(case, release_of(lib)).compute(data), expected


def nmse(got: Any, expected: Any) -> float:
    """The normalised mean squared error, of the elements that are finite."""
    finite = np.isfinite(expected)
    expected = expected[finite].astype(np.float64)
    error = got[finite].astype(np.float64) - expected
    power = float((expected * expected).sum())
    return float((error * error).sum()) / power if power else float((error * error).sum())


def check_result(case: Call, got: Any, expected: Any) -> None:
    """Integers are equal, NaN and infinities in the same places, the rest is close."""
    assert got.shape == expected.shape
    if not np.issubdtype(expected.dtype, np.floating) and "bfloat" not in expected.dtype.name:
        assert np.array_equal(got, expected), f"{case}\n{got}\n{expected}"
        return
    got, expected = got.astype(np.float32), expected.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(expected)), f"{case}\n{got}\n{expected}"
    assert np.array_equal(np.where(np.isinf(got), got, 0), np.where(np.isinf(expected), expected, 0)), str(case)
    # Another processor rounds a few values of a product to another one of 8 bits.
    allowed = max(case.nmse, 1e-7) if isinstance(got, MovedArray) else case.nmse
    assert nmse(got, expected) <= allowed, str(case)


def data_of(lib: Lib, case: Call, seed: int = 1) -> list[bytes]:
    """What the memory of the sources is filled with."""
    rng = np.random.default_rng(seed)
    return [bytes_of(lib, s, rng) for s in (*case.sources, case.sinks) if s is not None]


def check_values(lib: Lib, case: Call, seed: int = 1) -> None:
    """Both compute the same values."""
    check_result(case, *both_values(lib, case, seed))


def outcome_here(release: Release, case: Call, data: Sequence[bytes]) -> Any:
    """What the engine makes of a call: the error that it refuses with, or the tensor and the values."""
    try:
        engine = Engine(case, release)
        engine.place()
        if 0 not in engine.result.ne:
            check(engine.result, engine.ctx.rules)
        return engine.fields(), np.array(engine.compute(data))
    except GgmlError as error:
        return error


def outcome_there(release: str, drawn: tuple[Call, int]) -> Any:
    """What the library makes of a call, with the seed of its data; it may abort."""
    lib, (case, seed) = load(RELEASES[release]), drawn
    real = Real(lib, lib.init(1 << 22), case)
    return real.fields(), real.compute(data_of(lib, case, seed))


def compare(case: Call, here: Any, there: Any) -> None:
    """Both compute the same values in the same tensor, or refuse in the same words.

    Quantized values are compared as float32: the library's vector code rounds halves to even, others away.
    """
    if isinstance(here, GgmlError) or isinstance(there, Abort):
        assert getattr(here, "message", "computed") == getattr(there, "text", "computed"), str(case)
        assert here.explanation
        assert here.function
        return
    assert here[0] == there[0], str(case)
    type = TYPES[here[0]["type"]]
    if type.quantized and any(s is not None and s.dtype != type for s in case.sources):
        here, there = ((None, dequantize(values, type)) for _, values in (here, there))
    check_result(case, here[1], there[1])


def agree(lib: Lib, drawn: Sequence[tuple[Call, int]], judge: Callable[[Call, Any, Any], None] = compare) -> None:
    """The engine and the library make the same of calls, with the seed of each one's data."""
    release = release_of(lib)
    outcomes = each_apart(release.name, outcome_there, drawn)
    pairs = zip(drawn, outcomes, strict=True)
    each(
        pairs,
        lambda pair: judge(pair[0][0], outcome_here(release, pair[0][0], data_of(lib, *pair[0])), pair[1]),
        lambda pair: str(pair[0][0]),
    )


def for_each(check: Callable[[Lib, Call], None]) -> Callable[[Sequence[Call]], Callable[..., None]]:
    """A test of all cases, to be given a name in a module of tests: an item for each constructor and release.

    Its `cases` are what its `check` is called with.
    """

    def make(cases: Sequence[Call]) -> Callable[..., None]:
        def test(calls: list[Call], lib: Lib) -> None:
            each(calls, lambda case: check(lib, case))

        test.cases, test.check = cases, check  # type: ignore[attr-defined]
        return test

    return make
