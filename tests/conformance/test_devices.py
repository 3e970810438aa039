"""Devices on the real scheduler: packed weights on the real CPU device, node orders, models on GPUs of each kind."""

from __future__ import annotations

import ctypes
from random import Random
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import CAPS, extra_names, make_buft, make_device, make_extra_buft
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.events import Reordered
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.interfaces import FunctionTable, tables_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.tensor import contiguous_nb
from ggmltool.oracle import run, run_many, structs
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.tensors import Mirror
from ggmltool.scenario.scenario import LoadedScenario
from tests.conformance import captured
from tests.conformance.compare import compare_runs
from tests.conformance.fuzz_wide import scenario_with_rules
from tests.conformance.judged import Judging
from tests.conformance.releases import in_turn, release_of, seeds_of
from tests.conformance.run import engine_run, judge, planning_only


def cpu_features(lib: Lib) -> frozenset[str]:
    """What this machine's CPU has, as the library sees it."""
    names = {"avx2": "avx2", "avx512": "avx512", "neon": "neon", "dotprod": "dotprod", "matmul_int8": "i8mm"}
    return frozenset(ours for name, ours in names.items() if lib.cpu[f"ggml_cpu_has_{name}"]())


def repack_address(lib: Lib) -> int:
    function = lib.cpu["_Z35ggml_backend_cpu_repack_buffer_typev"]
    function.restype = ctypes.c_void_p
    address: int = function()
    return address


def machine(lib: Lib) -> tuple[Device, dict[int, BufferType]]:
    profile = profiles_of(release_of(lib))["CPU"].but(has=cpu_features(lib))
    host = make_buft(profile, "CPU", "CPU")
    repack = make_extra_buft(profile, extra_names(profile, "CPU")["CPU_REPACK"], "CPU_REPACK", "CPU")
    device = make_device(profile, "CPU", host, [repack])
    return device, {repack_address(lib): repack, lib.ggml_backend_cpu_buffer_type(): host}


@pytest.mark.parametrize("type", sorted(TYPES))
def test_the_real_cpu_runs_out_of_packed_weights_what_the_engine_says(type: str, lib: Lib) -> None:
    device, bufts = machine(lib)
    mirror = Mirror(bufts)
    buffers = [structs.Buffer(buft=address) for address in bufts]
    cpu = lib.ggml_backend_reg_dev_get(lib.ggml_backend_cpu_reg(), 0)
    random = Random(type)
    answers = set()
    for _ in range(400):
        kept = [tensor(random, type), *(tensor(random, "f32" if random.random() < 0.8 else "f16") for _ in range(4))]
        node = tensor(random, "f32")
        node.op = int(random.choice((Op.MUL_MAT, Op.MUL_MAT, Op.MUL_MAT_ID, Op.GET_ROWS, Op.ADD, Op.CPY)))
        for i, source in enumerate(kept):
            if random.random() < (0.9 if i == 0 else 0.15):
                source.buffer = ctypes.addressof(
                    buffers[0 if i == 0 and random.random() < 0.8 else random.randrange(2)]
                )
            node.src[i] = ctypes.addressof(source)
        address = ctypes.addressof(node)
        real = bool(lib.ggml_backend_dev_supports_op(cpu, address))
        assert device.supports_op(mirror.tensor(address)) == real
        answers.add(real)
    assert answers == {True, False}


def tensor(random: Random, type: str) -> structs.Tensor:
    t, dtype = structs.Tensor(), TYPES[type]
    ne = (dtype.block_size, random.choice((4, 8, 12, 16, 24, 30)), *random.choice(((1, 1), (1, 1), (3, 1), (2, 2))))
    t.type = dtype.id
    for i, (n, b) in enumerate(zip(ne, contiguous_nb(dtype, ne), strict=True)):
        t.ne[i], t.nb[i] = n, b
    return t


BRANCHES: dict[str, Any] = {
    "contexts": {
        "weights": {"buft": "D", "usage": "weights", "tensors": {f"w{i}": "f32[64, 64]" for i in range(3)}},
        "inputs": {"tensors": {"x": {"type": "f32", "ne": [64, 8], "flags": ["input"]}}},
    },
    "graphs": {
        "main": {
            "nodes": {
                "a0": "mul_mat(w0, x)", "b0": "norm(a0, eps=1e-5)", "a1": "mul_mat(w1, x)", "b1": "norm(a1, eps=1e-5)",
                "a2": "mul_mat(w2, x)", "b2": "norm(a2, eps=1e-5)", "sum": "add(b0, b1)", "out": "add(sum, b2)",
            }
        }
    },
    "steps": ["reserve main", "alloc main", "reset", "alloc main", "compute main", {"get": ["out"]}],
}  # fmt: skip


@pytest.mark.parametrize("profile", ["Metal", "Vulkan"])
@pytest.mark.parametrize("parallel", [False, True])
def test_the_real_scheduler_plans_and_computes_the_order_that_the_device_makes(
    judged: Judging, profile: str, parallel: bool
) -> None:
    branches = {**BRANCHES, "scheduler": {"parallel": parallel}}
    device = {"name": "D", "profile": profile}
    j = judged({**branches, "backends": [device, "CPU"]})
    assert [n.id for n in j.last.nodes] == ["a0", "a1", "a2", "b0", "b1", "b2", "sum", "out"]
    assert len(j.of(Reordered)) == 3
    assert "b0 " in j.texts[-1].splitlines()[3]
    plain = judged({**branches, "backends": [{**device, "graph_optimize": False}, "CPU"]})
    assert [n.id for n in plain.last.nodes] == ["a0", "b0", "a1", "b1", "a2", "b2", "sum", "out"]
    assert plain.of(Reordered) == []


