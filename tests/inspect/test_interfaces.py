"""The function tables beside the rest of what is said of a device: they do not contradict each other."""

from __future__ import annotations

import pytest

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.interfaces import FunctionTable, TableFunction, tables_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import DEFAULT, RELEASES

BACKEND, DEVICE = "ggml_backend_i", "ggml_backend_device_i"
BUFFER_TYPE, BUFFER = "ggml_backend_buffer_type_i", "ggml_backend_buffer_i"

IDLE = {
    "Metal": {"is_host"},
    "Vulkan": {"cpy_tensor_async", "buffer_from_host_ptr", "get_alloc_size"},
    "SYCL": {"buffer_from_host_ptr"},
    "RPC": {"get_alloc_size"},
    "OpenCL": {"buffer_from_host_ptr"},
    "CANN": {"is_host"},
}
"""Functions that are there, and by default say no, or nothing that another's absence would not say."""


PROFILES = profiles_of(DEFAULT)
KNOWN = [p for p in PROFILES.values() if tables_of(p.name, DEFAULT.name) is not None]


def tables(profile: str, release: str = DEFAULT.name) -> dict[str, FunctionTable]:
    """The tables of a device that are known, by their struct."""
    return {table.kind: table for table in tables_of(profile, release) or ()}


def named(table: FunctionTable) -> dict[str, str | None]:
    return {f.field: f.function for f in table.functions}


def null(table: FunctionTable) -> dict[str, str]:
    """What ggml does where a function is NULL, for those that are."""
    return {f.field: f.if_null for f in table.functions if f.function is None}


def test_every_device_has_tables_but_the_one_that_is_none_of_ggmls() -> None:
    assert {p.name for p in KNOWN} == PROFILES.keys() - {"custom"}
    assert tables_of("custom", DEFAULT.name) is None


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("profile", KNOWN, ids=lambda p: p.name)
def test_of_what_is_null_it_is_said_what_ggml_does_then(profile: Profile, release: str) -> None:
    for table in tables(profile.name, release).values():
        assert all(null(table).values())


@pytest.mark.parametrize("profile", KNOWN, ids=lambda p: p.name)
def test_a_device_can_do_what_it_has_functions_for(profile: Profile) -> None:
    of = tables(profile.name)
    backend, device, buffer_type = named(of[BACKEND]), named(of[DEVICE]), named(of[BUFFER_TYPE])
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
    cpu = tables("CPU")
    assert named(cpu[BACKEND])["graph_compute"] == "ggml_backend_cpu_graph_compute"
    assert named(cpu[BUFFER])["get_base"] == "ggml_backend_cpu_buffer_get_base"
    assert tables("BLAS")[BUFFER] == cpu[BUFFER]
    assert cpu[BUFFER_TYPE].functions[0] == TableFunction("get_name", "ggml_backend_cpu_buffer_type_get_name", "")


def test_older_backends_have_fewer_functions_and_none_of_a_device_in_2024() -> None:
    march, january = tables("CPU", "2025-03"), tables("CPU", "2024-01")
    assert [len(t.functions) for t in march.values()] == [13, 15, 6, 9]
    assert [len(t.functions) for t in january.values()] == [12, 6, 9]
    assert null(march[BACKEND]).keys() < null(tables("CPU")[BACKEND]).keys()
    assert "memset_tensor" in null(tables("RPC", "2025-03")[BUFFER])
    cuda = tables("CUDA", "2024-01")[BACKEND]
    assert named(cuda)["get_name"] == "ggml_backend_cuda_name"
    assert null(cuda)["graph_plan_create"] == "a crash, should anybody ask"
    assert null(january[BACKEND])["synchronize"] == null(tables("CPU")[BACKEND])["synchronize"]
