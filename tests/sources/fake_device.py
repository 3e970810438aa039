"""A GPU that does not exist, as ggml's structs: every answer is a callback's, its memory is touched by nobody."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.op import Op
from ggmltool.oracle import structs
from ggmltool.oracle.structs import Tensor
from ggmltool.structs.mirrors import Mirrors

DEVICE_TYPES = {"gpu": 1, "igpu": 2}

_P, _Z, _B, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_int


@dataclass(frozen=True)
class FakeGpu:
    """A device. `memory` is all it has and all that is free; `events` makes it fit for pipeline parallelism.

    With `splits_rows` there are split buffers, which the device then does not support, as SYCL's does not.
    """

    name: str = "CUDA0"
    memory: int = 24 << 30
    alignment: int = 128
    row_padding: int = 512
    offload_min_batch: int | None = 32
    events: bool = False
    type: str = "gpu"
    without: tuple[str, ...] = ()
    splits_rows: bool = False

    def spec(self) -> dict[str, Any]:
        """The device in a scenario."""
        spec: dict[str, Any] = {"name": self.name, "alignment": self.alignment, "row_padding": self.row_padding}
        if self.offload_min_batch is not None:
            spec["offload_min_batch"] = self.offload_min_batch
        if self.events:
            spec["events"] = True
        if self.type != "gpu":
            spec["type"] = self.type
        if self.without:
            spec["supports"] = {"except": [op.lower() for op in self.without]}
        return spec | {"profile": "custom"}


class Host(Protocol):
    """Who has the library, and addresses to give away."""

    def ggml(self, name: str) -> Any:
        """A function of the library."""

    def address(self, size: int) -> int:
        """An address that nobody touches."""

    @property
    def structs(self) -> Mirrors:
        """The library's structs."""


