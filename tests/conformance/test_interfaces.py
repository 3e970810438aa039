"""The CPU's function tables and capabilities against the real library's: which functions there are, which are NULL."""

from __future__ import annotations

import ctypes

import pytest

from ggmltool.ggml.devices.profiles import CAPS, PROFILES
from ggmltool.inspect.interfaces import Table, tables_of
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib

KINDS = ("ggml_backend_i", "ggml_backend_device_i", "ggml_backend_buffer_type_i", "ggml_backend_buffer_i")


def table_of(kind: str, release: str) -> Table:
    """The CPU's table of a kind in a release."""
    return next(table for table in tables_of("CPU", release) or () if table.kind == kind)


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
        "ggml_backend_buffer_type_i": lib.structs["ggml_backend_buffer_type"].from_address(buft).iface,
        "ggml_backend_buffer_i": iface,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_cpu_has_the_functions_that_the_real_one_has(kind: str, lib: Lib, release: str) -> None:
    real, table = real_tables(lib)[kind], table_of(kind, release)
    assert {f.field: bool(getattr(real, f.field)) for f in table.functions} == {
        f.field: f.function is not None for f in table.functions
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_of_a_table_are_those_of_its_struct_in_order(kind: str, lib: Lib, release: str) -> None:
    fields = real_tables(lib)[kind]._fields_
    assert [f.field for f in table_of(kind, release).functions] == [name for name, *_ in fields]


def test_the_cpu_can_do_what_the_real_one_says(lib: Lib) -> None:
    backend = structs.Backend.from_address(lib.cpu_backend())
    get_props = structs.Device.from_address(backend.device).iface.get_props
    props = structs.KNOWN["ggml_backend_dev_props"]()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(get_props)(backend.device, ctypes.addressof(props))
    said = {cap for cap in CAPS if getattr(props.caps, cap)}
    assert said == PROFILES["CPU"].caps | ({"events"} if PROFILES["CPU"].events else set())
