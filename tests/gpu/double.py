"""A cupy made of numpy: what the library has, and no more, with streams that are watched instead of a GPU.

Names and parameters are those of the data file (record.py). An array of the host is refused where cupy refuses it, and
so is the way back without a call that says so. Memory is not zero when it is new, what is copied to the host arrives
when the host has waited for it, and memory that two streams touch without one waiting for the other is a Race.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from tests.gpu.record import read
from tests.gpu.timeline import Clock, Timeline

API: dict[str, dict[str, Any]] = read()["names"]

CREATION = frozenset(("arange", "array", "asarray", "empty", "eye", "full", "ones", "zeros"))
"""Functions whose first argument need not be an array of the device."""

FROM_HOST = frozenset(("array", "asarray", "ascontiguousarray"))
"""Functions that take arrays of the host."""

GARBAGE = 0xCD

NULL = 0
"""The stream that work goes to where nobody chose one."""


class CUDARuntimeError(RuntimeError):
    """A call to CUDA failed."""


class Memory:
    """cupy.cuda.Memory: one allocation on the current device."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        if size > cuda.free[cuda.current_device]:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        self.bytes = np.full(size, GARBAGE, np.uint8)
        self.size, self.device_id, self.ptr = size, cuda.current_device, self.bytes.ctypes.data
        cuda.free[self.device_id] -= size
        cuda.memories[self.ptr] = self
        self._cuda = cuda

    def __del__(self) -> None:
        if hasattr(self, "_cuda"):
            self._cuda.free[self.device_id] += self.size
            self._cuda.timeline.forget(self.ptr)


class MemoryPointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem, self.offset, self.ptr = mem, offset, mem.ptr + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.offset + offset)

    def memset_async(self, value: int, size: int, stream: Stream) -> None:
        cuda = self.mem._cuda
        work = cuda.timeline.begin(stream.ptr, "memset")
        cuda.timeline.touch(work, self.mem.ptr, self.ptr, self.ptr + size, True)
        self.mem.bytes[self.offset : self.offset + size] = value


class Device:
    """cupy.cuda.Device; as a context manager the current one."""

    def __init__(self, cuda: Cuda, number: int) -> None:
        self._cuda, self.id = cuda, number
        self.mem_info = (cuda.free[number], cuda.total)

    def __enter__(self) -> Device:
        self._cuda.devices.append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._cuda.devices.pop() == self.id


