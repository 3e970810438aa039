"""Devices made of callbacks: ggml sees backends whose every answer comes from the scenario.

A `World` holds the buffer types, devices and backends of one scenario as ggml's own structs. Where an answer is a
constant or the real CPU's, the struct points straight at the real library's function, so that ggml calls no Python.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import DECIDING_SOURCES, SEEN_BEHIND, Device, SplitNodes
from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.op import EMPTY_OPS
from ggmltool.ggml.state import BufferState
from ggmltool.ggml.tensor import Tensor as EngineTensor
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.oracle import structs
from ggmltool.oracle.answers import Capabilities, constant_true, rules_of
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import Tensor
from ggmltool.oracle.tensors import Mirror
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec

PAGE = 4096


class FakeMemory:
    """Addresses that nothing may touch: aligned, never NULL, never overlapping, of any size."""

    def __init__(self) -> None:
        self._next = 1 << 44

    def take(self, size: int, alignment: int) -> int:
        """The address of `size` bytes, a multiple of `alignment` and of a page."""
        step = max(alignment, PAGE)
        base = -(-self._next // step) * step
        self._next = base + size + PAGE
        return base


class RealMemory:
    """Zeroed pages, mapped when they are first touched and kept until the object goes."""

    def __init__(self) -> None:
        self._maps: list[tuple[mmap.mmap, object]] = []

    def take(self, size: int, alignment: int) -> int:
        """The address of `size` zero bytes, a multiple of `alignment`."""
        pages = mmap.mmap(-1, size + max(alignment, PAGE))
        view = ctypes.c_char.from_buffer(pages)
        self._maps.append((pages, view))
        base = ctypes.addressof(view)
        return -(-base // alignment) * alignment


REAL_MEMORY_LIMIT = 1 << 30
"""Bytes of tensors up to which the CPU's buffers are allocated by the real library."""

POISON = 0xFF
"""The bytes of memory that was freed, which is never given out again: NaN as floats."""

POISONED = 64 << 20
"""Bytes of a buffer up to which they are written: larger ones may never have been touched."""

DEVICE_TYPES = {"cpu": 0, "gpu": 1, "igpu": 2, "accel": 3}

Answered = Callable[[Device], None]
"""Lets somebody else answer for a device of the engine's."""


class MockBuft:
    """A buffer type of the engine's as ggml's: `address` is that of its struct, of which this one is the owner if there
    is a `struct`; else the library's own CPU type stands for it.

    A `silent` one has the real CPU's functions and leaves no trace.
    """

    def __init__(self, engine: BufferType, silent: bool = False) -> None:
        self.engine = engine
        self.name = engine.name
        self.silent = silent
        self.c_name = ctypes.create_string_buffer(self.name.encode("utf-8", "surrogateescape"))
        self.struct: Any = None
        self.address = 0


class MockDevice:
    """A device of the engine's with its backend: both structs share the object.

    `bufts` are the addresses of the types it can use, `restricted` of those with a list of ops, `deciding` of those
    whose own rule says what runs out of them.
    """

    def __init__(self, spec: BackendSpec, engine: Device, bufts: Mapping[str, MockBuft]) -> None:
        self.spec = spec
        self.rules = rules_of(spec)
        self.engine = engine
        self.name = engine.name
        self.buft = bufts[engine.buft.name]
        self.bufts = {bufts[b.name].address for b in engine.bufts}
        self.restricted = {bufts[b.name].address: b.ops for b in engine.restricted if b.ops is not None}
        self.deciding = {bufts[b.name].address for b in engine.deciding}
        self.device = structs.Device()
        self.backend = structs.Backend()
        self.c_name = ctypes.create_string_buffer(self.name.encode("utf-8", "surrogateescape"))
        self.device_address = ctypes.addressof(self.device)
        self.address = ctypes.addressof(self.backend)


