"""The real ggml 0.20.2 through ctypes, with small helpers to call single constructors and compute graphs."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.version import VERSION
from ggmltool.oracle import fork, prototypes
from ggmltool.oracle.fork import Abort, ChildError
from ggmltool.oracle.structs import MAX_DIMS, BufferI, CGraph, InitParams, Tensor

__all__ = ["Abort", "ChildError", "Lib", "OracleUnavailable", "load"]

_STRUCTS = {"S": InitParams, "F": BufferI}

LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


DISTRIBUTION = "0.20.2.post1"
"""The release of libggml-python that carries ggml 0.20.2."""


class OracleUnavailable(Exception):  # noqa: N818 - it says what is the matter
    """The real library is not installed, or is another version; the message says how to get it."""


@cache
def load() -> Lib:
    """The library of the Python package `libggml` (distribution libggml-python), loaded once per process."""
    return Lib(_folder())


def _folder() -> Path:
    spec = importlib.util.find_spec("libggml")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        for name in ("lib64", "lib"):
            folder = Path(place) / name
            if (folder / "libggml-base.so").exists() and (folder / "libggml-cpu.so").exists():
                return folder
    found = f"the package libggml at {places[0]} has no libggml-base.so" if places else "the package is not installed"
    raise OracleUnavailable(
        f"The real ggml library is missing: {found}. Install it with `pip install libggml-python=={DISTRIBUTION}` "
        "(ggmltool's extra `oracle`)"
    )


class Lib:
    """The loaded library.

    A function of ggml is an attribute under its own name (`lib.ggml_nbytes(t)`), everything ggml owns is an address.
    """

    def __init__(self, folder: Path) -> None:
        try:
            base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
            cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
            _bind(self, base, prototypes.BASE)
            _bind(self, cpu, prototypes.CPU)
            self.constructors = _constructors(base)
        except (OSError, AttributeError) as error:
            raise OracleUnavailable(f"The real ggml library at {folder} cannot be used: {error}") from error
        version = self.ggml_version().decode()
        if version != VERSION:
            raise OracleUnavailable(f"The installed ggml library is {version}; ggmltool needs {VERSION}.")
        self.base = base
        self.cpu = cpu
        self._cpu_backend = 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the oracle binds no function {name!r}; add it to ggmltool.oracle.prototypes")

    def init(self, mem_size: int, no_alloc: bool = True) -> int:
        """ggml_init: a new context."""
        return int(self.ggml_init(InitParams(mem_size, None, no_alloc)))

    @contextmanager
    def context(self, mem_size: int = 1 << 22, no_alloc: bool = True) -> Iterator[int]:
        """A context that is freed at the end of the block."""
        ctx = self.init(mem_size, no_alloc)
        try:
            yield ctx
        finally:
            self.ggml_free(ctx)

    def tensor(
        self,
        ctx: int,
        type: DType | str | int,
        ne: Sequence[int],
        nb: Sequence[int] | None = None,
        name: str = "",
    ) -> int:
        """ggml_new_tensor with missing dimensions 1; `nb` overwrites the strides."""
        sizes = (ctypes.c_int64 * MAX_DIMS)(*ne, *[1] * (MAX_DIMS - len(ne)))
        t = int(self.ggml_new_tensor(ctx, type_id(type), MAX_DIMS, sizes))
        if nb is not None:
            Tensor.from_address(t).nb[: len(nb)] = list(nb)
        if name:
            self.ggml_set_name(t, name.encode())
        return t

    def call(self, constructor: str, ctx: int, *args: Any) -> int:
        """A constructor by its name without ggml_; types may be names, int arrays may be lists, NULL is None.

        Gives back the new tensor's address.
        """
        return int(self.constructors[constructor](ctx, *[_argument(a) for a in args]))

    def fields(self, tensor: int) -> dict[str, Any]:
        """What a constructor wrote: type name, ne, nb, op, op_params (16 words), flags, src, view_src, view_offs, name.

        `src` has the addresses up to the last one that is not NULL; `view_src` is an address or None.
        """
        t = Tensor.from_address(tensor)
        src = list(t.src)
        while src and not src[-1]:
            src.pop()
        return {
            "type": self.ggml_type_name(t.type).decode(),
            "ne": tuple(t.ne),
            "nb": tuple(t.nb),
            "op": t.op,
            "op_params": tuple(t.op_params),
            "flags": t.flags,
            "src": tuple(src),
            "view_src": t.view_src,
            "view_offs": t.view_offs,
            "name": t.name.decode("utf-8", "surrogateescape"),
        }

    def allocate(self, ctx: int) -> int:
        """Gives every tensor of a no_alloc context CPU memory; the buffer's address (0: nothing to allocate)."""
        buft = self.ggml_backend_cpu_buffer_type()
        return int(self.ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft) or 0)

    def graph(self, ctx: int, outputs: Sequence[int], size: int = 2048) -> int:
        """A new graph in `ctx`, expanded with `outputs` in order."""
        graph = int(self.ggml_new_graph_custom(ctx, size, False))
        for t in outputs:
            self.ggml_build_forward_expand(graph, t)
        return graph

    def graph_tensors(self, graph: int) -> tuple[list[int], list[int]]:
        """The graph's nodes and leafs, in its order."""
        g = CGraph.from_address(graph)
        return g.nodes[: g.n_nodes], g.leafs[: g.n_leafs]

    def cpu_backend(self, threads: int = 1) -> int:
        """The real CPU backend, made at first use."""
        if not self._cpu_backend:
            self._cpu_backend = int(self.ggml_backend_cpu_init())
        self.ggml_backend_cpu_set_n_threads(self._cpu_backend, threads)
        return self._cpu_backend

    def compute(self, graph: int, threads: int = 1) -> int:
        """Computes an allocated graph on the real CPU backend; the ggml_status (0: success)."""
        return int(self.ggml_backend_graph_compute(self.cpu_backend(threads), graph))

    def set(self, tensor: int, data: bytes) -> None:
        """ggml_backend_tensor_set of the whole tensor, raw bytes in its own type."""
        self.ggml_backend_tensor_set(tensor, data, 0, len(data))

    def get(self, tensor: int) -> bytes:
        """ggml_backend_tensor_get of ggml_nbytes bytes: raw, with the tensor's own strides."""
        size = self.ggml_nbytes(tensor)
        data = ctypes.create_string_buffer(size)
        self.ggml_backend_tensor_get(tensor, data, 0, size)
        return data.raw

    def run_forked(self, function: Callable[[], Any]) -> Any:
        """`function` in a forked child: what it returns (picklable), or an `Abort` where ggml aborted."""
        return fork.run_forked(function, self.ggml_set_abort_callback)


def type_id(type: DType | str | int) -> int:
    """ggml's number of a type given as DType, name or number."""
    if isinstance(type, DType):
        return type.id
    return TYPES[type].id if isinstance(type, str) else type


def _argument(value: Any) -> Any:
    if isinstance(value, (DType, str)):
        return type_id(value)
    if isinstance(value, (list, tuple)):
        return (ctypes.c_int32 * len(value))(*value)
    return value


def _bind(lib: Lib, library: ctypes.CDLL, table: Mapping[str, str]) -> None:
    for name, signature in table.items():
        result, _, arguments = signature.partition(":")
        function = getattr(library, name)
        function.restype = prototypes.CTYPES[result]
        function.argtypes = [_STRUCTS.get(a) or prototypes.CTYPES[a] for a in arguments]
        setattr(lib, name, function)


def _constructors(library: ctypes.CDLL) -> dict[str, Any]:
    constructors = {}
    for name, arguments in prototypes.CONSTRUCTORS.items():
        function = getattr(library, f"ggml_{name}")
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_void_p, *[prototypes.CTYPES[a] for a in arguments]]
        constructors[name] = function
    return constructors
