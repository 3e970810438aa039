"""The backend registry of January 2024: who can be made by name, with what buffer type, and from `NAME:params`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed, LineAssert

MAX_BACKENDS_REG = 16
MAX_NAME = 127
"""Bytes of a name; what is longer is cut when it is registered, and when it is looked for."""


class Registered(NamedTuple):
    """A backend in a registry: `init` makes one, given what stands behind the colon; `init_name` is ggml's function."""

    name: str
    init: Callable[[str], Backend]
    default_buffer_type: BufferType
    init_name: str = ""


class Registry:
    """ggml_backend_registry: at most 16 backends, in the order they were registered."""

    def __init__(self) -> None:
        self.entries: list[Registered] = []

    def register(
        self, name: str, init: Callable[[str], Backend], default_buffer_type: BufferType, init_name: str = ""
    ) -> None:
        """ggml_backend_register; a name may come again, and is then never found. Raises LineAssert for a 17th."""
        if len(self.entries) >= MAX_BACKENDS_REG:
            raise LineAssert(
                "ggml_backend_register",
                "ggml-backend.c",
                348,
                "ggml_backend_registry_count < GGML_MAX_BACKENDS_REG",
                f"{name} would be one more than the {MAX_BACKENDS_REG} backends there is room for",
            )
        self.entries.append(Registered(_cut(name), init, default_buffer_type, init_name))

    def init_backend_from_str(self, backend_str: str) -> Backend:
        """ggml_backend_reg_init_backend_from_str: `NAME` or `NAME:params`, by the first colon. Raises GgmlFailed."""
        name, _, params = backend_str.partition(":")
        for entry in self.entries:
            if entry.name == _cut(name):
                return entry.init(params)
        function = "ggml_backend_reg_init_backend_from_str"
        known = ", ".join(entry.name for entry in self.entries) or "none"
        raise GgmlFailed(
            function, f"{function}: backend {_cut(name)} not found", None, f"registered are {known}; case counts"
        )


def _cut(name: str) -> str:
    return name.encode("utf-8", "surrogateescape")[:MAX_NAME].decode("utf-8", "surrogateescape")