class Device:
    """A fake GPU as ggml's structs: registry, device, backend and buffer type, with callbacks of its own."""

    def __init__(self, host: Host, gpu: FakeGpu) -> None:
        self.host = host
        self.gpu = gpu
        self.keep: list[Any] = []
        self.name = ctypes.create_string_buffer(gpu.name.encode())
        self.guid = ctypes.create_string_buffer(b"fake gpu" + gpu.name.encode()[:7].ljust(7) + b"!", 16)
        self.without = {int(Op[op.upper()]) for op in gpu.without}
        self.events: list[structs.Event] = []
        self.allocated: list[int] = []
        self.device = structs.Device()
        self.backend = structs.Backend()
        self.buft = host.structs["ggml_backend_buffer_type"]()
        self.reg = (ctypes.c_void_p * 6)(2)
        self.reg[1] = self.callback(_P, lambda _: ctypes.addressof(self.name), _P)
        self.reg[2] = self.callback(_Z, lambda _: 1, _P)
        self.reg[3] = self.callback(_P, lambda *_: ctypes.addressof(self.device), _P, _Z)
        self.reg[4] = self.callback(_P, self._proc_address, _P, ctypes.c_char_p)
        self._fill_buft()
        self.split_name = ctypes.create_string_buffer(b"SYCL_Split")
        self.split_buft = host.structs["ggml_backend_buffer_type"].from_buffer_copy(self.buft)
        self.split_buft.iface.get_name = self.callback(_P, lambda _: ctypes.addressof(self.split_name), _P)
        self.split_type = self.callback(_P, lambda *_: ctypes.addressof(self.split_buft), _I, _P)
        self._fill_device()
        self._fill_backend()

    def callback(self, result: Any, function: Callable[..., Any], *arguments: Any) -> int:
        """The address of a C function."""
        made = ctypes.CFUNCTYPE(result, *arguments)(function)
        self.keep.append(made)
        return int(ctypes.cast(made, _P).value or 0)

    def _proc_address(self, _: int, name: bytes) -> int | None:
        return self.split_type if self.gpu.splits_rows and name == b"ggml_backend_split_buffer_type" else None

    def _fill_buft(self) -> None:
        c = self.callback
        self.buft.device = ctypes.addressof(self.device)
        self.buft.iface = self.host.structs["ggml_backend_buffer_type_i"](
            get_name=c(_P, lambda _: ctypes.addressof(self.name), _P),
            alloc_buffer=c(_P, self._alloc, _P, _Z),
            get_alignment=c(_Z, lambda _: self.gpu.alignment, _P),
            get_alloc_size=c(_Z, self._alloc_size, _P, _P),
        )
        self.buffer = structs.BufferI(
            free_buffer=c(None, lambda _: None, _P),
            get_base=c(_P, lambda buffer: structs.Buffer.from_address(buffer).context, _P),
            set_tensor=c(None, lambda *_: None, _P, _P, _P, _Z, _Z),
            memset_tensor=c(None, lambda *_: None, _P, _P, ctypes.c_uint8, _Z, _Z),
            clear=c(None, lambda *_: None, _P, ctypes.c_uint8),
        )

    def _alloc(self, buft: int, size: int) -> int:
        self.allocated.append(size)
        return int(self.host.ggml("ggml_backend_buffer_init")(buft, self.buffer, self.host.address(size), size))

    def _alloc_size(self, _: int, address: int) -> int:
        size = int(self.host.ggml("ggml_nbytes")(address))
        tensor = Tensor.from_address(address)
        type_ = TYPES_BY_ID[tensor.type]
        rest = tensor.ne[0] % self.gpu.row_padding if self.gpu.row_padding else 0
        if rest and type_.quantized:
            size += type_.type_size * (self.gpu.row_padding - rest) // type_.block_size
        return size

    def _fill_device(self) -> None:
        c, events = self.callback, self.gpu.events
        self.device.reg = ctypes.addressof(self.reg)
        self.device.iface = structs.DeviceI(
            get_name=c(_P, lambda _: ctypes.addressof(self.name), _P),
            get_description=c(_P, lambda _: ctypes.addressof(self.name), _P),
            get_memory=c(None, self._memory, _P, ctypes.POINTER(_Z), ctypes.POINTER(_Z)),
            get_type=c(_I, lambda _: DEVICE_TYPES[self.gpu.type], _P),
            get_props=c(None, self._props, _P, _P),
            init_backend=c(_P, lambda *_: ctypes.addressof(self.backend), _P, _P),
            get_buffer_type=c(_P, lambda _: ctypes.addressof(self.buft), _P),
            supports_op=c(_B, lambda _, op: Tensor.from_address(op).op not in self.without, _P, _P),
            supports_buft=c(_B, lambda _, buft: buft == ctypes.addressof(self.buft), _P, _P),
            offload_op=c(_B, self._offloads, _P, _P),
            event_new=c(_P, self._event_new, _P) if events else None,
            event_free=c(None, lambda *_: None, _P, _P) if events else None,
            event_synchronize=c(None, lambda *_: None, _P, _P) if events else None,
        )

    def _memory(self, _: int, free: Any, total: Any) -> None:
        free[0] = total[0] = self.gpu.memory

    def _props(self, _: int, address: int) -> None:
        props = self.host.structs["ggml_backend_dev_props"].from_address(address)
        props.name = props.description = self.name.value
        self.keep.append(props)
        props.memory_free = props.memory_total = self.gpu.memory
        props.type = DEVICE_TYPES[self.gpu.type]
        setattr(props.caps, "async", self.gpu.events)
        props.caps.events = self.gpu.events

    def _offloads(self, _: int, address: int) -> bool:
        """As a CUDA device: from a batch size on."""
        if self.gpu.offload_min_batch is None:
            return False
        op = Tensor.from_address(address)
        ne = op.ne
        if op.op == Op.GET_ROWS:
            batch = 0
        elif op.op == Op.MUL_MAT:
            batch = ne[1]
        elif op.op in (Op.MUL_MAT_ID, Op.ROPE, Op.ROPE_BACK):
            batch = ne[2]
        else:
            batch = ne[1] * ne[2] * ne[3]
        return bool(batch >= self.gpu.offload_min_batch)

    def _event_new(self, device: int) -> int:
        self.events.append(structs.Event(device, None))
        return ctypes.addressof(self.events[-1])

    def _fill_backend(self) -> None:
        c, events = self.callback, self.gpu.events
        self.backend.guid = ctypes.addressof(self.guid)
        self.backend.device = ctypes.addressof(self.device)
        self.backend.iface = structs.BackendI(
            get_name=c(_P, lambda _: ctypes.addressof(self.name), _P),
            free=c(None, lambda _: None, _P),
            synchronize=c(None, lambda _: None, _P),
            graph_compute=c(_I, lambda *_: -1, _P, _P),
            event_record=c(None, lambda *_: None, _P, _P) if events else None,
            event_wait=c(None, lambda *_: None, _P, _P) if events else None,
        )
