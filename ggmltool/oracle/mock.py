"""Devices made of callbacks: ggml sees backends whose every answer comes from the scenario.

A `World` holds the buffer types, devices and backends of one scenario as ggml's own structs. Where an answer is a
constant or the real CPU's, the struct points straight at the real library's function, so that ggml calls no Python.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Protocol

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import DECIDING_SOURCES, SEEN_BEHIND, Device, SplitNodes
from ggmltool.ggml.op import EMPTY_OPS
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.tensor import Tensor as EngineTensor
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.oracle import structs
from ggmltool.oracle.answers import BackendProfile, Capabilities, constant_true, resolve
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import Tensor
from ggmltool.oracle.tensors import Mirror
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.spec import BufferTypeSpec, ScenarioSpec

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
    """A buffer type: `address` is its ggml_backend_buffer_type, 0 until a world gives it a `struct` of its own.

    `ops` restricts source 0 as `buffer_types` does.

    A `silent` one has the real CPU's functions and leaves no trace. `own_sizes`: the engine's table says how much a
    tensor takes. `slack`: so many bytes more than asked for its buffers have.
    """

    def __init__(
        self,
        name: str,
        alignment: int,
        max_size: int | None,
        row_padding: int,
        host: bool,
        ops: frozenset[int] | None = None,
        address: int = 0,
        silent: bool = False,
        own_sizes: bool = False,
    ) -> None:
        self.struct: Any = None
        self.name = name
        self.own_sizes = own_sizes
        self.silent = silent
        self.alignment = alignment
        self.max_size = max_size
        self.row_padding = row_padding
        self.host = host
        self.ops = ops
        self.c_name = ctypes.create_string_buffer(name.encode("utf-8", "surrogateescape"))
        self.address = address
        self.slack = 0


class MockDevice:
    """A device with its backend: both structs share the object.

    `bufts` are the addresses of the types it can use, `deciding` of those whose own rule says what runs out of them.
    """

    def __init__(self, profile: BackendProfile, buft: MockBuft) -> None:
        self.profile = profile
        self.name = profile.name
        self.buft = buft
        self.bufts: set[int] = {buft.address}
        self.restricted: dict[int, frozenset[int]] = {}
        self.deciding: set[int] = set()
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
        device = structs.Device.from_address(self.capabilities.cpu_device)
        self.cpu_supports_op: int = device.iface.supports_op
        self.cpu_supports_buft: int = device.iface.supports_buft
        buffer = lib.ggml_backend_buft_alloc_buffer(self.cpu_buft_address, 64)
        self.cpu_buffer = structs.BufferI.from_buffer_copy(structs.Buffer.from_address(buffer).iface)
        lib.ggml_backend_buffer_free(buffer)
        self._keep: list[object] = []
        c = self._callback
        self.buft_name = c("ggml_backend_buffer_type_i", "get_name", self._buft_name)
        self.buft_alloc = c("ggml_backend_buffer_type_i", "alloc_buffer", self._buft_alloc)
        self.buft_alignment = c("ggml_backend_buffer_type_i", "get_alignment", self._buft_alignment)
        self.buft_max_size = c("ggml_backend_buffer_type_i", "get_max_size", self._buft_max_size)
        self.buft_alloc_size = c("ggml_backend_buffer_type_i", "get_alloc_size", self._buft_alloc_size)
        self.device_name = c("ggml_backend_device_i", "get_name", self._device_name)
        self.device_type = c("ggml_backend_device_i", "get_type", self._device_type)
        self.device_buft = c("ggml_backend_device_i", "get_buffer_type", self._device_buft)
        self.device_supports_op = c("ggml_backend_device_i", "supports_op", self._device_supports_op)
        self.device_supports_buft = c("ggml_backend_device_i", "supports_buft", self._device_supports_buft)
        self.device_offload_op = c("ggml_backend_device_i", "offload_op", self._device_offload_op)
        self.event_new = c("ggml_backend_device_i", "event_new", self._event_new)
        self.event_free = c("ggml_backend_device_i", "event_free", self._event_free)
        self.event_synchronize = c("ggml_backend_device_i", "event_synchronize", self._event_synchronize)
        self.backend_name = c("ggml_backend_i", "get_name", self._backend_name)
        self.graph_optimize = c("ggml_backend_i", "graph_optimize", self._graph_optimize)
        self.synchronize = c("ggml_backend_i", "synchronize", self._synchronize)
        self.graph_compute = c("ggml_backend_i", "graph_compute", self._graph_compute)
        self.event_record = c("ggml_backend_i", "event_record", self._event_record)
        self.event_wait = c("ggml_backend_i", "event_wait", self._event_wait)
        self.buffer_free = c("ggml_backend_buffer_i", "free_buffer", self._buffer_free)
        self.buffer_set = c("ggml_backend_buffer_i", "set_tensor", self._buffer_set)
        self.buffer_get = c("ggml_backend_buffer_i", "get_tensor", self._buffer_get)

    def _callback(self, struct: str, field: str, function: Callable[..., Any]) -> int:
        """The address of a C function for a field of one of this library's structs."""
        made = self.lib.structs.prototype(struct, field)(function)
        self._keep.append(made)
        return int(ctypes.cast(made, ctypes.c_void_p).value or 0)

    def _buft_name(self, buft: int) -> int:
        return ctypes.addressof(self.world.bufts[buft].c_name)

    def _buft_alloc(self, address: int, size: int) -> int:
        world = self.world
        buft = world.bufts[address]
        made = size + buft.slack
        base = world.memory.take(made, buft.alignment)
        if buft.silent:
            iface = world.cpu_iface
        elif world.tracing:
            world.record(f"alloc_buffer {buft.name} {size}")
            iface = world.traced_iface
        else:
            iface = world.plain_iface
        return int(self.lib.ggml_backend_buffer_init(address, iface, base, made))

    def _buft_alignment(self, buft: int) -> int:
        return self.world.bufts[buft].alignment

    def _buft_max_size(self, buft: int) -> int:
        size = self.world.bufts[buft].max_size
        return size if size is not None else 2**64 - 1

    def _buft_alloc_size(self, buft: int, tensor: int) -> int:
        engine = self.world.engine_bufts.get(buft)
        if engine is not None and engine.alloc_size is not None:
            return engine.get_alloc_size(self.world.mirror.tensor(tensor))
        return self.capabilities.padded_size(tensor, self.world.bufts[buft].row_padding)

    def _device_name(self, device: int) -> int:
        return ctypes.addressof(self.world.devices[device].c_name)

    def _device_type(self, device: int) -> int:
        return DEVICE_TYPES[self.world.devices[device].profile.type]

    def _device_buft(self, device: int) -> int:
        return self.world.devices[device].buft.address

    def _device_supports_op(self, device: int, op: int) -> bool:
        mock = self.world.devices[device]
        if mock.profile.rules == "engine" or (mock.deciding and _reads_from(mock.deciding, op)):
            return self.world.engine_devices[mock.name].supports_op(self.world.mirror.tensor(op))
        return self.capabilities.supports_op(mock.profile, mock.restricted, op)

    def _device_supports_buft(self, address: int, buft: int) -> bool:
        device = self.world.devices[address]
        return buft in device.bufts or (device.profile.any_host and self.world.bufts[buft].host)

    def _device_offload_op(self, device: int, op: int) -> bool:
        mock = self.world.devices[device]
        if mock.profile.rules == "engine":
            return self.world.engine_devices[mock.name].offload_op(self.world.mirror.tensor(op))
        minimum = mock.profile.offload_min_batch
        return minimum is not None and self.capabilities.batch_size(op) >= minimum

    def _event_new(self, device: int) -> int:
        world = self.world
        # A scheduler makes one event per pipeline copy.
        event = structs.Event(device, sum(e.device == device for e in world.events.values()))
        world.events[ctypes.addressof(event)] = event
        world.record(f"event_new {world.devices[device].name} {event.context or 0}")
        return ctypes.addressof(event)

    def _event_free(self, device: int, event: int) -> None:
        return None

    def _event_name(self, event: int) -> str:
        return str(self.world.events[event].context or 0)

    def _event_synchronize(self, device: int, event: int) -> None:
        self.world.record(f"event_synchronize {self.world.devices[device].name} {self._event_name(event)}")

    def _backend_name(self, backend: int) -> int:
        return ctypes.addressof(self.world.backends[backend].c_name)

    def _graph_optimize(self, backend: int, address: int, params: int = 0) -> None:
        world = self.world
        optimize = world.engine_devices[world.backends[backend].name].graph_optimize
        if optimize is None:
            return
        graph = structs.CGraph.from_address(address)
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

    def _synchronize(self, backend: int) -> None:
        self.world.record(f"synchronize {self.world.backends[backend].name}")

    def _graph_compute(self, backend: int, graph: int) -> int:
        world = self.world
        view = structs.CGraph.from_address(graph)
        names = ", ".join(world.tensor_name(node) for node in view.nodes[: view.n_nodes])
        world.record(f"graph_compute {world.backends[backend].name} [{names}]")
        return self.lib.compute(graph)

    def _event_record(self, backend: int, event: int) -> None:
        self.world.record(f"event_record {self.world.backends[backend].name} {self._event_name(event)}")

    def _event_wait(self, backend: int, event: int) -> None:
        self.world.record(f"event_wait {self.world.backends[backend].name} {self._event_name(event)}")

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

    def _buffer_set(self, buffer: int, tensor: int, data: int, offset: int, size: int) -> None:
        world = self.world
        name = world.bufts[structs.Buffer.from_address(buffer).buft].name
        world.record(f"set_tensor {name} {world.tensor_name(tensor)} {offset} {size}")
        ctypes.memmove(Tensor.from_address(tensor).data + offset, data, size)

    def _buffer_get(self, buffer: int, tensor: int, data: int, offset: int, size: int) -> None:
        world = self.world
        name = world.bufts[structs.Buffer.from_address(buffer).buft].name
        world.record(f"get_tensor {name} {world.tensor_name(tensor)} {offset} {size}")
        ctypes.memmove(data, Tensor.from_address(tensor).data + offset, size)


