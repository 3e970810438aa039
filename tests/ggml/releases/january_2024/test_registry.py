"""The backend registry of January 2024."""

from __future__ import annotations

import pytest

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend, Device, op_table
from ggmltool.ggml.errors import GgmlFailed, LineAssert
from ggmltool.ggml.releases.january_2024.registry import MAX_BACKENDS_REG, NOT_FOUND, Registry

CPU = BufferType("CPU", "CPU", 64, host=True, slack=64)


def made(registry: Registry, name: str) -> list[str]:
    """Register a backend; what it is told when it is made."""
    told: list[str] = []

    def init(params: str) -> Backend:
        told.append(params)
        return Backend(name, Device(name, "cpu", CPU, op_table((), True)))

    registry.register(name, init, CPU, f"ggml_backend_reg_{name.lower()}_init")
    return told


def test_a_backend_is_made_from_its_name_and_params() -> None:
    registry = Registry()
    told = made(registry, "CPU")
    assert registry.init_backend_from_str("CPU").name == "CPU"
    registry.init_backend_from_str("CPU:n_threads=4:more")
    assert told == ["", "n_threads=4:more"]
    assert (len(registry), registry.get_name(0)) == (1, "CPU")


def test_an_unknown_backend_is_not_found() -> None:
    registry = Registry()
    made(registry, "CPU")
    assert registry.find_by_name("cpu") == NOT_FOUND
    with pytest.raises(GgmlFailed, match="ggml_backend_reg_init_backend_from_str: backend cpu not found"):
        registry.init_backend_from_str("cpu:4")


def test_buffers_come_from_the_default_type() -> None:
    registry = Registry()
    made(registry, "CPU")
    assert registry.get_default_buffer_type(0) is CPU
    assert registry.alloc_buffer(0, 100).size == 164


def test_there_is_room_for_16() -> None:
    registry = Registry()
    for i in range(MAX_BACKENDS_REG):
        made(registry, f"GPU{i}")
    with pytest.raises(LineAssert, match="ggml_backend_registry_count < GGML_MAX_BACKENDS_REG"):
        made(registry, "GPU16")
    for ask in (registry.get_name, registry.init_backend, registry.get_default_buffer_type):
        with pytest.raises(LineAssert, match="i < ggml_backend_registry_count"):
            ask(16)


def test_a_long_name_is_cut() -> None:
    registry = Registry()
    made(registry, "G" * 200)
    assert registry.get_name(0) == "G" * 127
    assert registry.init_backend_from_str("G" * 200).name == "G" * 200