class Stream:
    """cupy.cuda.Stream of the current device; as a context manager the current one of that device."""

    def __init__(self, cuda: Cuda, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        assert non_blocking, "the others wait for the null stream"
        assert not null
        assert not ptds
        cuda.n_streams += 1
        self._cuda, self.ptr, self.device_id = cuda, cuda.n_streams, cuda.current_device
        cuda.made.append(self)

    def __enter__(self) -> Stream:
        assert self._cuda.current_device == self.device_id
        self._cuda.streams[self.device_id].append(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._cuda.streams[self.device_id].pop() is self

    def synchronize(self) -> None:
        self._cuda.timeline.synchronize(self.ptr)

    def wait_event(self, event: Event) -> None:
        assert self._cuda.current_device == self.device_id
        self._cuda.timeline.wait(self.ptr, _behind(event).clock)


class Event:
    """cupy.cuda.Event."""

    def __init__(
        self, cuda: Cuda, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        assert not interprocess
        self._cuda, self.device_id = cuda, cuda.current_device
        self.clock: Clock = {}

    def record(self, stream: Stream) -> None:
        assert self.device_id == _behind(stream).device_id == self._cuda.current_device
        self.clock = self._cuda.timeline.record(stream.ptr)

    def synchronize(self) -> None:
        self._cuda.timeline.synchronize_event(self.clock)


class Runtime:
    """cupy.cuda.runtime."""

    CUDARuntimeError = CUDARuntimeError
    memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3  # noqa: N815 - cupy's names

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def getDeviceCount(self) -> int:  # noqa: N802 - cupy's name
        return len(self._cuda.free)

    def getDeviceProperties(self, device: int) -> dict[str, Any]:  # noqa: N802 - cupy's name
        return {"name": b"Double %d" % device}

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802 - cupy's name
        to, of = self._cuda.memory_at(dst, size), self._cuda.memory_at(src, size)
        expected = {1: (False, True), 2: (True, False), 3: (True, True)}[kind]
        if (of is not None, to is not None) != expected:
            raise CUDARuntimeError("cudaErrorInvalidValue")
        self._copy(("", "host to device", "device to host", "device to device")[kind], dst, src, size, stream)

    def memcpyPeerAsync(  # noqa: N802 - cupy's name
        self,
        dst: int,
        dstDevice: int,  # noqa: N803
        src: int,
        srcDevice: int,  # noqa: N803
        size: int,
        stream: int,
    ) -> None:
        for ptr, device in ((dst, dstDevice), (src, srcDevice)):
            memory = self._cuda.memory_at(ptr, size)
            if memory is None or memory.device_id != device:
                raise CUDARuntimeError("cudaErrorInvalidValue")
        self._copy("device to peer", dst, src, size, stream)

    def _copy(self, what: str, dst: int, src: int, size: int, stream: int) -> None:
        line = self._cuda.timeline
        work = line.begin(stream, what)
        for ptr, writes in ((src, False), (dst, True)):
            memory = self._cuda.memory_at(ptr, size)
            if memory is not None:
                line.touch(work, memory.ptr, ptr, ptr + size, writes)
        content = ctypes.string_at(src, size)
        if what != "device to host":
            ctypes.memmove(dst, content, size)
            return
        ctypes.memset(dst, GARBAGE, size)
        line.when_done(work, lambda: ctypes.memmove(dst, content, size) and None)


class Cuda:
    """cupy.cuda, and behind it the state of the devices: free bytes, current device and streams, what was done."""

    def __init__(self, devices: int, total: int) -> None:
        self.total = total
        self.free = [total] * devices
        self.devices = [0]
        self.streams: list[list[Stream]] = [[] for _ in range(devices)]
        self.n_streams = 0
        self.made: list[Stream] = []
        self.memories: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()
        self.pinned: list[int] = []
        self.timeline = Timeline()
        self.runtime = Restricted(Runtime(self), "cupy.cuda.runtime")

    @property
    def current_device(self) -> int:
        return self.devices[-1]

    @property
    def current_stream(self) -> int:
        mine = self.streams[self.current_device]
        return mine[-1].ptr if mine else NULL

    def memory_at(self, ptr: int, size: int) -> Memory | None:
        """The allocation that bytes lie in; None where they are the host's."""
        return next((m for m in self.memories.values() if m.ptr <= ptr and ptr + size <= m.ptr + m.size), None)

    def wait(self, what: str) -> None:
        """The host waits for the current stream, as it does for a value."""
        self.timeline.calls.append(what)
        self.timeline.synchronize(self.current_stream)

    def Device(self, device: int) -> Any:  # noqa: N802 - cupy's name
        return Restricted(Device(self, device), "cupy.cuda.Device")

    def Stream(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> Any:  # noqa: N802
        return Restricted(Stream(self, null, non_blocking, ptds), "cupy.cuda.Stream", "ptr", "device_id")

    def Event(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> Any:  # noqa: N802
        return Restricted(Event(self, block, disable_timing, interprocess), "cupy.cuda.Event")

    def Memory(self, size: int) -> Memory:  # noqa: N802 - cupy's name
        return Memory(self, size)

    def MemoryPointer(self, mem: Memory, offset: int) -> MemoryPointer:  # noqa: N802 - cupy's name
        return MemoryPointer(mem, offset)

    def PinnedMemory(self, size: int, flags: int = 0) -> Any:  # noqa: N802 - cupy's name
        self.pinned.append(size)
        return (ctypes.c_ubyte * size)(*([GARBAGE] * min(size, 64)))

    def PinnedMemoryPointer(self, mem: Any, offset: int) -> Any:  # noqa: N802 - cupy's name
        assert offset == 0
        return mem


class Restricted:
    """An object with those names only that cupy's has; `more` are attributes that each object gets of its own."""

    def __init__(self, of: Any, owner: str, *more: str) -> None:
        self.__dict__["_of"] = of
        self.__dict__["_names"] = {*API[owner], *more}

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"cupy has no {name} here")
        return getattr(self._of, name)

    def __enter__(self) -> Any:
        self._of.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._of.__exit__(*error)


def _behind(thing: Any) -> Any:
    return thing._of if isinstance(thing, Restricted) else thing


def _base_of(a: Any) -> Any:
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


class Array:
    """cupy.ndarray: an array of numpy that hides from numpy."""

    def __init__(
        self,
        shape: Any = (),
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: Any = None,
        order: str = "C",
        *,
        _of: Any = None,
        _cupy: Cupy | None = None,
    ) -> None:
        if memptr is not None:
            cuda = memptr.mem._cuda
            dtype = np.dtype(dtype)
            _cupy = cuda.cupy  # type: ignore[attr-defined]
            ends = [(n - 1) * s for n, s in zip(shape, strides or (), strict=bool(strides))]
            if (
                memptr.offset + sum(ends) + dtype.itemsize > memptr.mem.size
                or memptr.mem.device_id != cuda.current_device
            ):
                raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
            if memptr.ptr % dtype.itemsize or any(s % dtype.itemsize for s in strides or ()):
                raise CUDARuntimeError("cudaErrorMisalignedAddress: misaligned address")
            _of = np.ndarray(shape, dtype, memptr.mem.bytes, memptr.offset, strides)
            self._block, self._pointer = memptr.mem.ptr, memptr
        else:
            self._block, self._pointer = id(_base_of(_of)), None
        self._a, self._cupy = _of, _cupy

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = API["cupy.ndarray"].get(name)
        if found is None:
            raise AttributeError(f"cupy.ndarray has no {name}")
        if name == "data":
            return self._pointer
        if name in ("shape", "dtype", "size", "ndim", "strides", "nbytes", "itemsize"):
            return getattr(self._a, name)
        if name == "flags":
            return self._a.flags
        if name == "T":
            return self._cupy.wrap(self._a.T, [self])
        method = getattr(self._a, name)
        if name in ("item", "tolist"):
            self._cupy.state.wait(name)
            return method
        return self._cupy.checked(f"ndarray.{name}", found[1:], method, [self])

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        if ufunc.__name__ in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"):
            # Numpy hands its scalars on as arrays here, which cupy turns back (numpy#12142).
            inputs = tuple(x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
        return getattr(self._cupy, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, *_: object) -> Any:
        raise TypeError("a function of numpy was called with an array of the device")

    def __getitem__(self, index: Any) -> Any:
        arrays = [self, *_arrays_in(index)]
        _refuse_host(index)
        return self._cupy.run("getitem", lambda: self._a[_unwrap(index)], arrays)

    def __setitem__(self, index: Any, value: Any) -> None:
        _refuse_host(index)
        _refuse_host(value)
        cupy = self._cupy

        def assign() -> None:
            self._a[_unwrap(index)] = _unwrap(value)

        target = np.asarray(self._a[_unwrap(index)]) if not _arrays_in(index) else self._a
        cupy.run("setitem", assign, [*_arrays_in(index), *_arrays_in(value)], [(self._block, target)])

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self._a)))

    def __bool__(self) -> bool:
        self._cupy.state.wait("bool")
        return bool(self._a)

    def __int__(self) -> int:
        self._cupy.state.wait("int")
        return int(self._a)

    def __float__(self) -> float:
        self._cupy.state.wait("float")
        return float(self._a)

    def __index__(self) -> int:
        self._cupy.state.wait("index")
        return int(self._a.__index__())

    def __matmul__(self, other: Any) -> Any:
        return self._cupy.matmul(self, other)

    __hash__ = None  # type: ignore[assignment]


def _operator(name: str, ufunc: str, swapped: bool = False, in_place: bool = False) -> None:
    def method(self: Array, *others: Any) -> Any:
        args = (*others, self) if swapped else (self, *others)
        return getattr(self._cupy, ufunc)(*args, **({"out": self} if in_place else {}))

    setattr(Array, name, method)


for _name, _ufunc in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    _operator(f"__{_name}__", _ufunc)
    _operator(f"__r{_name}__", _ufunc, swapped=True)
    _operator(f"__i{_name}__", _ufunc, in_place=True)
for _name, _ufunc in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "neg": "negative", "invert": "invert", "abs": "absolute",
}.items():  # fmt: skip
    _operator(f"__{_name}__", _ufunc)


def _unwrap(value: Any) -> Any:
    if isinstance(value, Array):
        return value._a
    if isinstance(value, tuple | list):
        return type(value)(_unwrap(v) for v in value)
    return value


def _arrays_in(value: Any) -> list[Array]:
    if isinstance(value, Array):
        return [value]
    if isinstance(value, tuple | list):
        return [a for v in value for a in _arrays_in(v)]
    return []


def _refuse_host(value: Any) -> None:
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, tuple | list):
        for v in value:
            _refuse_host(v)