def test_a_device_orders_only_its_own_splits(judged: Judging) -> None:
    weights = {"buft": "CPU", "usage": "weights", "tensors": {"w1": "f32[64, 64]"}}
    contexts = {**BRANCHES["contexts"], "cpu": weights}
    contexts["weights"] = {**contexts["weights"], "tensors": {"w0": "f32[64, 64]", "w2": "f32[64, 64]"}}
    j = judged({**BRANCHES, "contexts": contexts, "backends": [{"name": "D", "profile": "Metal"}, "CPU"]})
    ids = [n.id for n in j.last.nodes]
    assert [(s.backend, ids[s.i_start : s.i_end]) for s in j.last.splits] == [
        ("D", ["a0", "b0"]), ("CPU", ["a1"]), ("D", ["b1", "a2", "b2", "sum", "out"]),
    ]  # fmt: skip


def on(profile: str, scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario with its GPUs of another kind."""
    backends = [
        {"name": b["name"], "profile": profile} if isinstance(b, dict) and b["name"] != "CPU" else b
        for b in scenario["backends"]
    ]
    return {**scenario, "backends": backends}


KINDS = ("CUDA", "ROCm", "Metal", "Vulkan", "SYCL", "OpenCL", "CANN", "RPC")
ON_KINDS = [(name, KINDS[(3 * i + k) % 8]) for i, name in enumerate(captured.names()[::9]) for k in range(3)]
"""Each model on three of the kinds, each kind with several models."""


@pytest.mark.skipif(not ON_KINDS, reason="the captured graphs are not beside this checkout")
@in_turn("pair", ON_KINDS)
def test_a_model_on_gpus_of_any_kind_is_planned_as_the_real_library_plans_it(
    pair: tuple[str, str], release: str
) -> None:
    name, profile = pair
    loaded = ggmltool.load(on(profile, captured.read(name)), ggml=release)
    model = planning_only(loaded)
    plans, texts = engine_run(loaded, model)
    assert judge(plans, texts, run(model, 2)) == []


@in_turn("name", captured.names())
def test_a_reason_is_there_exactly_where_a_device_does_not_run_a_node(name: str, release: str) -> None:
    scenario = ggmltool.load(captured.read(name), ggml=release)
    run = scenario.start()
    graph = run.build(scenario.graph_name())
    buft = next(iter(run.bufts.values()))
    devices = [b.device for b in run.backends]
    devices += [
        make_device(p, "D", make_buft(p, "D", "D"), [buft]) for p in profiles_of(scenario.model.release).values()
    ]
    for device in devices:
        for n in graph.nodes:
            assert (device.why_not(n) is None) == device.supports_op(n)
        for other in run.bufts.values():
            assert (device.why_not_buft(other) is None) == device.supports_buft(other)


BLOCK, BLOCKS = 40, 2


@pytest.mark.parametrize("block", range(BLOCKS))
def test_plans_with_rules_are_those_of_the_real_library(block: int, release: str) -> None:
    """U16."""
    seeds = seeds_of(release, BLOCKS * BLOCK)[block * BLOCK :][:BLOCK]
    loaded = [ggmltool.load(scenario_with_rules(seed), ggml=release) for seed in seeds]
    models = [planning_only(one) for one in loaded]
    ours = [engine_run(LoadedScenario(model), model, debug=False)[0] for model in models]
    theirs = run_many(models, debug=0, values=False)
    failed = {
        seed: differences
        for seed, plans, real in zip(seeds, ours, theirs, strict=True)
        if (differences := compare_runs(plans, real.plans))
    }
    assert failed == {}


def test_the_rules_decide_something() -> None:
    """U16."""
    without, moved = 0, 0
    for seed in range(BLOCK):
        loaded = ggmltool.load(scenario_with_rules(seed))
        without += not any(b.supports is not None and b.supports.rules for b in loaded.model.backends)
        run = loaded.start()
        built = run.build(next(iter(loaded.model.graphs)))
        moved += any(b.device.refusal(t) is not None for b in run.backends for t in built.nodes)
    assert without < BLOCK / 2
    assert moved > BLOCK / 3


TABLES = ("ggml_backend_i", "ggml_backend_device_i", "ggml_backend_buffer_type_i", "ggml_backend_buffer_i")


def table_of(kind: str, release: str) -> FunctionTable:
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


@pytest.mark.parametrize("kind", TABLES)
def test_the_cpu_has_the_functions_that_the_real_one_has(kind: str, lib: Lib, release: str) -> None:
    real, table = real_tables(lib)[kind], table_of(kind, release)
    assert {f.field: bool(getattr(real, f.field)) for f in table.functions} == {
        f.field: f.function is not None for f in table.functions
    }


@pytest.mark.parametrize("kind", TABLES)
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
