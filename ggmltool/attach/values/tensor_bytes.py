"""The bytes of tensors in a stopped program: host memory as it lies there, other memory by ggml_backend_tensor_get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from ggmltool.attach.devices.properties import NoRoom, mapped, unmapped
from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.link import FunctionCall
from ggmltool.attach.session import AttachSession
from ggmltool.state.errors import NoBytes
from ggmltool.state.memory.fields import Record
from ggmltool.state.memory.pages import c_string
from ggmltool.structs.layout import layout

PIECE = 16 << 20
"""Bytes that are read at once, at most: what the program's own memory takes for reading back."""


class UnreadableTensor(Exception):  # noqa: N818 - it says what is the matter
    """A tensor whose values the program cannot give; the message says why."""


class _Buffer(NamedTuple):
    """A ggml_backend_buffer: its bytes, where they begin, whether the host reads them, and whether a function does."""

    base: int
    size: int
    host: bool
    can_get: bool
    name: str


class TensorBytes:
    """A context manager; at its end the memory that was taken in the program for reading is given back."""

    def __init__(self, session: AttachSession) -> None:
        self.link = session.link
        self.instance = session.instance
        structs = layout(self.instance.structs, self.instance.max_name)
        self._tensor = Record(structs, "ggml_tensor", ("buffer", "view_src", "data"))
        self._buffer = Record(structs, "ggml_backend_buffer", ("iface.get_tensor", "buft|", "size"))
        self._buffers: dict[int, _Buffer] = {}
        self._room = 0
        self._gathered: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        if self._room:
            room, self._room = self._room, 0
            unmapped(self.link, room, PIECE)

    def refusal(self, tensor: int) -> str:
        """Why the values of a tensor that has its memory already cannot be read; "" if they can, or it has none yet."""
        try:
            buffer, _ = self._where(tensor)
        except UnreadableTensor:
            return ""
        if buffer.host or buffer.can_get:
            return ""
        return f"{buffer.name} keeps it in an order of its own and does not give it back"

    def gather(self, tensors: Iterable[tuple[int, int]]) -> None:
        """Have the program copy tensors of these sizes to its host memory all at once, as many as there is room for:
        from there they are read until it goes on. Raises LinkError."""
        self._gathered, end, calls = {}, 0, []
        for tensor, size in tensors:
            try:
                buffer, data = self._where(tensor)
            except UnreadableTensor:
                continue
            inside = buffer.base <= data <= buffer.base + buffer.size - size
            if inside and not buffer.host and end + size <= PIECE:
                calls.append(self._get(tensor, end, 0, size))
                self._gathered[tensor] = end
                end += size
        if calls:
            self.link.call(calls, alone=False)

    def pieces(self, tensor: int, size: int) -> Iterator[bytes]:
        """The `size` bytes of a tensor, its ggml_nbytes, from where its data begins. Raises Unreadable, LinkError."""
        buffer, data = self._where(tensor)
        if not buffer.base <= data <= buffer.base + buffer.size - size:
            raise UnreadableTensor(f"its {size} bytes are not all in its buffer")
        for at in range(0, size, PIECE):
            n = min(PIECE, size - at)
            try:
                yield self.link.read(data + at if buffer.host else self._fetched(tensor, at, n), n)
            except NoBytes as error:
                raise UnreadableTensor(str(error)) from None

    def _where(self, tensor: int) -> tuple[_Buffer, int]:
        buffer, view_src, data = self._tensor.unpack(self.link.read(tensor, self._tensor.size))
        if view_src:
            buffer = self._tensor.unpack(self.link.read(view_src, self._tensor.size))[0]
        if not buffer or not data:
            raise UnreadableTensor("it has no memory")
        if buffer not in self._buffers:
            self._buffers[buffer] = self._read_buffer(buffer)
        return self._buffers[buffer], data

    def _read_buffer(self, address: int) -> _Buffer:
        get, _, size = self._buffer.unpack(self.link.read(address, self._buffer.size))
        base, host, name = self.link.call(
            [
                FunctionCall(self.instance.address("ggml_backend_buffer_get_base"), "unsigned long", (address,)),
                FunctionCall(self.instance.address("ggml_backend_buffer_is_host"), "unsigned char", (address,)),
                FunctionCall(self.instance.address("ggml_backend_buffer_name"), "unsigned long", (address,)),
            ]
        )
        return _Buffer(base or 0, size, bool(host), bool(get), c_string(self.link, name) if name else "its buffer")

    def _fetched(self, tensor: int, offset: int, size: int) -> int:
        """Have the program copy a part of a tensor to its host memory: where it lies. Its other threads go on, for a
        device may need them."""
        if tensor in self._gathered:
            return self._room + self._gathered[tensor] + offset
        self.link.call([self._get(tensor, 0, offset, size)], alone=False)
        self._gathered = {}
        return self._room

    def _get(self, tensor: int, to: int, offset: int, size: int) -> FunctionCall:
        if not self._room:
            try:
                self._room = mapped(self.link, PIECE)
            except NoRoom as error:
                raise AttachError(f"tensors of a device cannot be read: {error}") from None
        get = self.instance.address("ggml_backend_tensor_get")
        return FunctionCall(get, "void", (tensor, self._room + to, offset, size))