class Ufunc:
    """A cupy.ufunc."""

    def __init__(self, cupy: Cupy, name: str) -> None:
        self._cupy, self.__name__ = cupy, name
        self._function = np.vectorize(math.erf, otypes="f") if name == "erf" else getattr(np, name)

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, **more: Any) -> Any:
        if more:
            raise TypeError(f"{self.__name__} has no {', '.join(more)}")
        if isinstance(out, tuple):
            (out,) = out
        _refuse_host([*args, out])
        given = {} if dtype is None else {"dtype": dtype}
        if out is not None:

            def into() -> None:
                self._function(*_unwrap(args), out=out._a, casting="same_kind", **given)

            self._cupy.run(self.__name__, into, _arrays_in(args), [(out._block, out._a)])
            return out
        return self._cupy.run(self.__name__, lambda: self._function(*_unwrap(args), **given), _arrays_in(args))

    def at(self, a: Array, indices: Any, b: Any = None) -> None:
        if self.__name__ not in ("add", "maximum", "minimum"):
            raise NotImplementedError(f"`{self.__name__}.at` is not supported yet")
        _refuse_host((indices, b))
        self._cupy.run(
            f"{self.__name__}.at",
            lambda: self._function.at(a._a, _unwrap(indices), _unwrap(b)),
            [*_arrays_in(indices), *_arrays_in(b)],
            [(a._block, a._a)],
        )


