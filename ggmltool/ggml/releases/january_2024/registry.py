"""The backend registry of January 2024: who can be made by name, with what buffer type, and from `NAME:params`."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed, LineAssert
from ggmltool.ggml.releases.january_2024.tallocr import buft_alloc_buffer
from ggmltool.ggml.releases.parts import Registered

MAX_BACKENDS_REG = 16
MAX_NAME = 127
"""Bytes of a name; what is longer is cut when it is registered, and when it is looked for."""

NOT_FOUND = -1

_FILE = "ggml-backend.c"


class Registry:
    """ggml_backend_registry: at most 16 backends, in the order they were registered."""

    def __init__(self, addresses: AddressSpace | None = None, misalign: int = 0) -> None:
        self.entries: list[Registered] = []
        self.addresses = addresses or AddressSpace()
        self.misalign = misalign

    def __len__(self) -> int:
        """ggml_backend_reg_get_count."""
        return len(self.entries)

    def register(
        self, name: str, init: Callable[[str], Backend], default_buffer_type: BufferType, init_name: str = ""
    ) -> None:
        """ggml_backend_register; a name may come again, and is then never found. Raises LineAssert for a 17th."""
        if len(self.entries) >= MAX_BACKENDS_REG:
            raise LineAssert(
                "ggml_backend_register",
                _FILE,
                348,
                "ggml_backend_registry_count < GGML_MAX_BACKENDS_REG",
                f"{name} would be one more than the {MAX_BACKENDS_REG} backends there is room for",
            )
        self.entries.append(Registered(_cut(name), init, default_buffer_type, init_name))

    def find_by_name(self, name: str) -> int:
        """ggml_backend_reg_find_by_name: the first of exactly this name, NOT_FOUND if there is none."""
        return next((i for i, entry in enumerate(self.entries) if entry.name == name), NOT_FOUND)

    def init_backend_from_str(self, backend_str: str) -> Backend:
        """ggml_backend_reg_init_backend_from_str: `NAME` or `NAME:params`, by the first colon. Raises GgmlFailed."""
        function = "ggml_backend_reg_init_backend_from_str"
        name, _, params = backend_str.partition(":")
        i = self.find_by_name(_cut(name))
        if i == NOT_FOUND:
            known = ", ".join(entry.name for entry in self.entries) or "none"
            raise GgmlFailed(
                function, f"{function}: backend {_cut(name)} not found", None, f"registered are {known}; case counts"
            )
        return self.init_backend(i, params)

    def get_name(self, i: int) -> str:
        """ggml_backend_reg_get_name."""
        return self._entry("ggml_backend_reg_get_name", 415, i).name

    def init_backend(self, i: int, params: str = "") -> Backend:
        """ggml_backend_reg_init_backend."""
        return self._entry("ggml_backend_reg_init_backend", 422, i).init(params)

    def get_default_buffer_type(self, i: int) -> BufferType:
        """ggml_backend_reg_get_default_buffer_type."""
        return self._entry("ggml_backend_reg_get_default_buffer_type", 429, i).default_buffer_type

    def alloc_buffer(self, i: int, size: int) -> Buffer:
        """ggml_backend_reg_alloc_buffer: a buffer of at least `size` bytes, of the backend's default type."""
        buft = self._entry("ggml_backend_reg_alloc_buffer", 436, i).default_buffer_type
        return buft_alloc_buffer(buft, size, self.addresses, misalign=self.misalign)

    def _entry(self, function: str, line: int, i: int) -> Registered:
        if not 0 <= i < len(self.entries):
            raise LineAssert(
                function,
                _FILE,
                line,
                "i < ggml_backend_registry_count",
                f"there are {len(self.entries)} backends, and {i} is not the number of one",
            )
        return self.entries[i]


def _cut(name: str) -> str:
    raw = name.encode("utf-8", "surrogateescape")
    return name if len(raw) <= MAX_NAME else raw[:MAX_NAME].decode("utf-8", "surrogateescape")