class Memory(Protocol):
    """Where the bytes of mock buffers come from."""

    def take(self, size: int, alignment: int) -> int:
        """The address of `size` bytes, aligned."""


class World:
    """The buffer types, devices and backends of one scenario.

    `computing` takes real memory and records a trace of what ggml asked for; else addresses are made up and never
    touched. `order` has the backends by priority, `by_name` the buffer types a context can name. `freed` are the first
    and last addresses of memory that was freed while it computed; what is freed when it is `closing` does not count.
    """

    def __init__(self, callbacks: Callbacks, model: ScenarioSpec, computing: bool) -> None:
        self.callbacks = callbacks
        self.tracing = computing
        self.trace: list[str] = []
        self.freed: list[tuple[int, int]] = []
        self.closing = False
        self.names: dict[int, str] = {}
        self.events: dict[int, ctypes.Structure] = {}
        self.memory: Memory = RealMemory() if computing else FakeMemory()
        self.real_cpu_memory = not computing and _total_bytes(model) <= REAL_MEMORY_LIMIT
        self.bufts: dict[int, MockBuft] = {}
        self.devices: dict[int, MockDevice] = {}
        self.backends: dict[int, MockDevice] = {}
        self.order: list[MockDevice] = []
        self.by_name: dict[str, MockBuft] = {}
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
        known_profiles = profiles_of(model.release)
        answers = [spec.answers for spec in model.backends if spec.answers is not None]
        self.sized = frozenset(name for recorded in answers for name in recorded.sizes)
        profiles = [resolve(spec, known_profiles) for spec in model.backends]
        for profile in profiles:
            if profile.buft not in self.by_name:
                self._add_buft(self._default_buft(profile, profiles))
        if "CPU" not in self.by_name:
            self._add_buft(self._cpu_buft())
        further = [(spec, self._add_buft(_further_buft(spec))) for spec in model.buffer_types]
        engine_bufts = make_bufts(model)
        known = [buft for name, buft in engine_bufts.items() if name not in self.by_name]
        for buft in known:
            self._add_buft(_known_buft(buft))
        for profile in profiles:
            self._add_device(profile, further)
        for name, engine_buft in engine_bufts.items():
            self.by_name[name].slack = engine_buft.slack
        self._mirror_engine(model, engine_bufts, known)
        for device in self.order:
            self._finish_device(device)
        callbacks.world = self

    def _mirror_engine(self, model: ScenarioSpec, bufts: dict[str, BufferType], known: list[BufferType]) -> None:
        """The engine's devices and buffer types, for profiles and `known` types whose rules only the engine has."""
        self.engine_devices: dict[str, Device] = {}
        self.engine_bufts: dict[int, BufferType] = {}
        devices = {b.name: b.device for b in make_backends(model, bufts)}
        self.kernels = devices
        if self.callbacks.answered is not None:
            for spec in model.backends:
                if spec.supports is None and spec.answers is None:
                    self.callbacks.answered(devices[spec.name])
        orders = any(device.graph_optimize is not None for device in devices.values())
        if known or orders or any(device.profile.rules == "engine" for device in self.order):
            self.engine_bufts = {self.by_name[name].address: buft for name, buft in bufts.items()}
            self.engine_devices = devices
            for device in self.order:
                usable = self.engine_devices[device.name].bufts
                device.bufts.update(self.by_name[b.name].address for b in known if b in usable)
                deciding = self.engine_devices[device.name].deciding
                device.deciding = {self.by_name[b.name].address for b in deciding}
        self.mirror = Mirror(self.engine_bufts)

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

    def _default_buft(self, profile: BackendProfile, profiles: list[BackendProfile]) -> MockBuft:
        # The type belongs to the backend of that name, whichever backend comes first.
        owner = next((p for p in profiles if p.name == p.buft == profile.buft), profile)
        if owner.is_real_cpu_buft:
            return self._cpu_buft()
        return MockBuft(
            profile.buft,
            owner.alignment,
            owner.max_size,
            owner.row_padding,
            owner.host,
            own_sizes=owner.rules == "engine",
        )

    def _cpu_buft(self) -> MockBuft:
        # The real one leaves fresh memory as it finds it; values are compared with those of zeroed memory.
        address = self.callbacks.cpu_buft_address if self.real_cpu_memory and "CPU" not in self.sized else 0
        return MockBuft("CPU", 32, None, 0, True, address=address, silent=self.tracing)

    def _add_buft(self, buft: MockBuft) -> MockBuft:
        c = self.callbacks
        if not buft.address:
            own_sizes = buft.own_sizes or buft.name in self.sized
            buft.struct = c.lib.structs["ggml_backend_buffer_type"]()
            buft.address = ctypes.addressof(buft.struct)
            buft.struct.iface = c.lib.structs["ggml_backend_buffer_type_i"](
                get_name=c.buft_name,
                alloc_buffer=c.buft_alloc,
                get_alignment=c.cpu_alignment if buft.alignment == 32 else c.buft_alignment,
                get_max_size=c.buft_max_size if buft.max_size is not None else None,
                get_alloc_size=c.buft_alloc_size if buft.row_padding or own_sizes else None,
                is_host=c.true if buft.host else None,
            )
        self.bufts[buft.address] = buft
        self.by_name[buft.name] = buft
        return buft

    def _add_device(self, profile: BackendProfile, further: list[tuple[BufferTypeSpec, MockBuft]]) -> None:
        device = MockDevice(profile, self.by_name[profile.buft])
        for spec, buft in further:
            if spec.device == device.name and not profile.lists_bufts:
                device.bufts.add(buft.address)
                if buft.ops is not None:
                    device.restricted[buft.address] = buft.ops
        self.order.append(device)
        self.devices[device.device_address] = device
        self.backends[device.address] = device

    def _finish_device(self, mock: MockDevice) -> None:
        c = self.callbacks
        profile = mock.profile
        mock.bufts.update(self.buft_of(name).address for name in profile.supports_bufts)
        plain_cpu = profile.uses_cpu_rules and not mock.restricted and not mock.deciding
        everything = profile.supports_everything and not mock.restricted and not mock.deciding
        engine = self.engine_devices.get(profile.name)
        reorders = engine is not None and engine.graph_optimize is not None
        only_host = profile.any_host and all(self.bufts[b].host for b in mock.bufts)
        mock.device.iface = structs.DeviceI(
            get_name=c.device_name,
            get_description=c.device_name,
            get_type=c.device_type,
            get_buffer_type=c.device_buft,
            supports_op=c.cpu_supports_op if plain_cpu else c.true if everything else c.device_supports_op,
            supports_buft=c.cpu_supports_buft if only_host else c.device_supports_buft,
            offload_op=c.device_offload_op if profile.may_offload else None,
            event_new=c.event_new if profile.events else None,
            event_free=c.event_free if profile.events else None,
            event_synchronize=c.event_synchronize if profile.events else None,
        )
        mock.backend.device = mock.device_address
        mock.backend.iface = structs.BackendI(
            get_name=c.backend_name,
            synchronize=c.synchronize if self.tracing else None,
            graph_compute=c.graph_compute,
            event_record=c.event_record if profile.events else None,
            event_wait=c.event_wait if profile.events else None,
            graph_optimize=c.graph_optimize if reorders else None,
        )
        if mock.buft.struct is not None and not mock.buft.struct.device:
            mock.buft.struct.device = mock.device_address


def _total_bytes(model: ScenarioSpec) -> int:
    specs = [*model.tensors(), *(node for graph in model.graphs.values() for node in graph.nodes)]
    return sum(nbytes_of(t.type, t.ne, t.nb) for t in specs)


def _reads_from(bufts: set[int], address: int) -> bool:
    """Whether one of an op's first sources lies in one of these buffer types; never if nothing is computed."""
    op = Tensor.from_address(address)
    if op.op in EMPTY_OPS:
        return False
    buffers = [Tensor.from_address(s).buffer for s in op.src[:DECIDING_SOURCES] if s]
    return any(b and structs.Buffer.from_address(b).buft in bufts for b in buffers)


def _known_buft(buft: BufferType) -> MockBuft:
    size = None if buft.max_size == SIZE_MAX else buft.max_size
    own_sizes = buft.alloc_size is not None
    return MockBuft(buft.name, buft.alignment, size, buft.row_padding, buft.host, own_sizes=own_sizes)


def _further_buft(spec: BufferTypeSpec) -> MockBuft:
    return MockBuft(spec.name, spec.alignment, spec.max_size, spec.row_padding, spec.host, spec.ops)
