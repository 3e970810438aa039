"""What a backend of one's own has to implement: each function is taken away from the real CPU backend and called."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ggmltool.ggml.releases.interfaces import Duty, Need, Outcome, duties
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.oracle import structs
from ggmltool.oracle.fork import quiet_child
from ggmltool.oracle.lib import Lib

P, Z = ctypes.c_void_p, ctypes.c_size_t


class RegI(ctypes.Structure):
    _fields_ = tuple((duty.field, P) for duty in duties(NEWEST.name)["ggml_backend_reg_i"])


class Reg(ctypes.Structure):
    _fields_ = (("api_version", ctypes.c_int), ("iface", RegI), ("context", P))


class Bench:
    """The real CPU backend of a library with its tables, and two tensors in a buffer of it."""

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.backend = lib.cpu_backend()
        self.reg = lib.ggml_backend_cpu_reg()
        self.device = structs.Backend.from_address(self.backend).device
        self.buft = lib.ggml_backend_cpu_buffer_type()
        self.ctx = lib.init(1 << 20)
        self.a, self.b = (lib.tensor(self.ctx, "f32", [16]) for _ in range(2))
        self.buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(self.ctx, self.buft)
        self.sum = lib.call("add", self.ctx, self.a, self.b)
        self.graph = lib.ggml_new_graph_custom(self.ctx, 16, False)
        lib.ggml_build_forward_expand(self.graph, self.sum)
        self.data = ctypes.create_string_buffer(64)
        self.event = (P * 2)(self.device, None)

    def table(self, kind: str) -> ctypes.Structure:
        """The real table, to be written to."""
        match kind:
            case "ggml_backend_reg_i":
                return Reg.from_address(self.reg).iface
            case "ggml_backend_device_i":
                return structs.Device.from_address(self.device).iface
            case "ggml_backend_i":
                return structs.Backend.from_address(self.backend).iface
            case "ggml_backend_buffer_type_i":
                return self.lib.structs["ggml_backend_buffer_type"].from_address(self.buft).iface
        return structs.Buffer.from_address(self.buffer).iface


def call(b: Bench, name: str, *args: Any, result: Any = None) -> Any:
    function = getattr(b.lib.base, name)
    function.restype = result
    function.argtypes = None
    return function(*(P(a) if isinstance(a, int) else a for a in args))


CALLS: dict[str, dict[str, Callable[[Bench], object]]] = {
    "ggml_backend_reg_i": {
        "get_name": lambda b: call(b, "ggml_backend_reg_name", b.reg),
        "get_device_count": lambda b: call(b, "ggml_backend_reg_dev_count", b.reg),
        "get_device": lambda b: call(b, "ggml_backend_reg_dev_get", b.reg, Z(0)),
        "get_proc_address": lambda b: call(b, "ggml_backend_reg_get_proc_address", b.reg, b"x"),
    },
    "ggml_backend_device_i": {
        "get_name": lambda b: call(b, "ggml_backend_dev_name", b.device),
        "get_description": lambda b: call(b, "ggml_backend_dev_description", b.device),
        "get_memory": lambda b: call(b, "ggml_backend_dev_memory", b.device, ctypes.byref(Z()), ctypes.byref(Z())),
        "get_type": lambda b: call(b, "ggml_backend_dev_type", b.device),
        "get_props": lambda b: call(b, "ggml_backend_dev_get_props", b.device, ctypes.create_string_buffer(256)),
        "init_backend": lambda b: call(b, "ggml_backend_dev_init", b.device, None),
        "get_buffer_type": lambda b: call(b, "ggml_backend_dev_buffer_type", b.device),
        "get_host_buffer_type": lambda b: call(b, "ggml_backend_dev_host_buffer_type", b.device),
        "buffer_from_host_ptr": lambda b: call(
            b, "ggml_backend_dev_buffer_from_host_ptr", b.device, b.data, Z(64), Z(64)
        ),
        "supports_op": lambda b: call(b, "ggml_backend_dev_supports_op", b.device, b.sum),
        "supports_buft": lambda b: call(b, "ggml_backend_dev_supports_buft", b.device, b.buft),
        "offload_op": lambda b: call(b, "ggml_backend_dev_offload_op", b.device, b.sum),
        "event_new": lambda b: call(b, "ggml_backend_event_new", b.device),
        "event_free": lambda b: call(b, "ggml_backend_event_free", b.event),
        "event_synchronize": lambda b: call(b, "ggml_backend_event_synchronize", b.event),
    },
    "ggml_backend_i": {
        "get_name": lambda b: call(b, "ggml_backend_name", b.backend),
        "free": lambda b: call(b, "ggml_backend_free", b.backend),
        "set_tensor_async": lambda b: call(b, "ggml_backend_tensor_set_async", b.backend, b.a, b.data, Z(0), Z(64)),
        "get_tensor_async": lambda b: call(b, "ggml_backend_tensor_get_async", b.backend, b.a, b.data, Z(0), Z(64)),
        "set_tensor_2d_async": lambda b: call(
            b, "ggml_backend_tensor_set_2d_async", b.backend, b.a, b.data, Z(0), Z(8), Z(2), Z(16), Z(16)
        ),
        "get_tensor_2d_async": lambda b: call(
            b, "ggml_backend_tensor_get_2d_async", b.backend, b.a, b.data, Z(0), Z(8), Z(2), Z(16), Z(16)
        ),
        "cpy_tensor_async": lambda b: call(b, "ggml_backend_tensor_copy_async", b.backend, b.backend, b.a, b.b),
        "synchronize": lambda b: call(b, "ggml_backend_synchronize", b.backend),
        "graph_plan_create": lambda b: call(b, "ggml_backend_graph_plan_create", b.backend, b.graph),
        "graph_plan_free": lambda b: call(b, "ggml_backend_graph_plan_free", b.backend, b.data),
        "graph_plan_compute": lambda b: call(b, "ggml_backend_graph_plan_compute", b.backend, b.data),
        "graph_compute": lambda b: call(b, "ggml_backend_graph_compute_async", b.backend, b.graph),
        "event_record": lambda b: call(b, "ggml_backend_event_record", b.event, b.backend),
        "event_wait": lambda b: call(b, "ggml_backend_event_wait", b.backend, b.event),
        "graph_optimize": lambda b: planned(b),
    },
    "ggml_backend_buffer_type_i": {
        "get_name": lambda b: call(b, "ggml_backend_buft_name", b.buft),
        "alloc_buffer": lambda b: call(b, "ggml_backend_buft_alloc_buffer", b.buft, Z(64)),
        "alloc_buffer_n": lambda b: call(b, "ggml_backend_buft_alloc_buffer_n", b.buft, (P * 2)(b.a, b.b), 2),
        "get_alignment": lambda b: call(b, "ggml_backend_buft_get_alignment", b.buft),
        "get_max_size": lambda b: call(b, "ggml_backend_buft_get_max_size", b.buft),
        "get_alloc_size": lambda b: call(b, "ggml_backend_buft_get_alloc_size", b.buft, b.a),
        "get_alloc_size_n": lambda b: call(b, "ggml_backend_buft_get_alloc_size_n", b.buft, (P * 2)(b.a, b.b), 2),
        "is_host": lambda b: call(b, "ggml_backend_buft_is_host", b.buft),
    },
    "ggml_backend_buffer_i": {
        "free_buffer": lambda b: call(b, "ggml_backend_buffer_free", b.buffer),
        "get_base": lambda b: call(b, "ggml_backend_buffer_get_base", b.buffer),
        "init_tensor": lambda b: call(b, "ggml_backend_buffer_init_tensor", b.buffer, b.a),
        "memset_tensor": lambda b: call(b, "ggml_backend_tensor_memset", b.a, ctypes.c_uint8(1), Z(0), Z(64)),
        "set_tensor": lambda b: call(b, "ggml_backend_tensor_set", b.a, b.data, Z(0), Z(64)),
        "get_tensor": lambda b: call(b, "ggml_backend_tensor_get", b.a, b.data, Z(0), Z(64)),
        "set_tensor_2d": lambda b: call(b, "ggml_backend_tensor_set_2d", b.a, b.data, Z(0), Z(8), Z(2), Z(16), Z(16)),
        "get_tensor_2d": lambda b: call(b, "ggml_backend_tensor_get_2d", b.a, b.data, Z(0), Z(8), Z(2), Z(16), Z(16)),
        "cpy_tensor": lambda b: call(b, "ggml_backend_tensor_copy", b.a, b.b),
        "clear": lambda b: call(b, "ggml_backend_buffer_clear", b.buffer, ctypes.c_uint8(1)),
        "reset": lambda b: call(b, "ggml_backend_buffer_reset", b.buffer),
    },
}
"""A call that comes to each function; of graph_plan_update there is none in ggml."""


def planned(b: Bench) -> None:
    """A scheduler of the backend alone splits a graph, and with it asks for the order of its nodes."""
    backends, bufts = (P * 1)(b.backend), (P * 1)(b.buft)
    sched = call(b, "ggml_backend_sched_new", backends, bufts, 1, Z(64), False, False, result=P)
    assert call(b, "ggml_backend_sched_alloc_graph", sched, b.graph, result=ctypes.c_bool)


def without(lib: Lib, kind: str, name: str) -> Outcome:
    """What comes of the call where the function is NULL, found out in a child."""
    child = os.fork()
    if child == 0:
        quiet_child()
        bench = Bench(lib)
        setattr(bench.table(kind), name, None)
        CALLS[kind][name](bench)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        return Outcome.FINE
    return {signal.SIGSEGV: Outcome.CRASH, signal.SIGABRT: Outcome.ASSERT}[signal.Signals(os.WTERMSIG(status))]


EVERY = [(kind, duty) for kind, table in duties(NEWEST.name).items() for duty in table if duty.field in CALLS[kind]]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(("kind", "duty"), EVERY, ids=[f"{kind}-{duty.field}" for kind, duty in EVERY])
def test_a_function_that_is_null_has_the_outcome_that_is_said(kind: str, duty: Duty, lib: Lib, release: str) -> None:
    if duty in duties(release)[kind]:
        assert without(lib, kind, duty.field) is duty.outcome
    else:
        assert duty.field not in dict(Bench(lib).table(kind)._fields_)


def test_every_function_is_there_and_what_is_required_is_what_crashes() -> None:
    left_out = [
        (kind, duty.field)
        for kind, table in duties(NEWEST.name).items()
        for duty in table
        if duty.field not in CALLS[kind]
    ]
    assert left_out == [("ggml_backend_i", "graph_plan_update")]
    for kind, duty in EVERY:
        if duty.need is Need.REQUIRED:
            assert duty.outcome is Outcome.CRASH or (kind, duty.field) == ("ggml_backend_buffer_i", "get_base")
        elif duty.need is Need.OPTIONAL:
            assert duty.outcome is Outcome.FINE or duty.if_null == "an assertion; the scheduler never asks"