class Cupy(ModuleType):
    """The module cupy, for `devices` GPUs of `total` bytes. `cuda.timeline` has what was done."""

    def __init__(self, devices: int = 1, total: int = 1 << 30) -> None:
        super().__init__("cupy")
        self.__spec__ = ModuleSpec("cupy", None)
        state = Cuda(devices, total)
        state.cupy = self  # type: ignore[attr-defined]
        self.state = state
        self.cuda: Any = Restricted(state, "cupy.cuda", "runtime")
        self.ndarray = Array
        self.matmul = self._matmul
        self.asnumpy = self._asnumpy
        self.lib = Restricted(_Lib(self), "cupy.lib.stride_tricks", "stride_tricks")
        self.pools_freed = 0

    def __getattr__(self, name: str) -> Any:
        found = API["cupy"].get(name)
        if found is None:
            raise AttributeError(f"cupy has no {name}")
        if found == "ufunc":
            return Ufunc(self, name)
        if found == "constant":
            return getattr(np, name)
        return self.checked(name, found, getattr(np, name), [])

    def get_default_memory_pool(self) -> Any:
        return Restricted(_Pool(self), "cupy.cuda.MemoryPool")

    def special(self) -> ModuleType:
        """The module cupyx.scipy.special."""
        module = ModuleType("cupyx.scipy.special")
        module.erf = Ufunc(self, "erf")  # type: ignore[attr-defined]
        return module

    def wrap(self, value: Any, inputs: list[Array]) -> Any:
        """An array of the device from one of numpy; a view of an input stays in its memory."""
        made = Array(_of=np.asarray(value), _cupy=self)
        base = _base_of(made._a)
        for a in inputs:
            if base is _base_of(a._a):
                made._block = a._block
                return made
        if self.state.timeline.races:
            weakref.finalize(base, self.state.timeline.forget, id(base))
        return made

    def run(
        self, what: str, compute: Callable[[], Any], inputs: list[Array], outputs: list[tuple[int, Any]] | None = None
    ) -> Any:
        """Work on the current stream."""
        line = self.state.timeline
        for a in inputs:
            if a._cupy is not self:
                raise TypeError("an array of another cupy")
        work = line.begin(self.state.current_stream, what)
        if line.races:
            for a in inputs:
                line.touch(work, a._block, *np.lib.array_utils.byte_bounds(a._a), False)
            for block, target in outputs or ():
                line.touch(work, block, *np.lib.array_utils.byte_bounds(target), True)
        with np.errstate(all="ignore"):
            out = compute()
        if out is None:
            return None
        return tuple(self.wrap(o, inputs) for o in out) if isinstance(out, tuple) else self.wrap(out, inputs)

    def checked(self, name: str, parameters: Any, function: Callable[..., Any], owner: list[Array]) -> Any:
        """A function of numpy that is called as cupy's is."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if isinstance(parameters, list):
                any_number = [p for p in parameters if p.startswith("*")]
                if not any_number and len(args) > len(parameters):
                    raise TypeError(f"cupy.{name} takes {len(parameters)} arguments")
                unknown = [k for k in kwargs if k not in parameters]
                if unknown and not any(p.startswith("*k") for p in any_number):
                    raise TypeError(f"cupy.{name} has no argument {', '.join(unknown)}")
            if name not in FROM_HOST:
                _refuse_host([*args, *kwargs.values()])
                if not owner and name not in CREATION and not _arrays_in(args[0]):
                    raise TypeError(f"cupy.{name} takes an array of the device first, not {type(args[0])}")
            arrays = [*owner, *_arrays_in(args), *_arrays_in(tuple(kwargs.values()))]
            if name in ("nonzero", "unique", "ndarray.nonzero"):
                self.state.wait(name)
            return self.run(
                name, lambda: function(*_unwrap(args), **{k: _unwrap(v) for k, v in kwargs.items()}), arrays
            )

        return call

    def _matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        _refuse_host([a, b, out])
        if not isinstance(a, Array) or not isinstance(b, Array):
            raise TypeError("Unsupported type")
        if not np.issubdtype(a.dtype, np.floating) or a.dtype.itemsize > 8:
            raise TypeError(a.dtype)
        dtype = np.promote_types(a.dtype, b.dtype)

        def product() -> Any:
            wide = [v._a.astype(np.float32) if v.dtype == np.float16 else v._a for v in (a, b)]
            return np.matmul(*wide).astype(dtype)

        if out is None:
            return self.run("matmul", product, [a, b])

        def into() -> None:
            out._a[...] = product()

        self.run("matmul", into, [a, b], [(out._block, out._a)])
        return out

    def _asnumpy(self, a: Array) -> Any:
        self.state.wait("asnumpy")
        return a._a.copy()


class _Lib:
    def __init__(self, cupy: Cupy) -> None:
        self._cupy = cupy

    @property
    def stride_tricks(self) -> Any:
        return Restricted(self, "cupy.lib.stride_tricks")

    def as_strided(self, x: Array, shape: Any = None, strides: Any = None) -> Any:
        return self._cupy.wrap(np.lib.stride_tricks.as_strided(x._a, shape, strides), [x])


class _Pool:
    def __init__(self, cupy: Cupy) -> None:
        self._cupy = cupy

    def free_all_blocks(self) -> None:
        self._cupy.pools_freed += 1