class Callbacks:
    """The C callbacks, made once per process. Each looks its object up in the world that is current."""

    def __init__(self, lib: Lib, answered: Answered | None = None) -> None:
        self.lib = lib
        self.answered = answered
        self.world: World = None  # type: ignore[assignment]
        self.capabilities = Capabilities(lib)
        cpu = lib.structs["ggml_backend_buffer_type"].from_address(lib.ggml_backend_cpu_buffer_type())
        self.cpu_buft_address: int = lib.ggml_backend_cpu_buffer_type()
        self.true: int = constant_true(lib)
        self.cpu_alignment: int = cpu.iface.get_alignment
        answers = structs.Device.from_address(self.capabilities.cpu_device).iface
        self.cpu_supports_op: int = answers.supports_op
        self.cpu_supports_buft: int = answers.supports_buft
        made = lib.ggml_backend_buft_alloc_buffer(self.cpu_buft_address, 64)
        self.cpu_buffer = structs.BufferI.from_buffer_copy(structs.Buffer.from_address(made).iface)
        lib.ggml_backend_buffer_free(made)
        self._keep: list[object] = []
        buft = partial(self._callback, "ggml_backend_buffer_type_i")
        self.buft_name = buft("get_name", lambda a: ctypes.addressof(self.world.bufts[a].c_name))
        self.buft_alloc = buft("alloc_buffer", self._buft_alloc)
        self.buft_alignment = buft("get_alignment", lambda a: self.world.bufts[a].engine.alignment)
        self.buft_max_size = buft("get_max_size", lambda a: self.world.bufts[a].engine.max_size)
        self.buft_alloc_size = buft("get_alloc_size", self._buft_alloc_size)
        device = partial(self._callback, "ggml_backend_device_i")
        self.device_name = device("get_name", lambda a: ctypes.addressof(self.world.devices[a].c_name))
        self.device_type = device("get_type", lambda a: DEVICE_TYPES[self.world.devices[a].engine.type])
        self.device_buft = device("get_buffer_type", lambda a: self.world.devices[a].buft.address)
        self.device_supports_op = device("supports_op", self._device_supports_op)
        self.device_supports_buft = device("supports_buft", self._device_supports_buft)
        self.device_offload_op = device("offload_op", self._device_offload_op)
        self.event_new = device("event_new", self._event_new)
        self.event_free = device("event_free", lambda device, event: None)
        self.event_synchronize = device(
            "event_synchronize", lambda a, event: self._event("synchronize", self.world.devices[a], event)
        )
        backend = partial(self._callback, "ggml_backend_i")
        self.backend_name = backend("get_name", lambda a: ctypes.addressof(self.world.backends[a].c_name))
        self.graph_optimize = backend("graph_optimize", self._graph_optimize)
        self.synchronize = backend(
            "synchronize", lambda a: self.world.record(f"synchronize {self.world.backends[a].name}")
        )
        self.graph_compute = backend("graph_compute", self._graph_compute)
        self.event_record = backend(
            "event_record", lambda a, event: self._event("record", self.world.backends[a], event)
        )
        self.event_wait = backend("event_wait", lambda a, event: self._event("wait", self.world.backends[a], event))
        buffer = partial(self._callback, "ggml_backend_buffer_i")
        self.buffer_free = buffer("free_buffer", self._buffer_free)
        self.buffer_set = buffer("set_tensor", partial(self._transfer, "set"))
        self.buffer_get = buffer("get_tensor", partial(self._transfer, "get"))

    def _callback(self, struct: str, field: str, function: Callable[..., Any]) -> int:
        """The address of a C function for a field of one of this library's structs."""
        made = self.lib.structs.prototype(struct, field)(function)
        self._keep.append(made)
        return int(ctypes.cast(made, ctypes.c_void_p).value or 0)

    def _buft_alloc(self, address: int, size: int) -> int:
        world = self.world
        buft = world.bufts[address]
        made = size + buft.engine.slack
        base = world.memory.take(made, buft.engine.alignment)
        if buft.silent:
            iface = world.cpu_iface
        elif world.tracing:
            world.record(f"alloc_buffer {buft.name} {size}")
            iface = world.traced_iface
        else:
            iface = world.plain_iface
        return int(self.lib.ggml_backend_buffer_init(address, iface, base, made))

    def _buft_alloc_size(self, address: int, tensor: int) -> int:
        buft = self.world.bufts[address].engine
        if buft.alloc_size is not None:
            return buft.get_alloc_size(self.world.mirror.tensor(tensor))
        return self.capabilities.padded_size(tensor, buft.row_padding)

    def _device_supports_op(self, address: int, op: int) -> bool:
        mock = self.world.devices[address]
        if mock.rules == "engine" or (mock.deciding and _reads_from(mock.deciding, op)):
            return mock.engine.supports_op(self.world.mirror.tensor(op))
        return self.capabilities.supports_op(mock.rules, mock.spec.supports, mock.restricted, op)

    def _device_supports_buft(self, address: int, buft: int) -> bool:
        mock = self.world.devices[address]
        # Of a buffer that was freed ggml passes on what it finds there.
        known = self.world.bufts.get(buft)
        return buft in mock.bufts or (mock.engine.any_host and known is not None and known.engine.host)

    def _device_offload_op(self, address: int, op: int) -> bool:
        mock = self.world.devices[address]
        if mock.rules == "engine":
            return mock.engine.offload_op(self.world.mirror.tensor(op))
        minimum = mock.engine.offload_min_batch
        return minimum is not None and self.capabilities.batch_size(op) >= minimum

    def _event_new(self, device: int) -> int:
        world = self.world
        # A scheduler makes one event per pipeline copy.
        event = structs.Event(device, sum(e.device == device for e in world.events.values()))
        world.events[ctypes.addressof(event)] = event
        world.record(f"event_new {world.devices[device].name} {event.context or 0}")
        return ctypes.addressof(event)

    def _event(self, call: str, of: MockDevice, event: int) -> None:
        self.world.record(f"event_{call} {of.name} {self.world.events[event].context or 0}")

    def _graph_optimize(self, backend: int, address: int, params: int = 0) -> None:
        world = self.world
        optimize = world.backends[backend].engine.graph_optimize
        if optimize is None:
            return
        graph = structs.CGraphStruct.from_address(address)
        n = graph.n_nodes
        addresses = [int(node) for node in graph.nodes[:n]]
        # A split's graph shares its nodes with the whole graph, which may end here.
        addresses += takewhile(graph.has, graph.nodes[n : n + SEEN_BEHIND])
        sources = [s for address in addresses for s in structs.Tensor.from_address(address).src if s]
        tensors, where = world.mirror.tensors((*addresses, *sources))
        for t in tensors:
            t.id = world.names.get(where[id(t)], "")
        nodes = SplitNodes(tensors[:n], tensors[n : len(addresses)])

        def keep(tensor: EngineTensor, until: EngineTensor) -> None:
            given = structs.GraphOptimizeParams.from_address(params)
            add_alloc_dep = structs.ADD_ALLOC_DEP(given.add_alloc_dep)
            add_alloc_dep(given.user_data, where[id(tensor)], where[id(until)])

        ordered = optimize(nodes, lambda t: graph.use_count(where[id(t)]), keep)
        for i, node in enumerate(ordered):
            graph.nodes[i] = where[id(node)]

    def _graph_compute(self, backend: int, graph: int) -> int:
        world = self.world
        view = structs.CGraphStruct.from_address(graph)
        names = ", ".join(world.tensor_name(node) for node in view.nodes[: view.n_nodes])
        world.record(f"graph_compute {world.backends[backend].name} [{names}]")
        return self.lib.compute(graph)

    def _buffer_free(self, address: int) -> None:
        world = self.world
        buffer = structs.Buffer.from_address(address)
        if not world.bufts[buffer.buft].silent:
            world.record(f"free_buffer {world.bufts[buffer.buft].name} {buffer.size}")
        base = buffer.context or 0
        if not world.closing and base and buffer.size:
            world.freed.append((base, base + buffer.size))
            if buffer.size <= POISONED:
                ctypes.memset(base, POISON, buffer.size)

    def _transfer(self, call: str, buffer: int, tensor: int, data: int, offset: int, size: int) -> None:
        world = self.world
        name = world.bufts[structs.Buffer.from_address(buffer).buft].name
        world.record(f"{call}_tensor {name} {world.tensor_name(tensor)} {offset} {size}")
        at = Tensor.from_address(tensor).data + offset
        if call == "set":
            ctypes.memmove(at, data, size)
        else:
            ctypes.memmove(data, at, size)


