"""The function tables beside the rest of what is said of a device: they do not contradict each other."""

from __future__ import annotations

import pytest

from ggmltool.ggml.devices import old_interfaces
from ggmltool.ggml.devices.interfaces import IF_NULL, Interface
from ggmltool.ggml.devices.profiles import PROFILES, Profile

KNOWN = [p for p in PROFILES.values() if p.interface is not None]


IDLE = {
    "CUDA": {"graph_optimize"},
    "ROCm": {"graph_optimize"},
    "Metal": {"is_host"},
    "Vulkan": {"cpy_tensor_async", "buffer_from_host_ptr", "get_alloc_size"},
    "SYCL": {"buffer_from_host_ptr"},
    "RPC": {"get_alloc_size"},
    "OpenCL": {"buffer_from_host_ptr"},
    "CANN": {"is_host"},
}
"""Functions that are there, and by default say no, or nothing that another's absence would not say."""


def interface(profile: Profile) -> Interface:
    assert profile.interface is not None
    return profile.interface


@pytest.mark.parametrize("profile", KNOWN, ids=lambda p: p.name)
def test_what_is_null_is_a_field_and_ggml_knows_what_to_do_then(profile: Profile) -> None:
    for table in interface(profile).tables():
        assert table.null <= set(table.fields)
        assert table.null <= IF_NULL.keys()


@pytest.mark.parametrize("profile", KNOWN, ids=lambda p: p.name)
def test_a_device_can_do_what_it_has_functions_for(profile: Profile) -> None:
    tables = interface(profile)
    backend, device = tables.backend.functions(), tables.device.functions()
    buffer_type = tables.buffer_type.functions()
    assert (device["event_new"] is not None) == profile.events == (backend["event_record"] is not None)
    assert (device["offload_op"] is not None) == (profile.offload_min_batch is not None)
    sets_async = profile.copies_async if profile.sets_async is None else profile.sets_async
    assert (backend["set_tensor_async"] is not None) == sets_async
    # CANN's caps say no, and the functions are there.
    assert ("async" in profile.caps) == (sets_async and profile.name != "CANN")
    assert (device["get_host_buffer_type"] is not None) == ("host_buffer" in profile.caps)
    expected = {
        "cpy_tensor_async": profile.copies_async,
        "graph_optimize": profile.graph_optimize is not None,
        "buffer_from_host_ptr": "buffer_from_host_ptr" in profile.caps,
        "get_alloc_size": profile.alloc_size is not None or profile.row_padding > 0,
        "is_host": profile.host or profile.buft == "CPU",
    }
    there = {**backend, **device, **buffer_type}
    assert {f for f, used in expected.items() if (there[f] is not None) != used} == IDLE.get(profile.name, set())


def test_a_function_has_the_name_that_ggml_gives_it() -> None:
    cpu = interface(PROFILES["CPU"])
    assert cpu.backend.functions()["graph_compute"] == "ggml_backend_cpu_graph_compute"
    assert cpu.buffer.functions()["get_base"] == "ggml_backend_cpu_buffer_get_base"
    assert interface(PROFILES["BLAS"]).buffer is cpu.buffer


def test_older_backends_have_fewer_functions_and_none_of_a_device_in_2024() -> None:
    assert [len(t.fields) for t in old_interfaces.CPU_2025.tables()] == [13, 15, 6, 9]
    assert [len(t.fields) for t in old_interfaces.CPU_2024.tables()] == [12, 6, 9]
    assert old_interfaces.CPU_2025.backend.null < interface(PROFILES["CPU"]).backend.null
    assert old_interfaces.RPC_2025.buffer.functions()["memset_tensor"] is None
    cuda = old_interfaces.CUDA_2024
    assert cuda.backend.functions()["get_name"] == "ggml_backend_cuda_name"
    assert cuda.backend.if_null("graph_plan_create") == "a crash, should anybody ask"
    assert cuda.backend.if_null("synchronize") == IF_NULL["synchronize"]
    for old in (old_interfaces.CPU_2024, cuda, old_interfaces.METAL_2024):
        for table in old.tables():
            assert table.null <= set(table.fields)
            assert all(table.if_null(field) for field in table.null)
