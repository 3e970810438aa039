"""The CPU's function tables and capabilities against the real library's: which functions there are, which are NULL."""

from __future__ import annotations

import ctypes

import pytest

from ggmltool.ggml.devices.profiles import CAPS, PROFILES
from ggmltool.inspect.interfaces import Table, tables_of
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib

CPU = tables_of("CPU", "0.20.2") or ()

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "ggml_backend_i": structs.BackendI,
    "ggml_backend_device_i": structs.DeviceI,
    "ggml_backend_buffer_type_i": structs.BufferTypeI,
    "ggml_backend_buffer_i": structs.BufferI,
}


def real_tables(lib: Lib) -> dict[str, ctypes.Structure]:
    """The tables behind a real CPU backend, its device, its default buffer type and a buffer of that type."""
    backend = structs.Backend.from_address(lib.cpu_backend())
    buft = lib.ggml_backend_cpu_buffer_type()
    buffer = lib.ggml_backend_buft_alloc_buffer(buft, 64)
    iface = structs.BufferI.from_buffer_copy(structs.Buffer.from_address(buffer).iface)
    lib.ggml_backend_buffer_free(buffer)
    return {
        "ggml_backend_i": backend.iface,
        "ggml_backend_device_i": structs.Device.from_address(backend.device).iface,
        "ggml_backend_buffer_type_i": lib.layout.buffer_type.from_address(buft).iface,
        "ggml_backend_buffer_i": iface,
    }


@pytest.mark.parametrize("table", CPU, ids=lambda table: table.kind)
def test_the_cpu_has_the_functions_that_the_real_one_has(table: Table, lib: Lib) -> None:
    real = real_tables(lib)[table.kind]
    assert {f.field: bool(getattr(real, f.field)) for f in table.functions} == {
        f.field: f.function is not None for f in table.functions
    }


@pytest.mark.parametrize("table", CPU, ids=lambda table: table.kind)
def test_the_fields_of_a_table_are_those_of_its_struct_in_order(table: Table) -> None:
    assert [f.field for f in table.functions] == [name for name, *_ in STRUCTS[table.kind]._fields_]


def test_the_cpu_can_do_what_the_real_one_says(lib: Lib) -> None:
    backend = structs.Backend.from_address(lib.cpu_backend())
    get_props = structs.Device.from_address(backend.device).iface.get_props
    props = structs.DeviceProps()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(get_props)(backend.device, ctypes.addressof(props))
    said = {cap for cap in CAPS if getattr(props, "async_" if cap == "async" else cap)}
    assert said == PROFILES["CPU"].caps | ({"events"} if PROFILES["CPU"].events else set())