class MockMemory(Protocol):
    """Where the bytes of mock buffers come from."""

    def take(self, size: int, alignment: int) -> int:
        """The address of `size` bytes, aligned."""


class World:
    """The buffer types, devices and backends of one scenario.

    `computing` takes real memory and records a trace of what ggml asked for; else addresses are made up and never
    touched. `order` has the backends by priority, `by_name` the buffer types a context can name. `freed` are the first
    and last addresses of memory that was freed while it computed; what is freed when it is `closing` does not count.
    `seen` are buffers by address, as they were when they were looked at last.
    """

    def __init__(self, callbacks: Callbacks, model: ScenarioSpec, computing: bool) -> None:
        self.callbacks = callbacks
        self.release = model.release.name
        self.tracing = computing
        self.trace: list[str] = []
        self.freed: list[tuple[int, int]] = []
        self.closing = False
        self.seen: dict[int, BufferState] = {}
        self.names: dict[int, str] = {}
        self.events: dict[int, ctypes.Structure] = {}
        self.memory: MockMemory = RealMemory() if computing else FakeMemory()
        self.plain_iface = structs.BufferI(get_base=callbacks.cpu_buffer.get_base)
        self.cpu_iface = structs.BufferI.from_buffer_copy(callbacks.cpu_buffer)
        self.cpu_iface.free_buffer = callbacks.buffer_free if computing else None
        self.traced_iface = structs.BufferI(
            free_buffer=callbacks.buffer_free,
            get_base=callbacks.cpu_buffer.get_base,
            memset_tensor=callbacks.cpu_buffer.memset_tensor,
            set_tensor=callbacks.buffer_set,
            get_tensor=callbacks.buffer_get,
            clear=callbacks.cpu_buffer.clear,
        )
        bufts = make_bufts(model)
        devices = [backend.device for backend in make_backends(model, bufts)]
        for spec, device in zip(model.backends, devices, strict=True):
            if callbacks.answered is not None and spec.supports is None and spec.answers is None:
                callbacks.answered(device)
        tensors = [*model.tensors(), *(node for graph in model.graphs.values() for node in graph.nodes)]
        nbytes = sum(nbytes_of(t.type, t.ne, t.nb) for t in tensors)
        real_memory = not computing and nbytes <= REAL_MEMORY_LIMIT
        self.by_name = {name: self._buft(buft, real_memory) for name, buft in bufts.items()}
        self.bufts: dict[int, MockBuft] = {buft.address: buft for buft in self.by_name.values()}
        self.order = [MockDevice(*pair, self.by_name) for pair in zip(model.backends, devices, strict=True)]
        self.devices: dict[int, MockDevice] = {device.device_address: device for device in self.order}
        self.backends: dict[int, MockDevice] = {device.address: device for device in self.order}
        for mock in self.order:
            self._fill(mock)
        self.mirror = Mirror({buft.address: buft.engine for buft in self.by_name.values()})
        callbacks.world = self

    def record(self, line: str) -> None:
        """Adds a line to the trace, if there is one."""
        if self.tracing:
            self.trace.append(line)

    def tensor_name(self, address: int) -> str:
        """A tensor's id where it is the scenario's, else its name."""
        name = self.names.get(address)
        return name if name is not None else Tensor.from_address(address).name.decode("utf-8", "surrogateescape")

    def buft_of(self, name: str) -> MockBuft:
        """The buffer type a context names: a type, or a backend's default."""
        if name in self.by_name:
            return self.by_name[name]
        return next(device.buft for device in self.order if device.name == name)

    def _buft(self, engine: BufferType, real_memory: bool) -> MockBuft:
        c = self.callbacks
        shape = (engine.name, engine.alignment, engine.max_size, engine.row_padding, engine.host)
        cpu = shape == ("CPU", 32, SIZE_MAX, 0, True)
        buft = MockBuft(engine, silent=cpu and self.tracing)
        # The real one leaves fresh memory as it finds it; values are compared with those of zeroed memory.
        if cpu and real_memory and engine.alloc_size is None:
            buft.address = c.cpu_buft_address
            return buft
        buft.struct = c.lib.structs["ggml_backend_buffer_type"]()
        buft.address = ctypes.addressof(buft.struct)
        buft.struct.iface = c.lib.structs["ggml_backend_buffer_type_i"](
            get_name=c.buft_name,
            alloc_buffer=c.buft_alloc,
            get_alignment=c.cpu_alignment if engine.alignment == 32 else c.buft_alignment,
            get_max_size=c.buft_max_size if engine.max_size != SIZE_MAX else None,
            get_alloc_size=c.buft_alloc_size if engine.row_padding or engine.alloc_size is not None else None,
            is_host=c.true if engine.host else None,
        )
        return buft

    def _fill(self, mock: MockDevice) -> None:
        c, engine = self.callbacks, mock.engine
        by_memory = mock.restricted or mock.deciding or mock.spec.supports is not None
        known = {"cpu": c.cpu_supports_op, "all": c.true}
        only_host = engine.any_host and all(self.bufts[b].engine.host for b in mock.bufts)
        offloads = mock.spec.profile == RECORDED or engine.offload_min_batch is not None
        mock.device.iface = structs.DeviceI(
            get_name=c.device_name,
            get_description=c.device_name,
            get_type=c.device_type,
            get_buffer_type=c.device_buft,
            supports_op=c.device_supports_op if by_memory else known.get(mock.rules, c.device_supports_op),
            supports_buft=c.cpu_supports_buft if only_host else c.device_supports_buft,
            offload_op=c.device_offload_op if offloads else None,
            event_new=c.event_new if engine.events else None,
            event_free=c.event_free if engine.events else None,
            event_synchronize=c.event_synchronize if engine.events else None,
        )
        mock.backend.device = mock.device_address
        mock.backend.iface = structs.BackendI(
            get_name=c.backend_name,
            synchronize=c.synchronize if self.tracing else None,
            graph_compute=c.graph_compute,
            event_record=c.event_record if engine.events else None,
            event_wait=c.event_wait if engine.events else None,
            graph_optimize=c.graph_optimize if engine.graph_optimize is not None else None,
        )
        if mock.buft.struct is not None and not mock.buft.struct.device:
            mock.buft.struct.device = mock.device_address


def _reads_from(bufts: set[int], address: int) -> bool:
    """Whether one of an op's first sources lies in one of these buffer types; never if nothing is computed."""
    op = Tensor.from_address(address)
    if op.op in EMPTY_OPS:
        return False
    buffers = [Tensor.from_address(s).buffer for s in op.src[:DECIDING_SOURCES] if s]
    return any(b and structs.Buffer.from_address(b).buft in bufts for b in buffers)
