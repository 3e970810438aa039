"""A real ggml through ctypes, with small helpers to call single constructors and compute graphs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.releases.release import Library, Release
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.oracle import fork, prototypes
from ggmltool.oracle.fork import Abort, ChildError
from ggmltool.oracle.structs import MAX_DIMS, BufferI, CGraphStruct, InitParams, Tensor
from ggmltool.structs.mirrors import mirrors_of

LIBRARIES = "GGMLTOOL_LIBRARIES"
"""The environment variable with further folders, each made by `pip install --target`, separated by os.pathsep."""

PACKAGES = {
    "libggml": (("lib64/libggml-base.so", "lib64/libggml-cpu.so"), ("lib/libggml-base.so", "lib/libggml-cpu.so")),
    "xllamacpp": (("xllamacpp.abi3.so", "xllamacpp.abi3.so"),),
}
"""Packages that carry a ggml: the files that have its base and its CPU backend."""


class Files(NamedTuple):
    """A library on disk: what has its base, and what its CPU backend (often the same file)."""

    base: Path
    cpu: Path


def libraries() -> Iterator[Files]:
    """All that are there, the installed ones first."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from _in_package(name, Path(place))
    for folder in _folders():
        for name in PACKAGES:
            yield from _in_package(name, Path(folder) / name)


def places(package: str) -> Iterator[Path]:
    """Where a package is: installed, then in the folders."""
    spec = importlib.util.find_spec(package)
    yield from map(Path, (spec.submodule_search_locations or ()) if spec else ())
    yield from (Path(folder) / package for folder in _folders())


def _folders() -> list[str]:
    return [folder for folder in os.environ.get(LIBRARIES, "").split(os.pathsep) if folder]


def _in_package(name: str, folder: Path) -> Iterator[Files]:
    for base, cpu in PACKAGES[name]:
        files = Files(folder / base, folder / cpu)
        if files.base.exists() and files.cpu.exists():
            yield files
            return


__all__ = ["Abort", "ChildError", "Lib", "OracleUnavailable", "load", "open_library"]

_STRUCTS = {"S": InitParams, "F": BufferI}

LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class OracleUnavailable(Exception):  # noqa: N818 - it says what is the matter
    """There is no real library of a release here; the message says what there is, and how to get one."""


@cache
def load(release: Release = DEFAULT) -> Lib:
    """The real library of a release, loaded once per process. Raises OracleUnavailable."""
    wanted = release.library
    if wanted is None:
        carried = ", ".join(r.name for r in RELEASES.values() if r.library is not None)
        raise OracleUnavailable(
            f"No package carries the real library of ggml {release.name}; there are those of ggml {carried}. Name one "
            "of them with --ggml"
        )
    others: list[str] = []
    for files in libraries():
        try:
            lib = open_library(files)
        except OracleUnavailable as error:
            others.append(str(error))
            continue
        other = lib.differs_from(wanted)
        if not other:
            return lib
        others.append(f"{other} ({files.base})")
    raise OracleUnavailable(missing(release, wanted, others))


@cache
def open_library(files: Files) -> Lib:
    """Any ggml, of whatever release. Raises OracleUnavailable if it cannot be loaded or is too old to be understood."""
    return Lib(files)


def missing(release: Release, wanted: Library, others: Sequence[str]) -> str:
    """What is said if the library of a release is not here, but `others` are."""
    found = f"found only {', '.join(others)}" if others else "no ggml is installed"
    extra = f" (ggmltool's extra `{wanted.extra}`)" if wanted.extra else ""
    package = wanted.requirement
    return (
        f"The real library of ggml {release.name} is missing; {found}. Install it with `pip install {package}`{extra}; "
        f"or, beside another version, `pip install --target FOLDER {package}` and {LIBRARIES}=FOLDER"
    )


class Lib:
    """A loaded library.

    A function of ggml is an attribute under its own name (`lib.ggml_nbytes(t)`), everything ggml owns is an address.
    `version` and `commit` are what ggml_version() and ggml_commit() say (often "unknown").
    `structs` has its structs as ctypes classes, by tag.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        try:
            self.base = base = ctypes.CDLL(str(files.base), mode=ctypes.RTLD_LOCAL)
            self.cpu = cpu = ctypes.CDLL(str(files.cpu), mode=ctypes.RTLD_LOCAL)
            _bind(self, base, prototypes.BASE)
            _bind(self, base, {name: s for name, s in prototypes.LATER.items() if hasattr(base, name)})
            _bind(self, cpu, prototypes.CPU)
            self.constructors: dict[str, Any] = {}
            always = prototypes.in_all_libraries()
            for name, arguments in prototypes.constructors().items():
                if name in always or hasattr(base, f"ggml_{name}"):
                    function = self.constructors[name] = getattr(base, f"ggml_{name}")
                    function.restype = ctypes.c_void_p
                    function.argtypes = [ctypes.c_void_p, *[prototypes.CTYPES[a] for a in arguments]]
        except (OSError, AttributeError) as error:
            raise OracleUnavailable(f"{files.base} cannot be used: {error}") from error
        if _address(base.ggml_version) != _address(cpu.ggml_version):
            raise OracleUnavailable(f"{files.cpu} runs on another library of the same name, which was loaded before")
        self.version = str(self.ggml_version().decode())
        self.commit = str(self.ggml_commit().decode())
        self.structs = mirrors_of(self.version, self.exports)
        # The functions of a buffer type must be those of the layout, as the CPU's are.
        table = self.structs["ggml_backend_buffer_type"].from_address(self.ggml_backend_cpu_buffer_type()).iface
        has = {name for name, _ in table._fields_ if getattr(table, name)}
        if has != {"get_name", "alloc_buffer", "get_alignment", "is_host"}:
            raise OracleUnavailable(f"{self.files.base} is {self.said}, whose buffer types ggmltool does not know")
        self._cpu_backend = 0

    def exports(self, function: str) -> bool:
        """Whether the library has a function."""
        return hasattr(self.base, function)

    def differs_from(self, library: Library) -> str:
        """What this library says of itself, or what it lacks, if it is not that one; else ""."""
        if self.version != library.version:
            return self.said
        lacks = [function for function in library.exports if not self.exports(function)]
        return f"{self.said} without {' and '.join(lacks)}" if lacks else ""

    @property
    def said(self) -> str:
        """What the library says of itself: its version, and the commit if it knows that."""
        return f"ggml {self.version}" + (f" ({self.commit})" if self.commit != "unknown" else "")

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
        given = [
            type_id(a) if isinstance(a, (DType, str))
            else (ctypes.c_int32 * len(a))(*a) if isinstance(a, (list, tuple))
            else a
            for a in args
        ]  # fmt: skip
        return int(self.constructors[constructor](ctx, *given))

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
        g = CGraphStruct.from_address(graph)
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


def _bind(lib: Lib, library: ctypes.CDLL, table: Mapping[str, str]) -> None:
    for name, signature in table.items():
        result, _, arguments = signature.partition(":")
        function = getattr(library, name)
        function.restype = prototypes.CTYPES[result]
        function.argtypes = [_STRUCTS.get(a) or prototypes.CTYPES[a] for a in arguments]
        setattr(lib, name, function)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
