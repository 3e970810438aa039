"""Who computes for a device: numpy, or a GPU through cupy, here its double; and what a GPU's memory does."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.cli.errors import run_and_report
from ggmltool.cli.main import cli
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.devices import gpu
from ggmltool.ggml.devices.gpu import Gpu
from ggmltool.ggml.devices.gpu_arrays import GpuArrays
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlFailed, GgmlOverrun, NotComputable
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.arrays import HostArrays
from tests.gpu.conftest import Doubles
from tests.gpu.double import CUDARuntimeError, Cupy
from tests.needs import library


def scenario(*backends: Any, weights: str = "f32", **more: Any) -> dict[str, Any]:
    """A product of a weight on the first backend with an input."""
    names = [b if isinstance(b, str) else b["name"] for b in backends]
    w = {"type": weights, "ne": [32, 4], "data": {"normal": {"seed": 1}}}
    return {
        "ggmltool": 1,
        "backends": list(backends),
        "contexts": {
            "gpu": {"buft": names[0], "usage": "weights", "tensors": {"w": w}},
            "in": {
                "tensors": {"x": {"type": "f32", "ne": [32, 3], "flags": ["input"], "data": {"normal": {"seed": 2}}}}
            },
        },
        "graphs": {"g": {"nodes": {"y": {"op": "mul_mat", "src": ["w", "x"], "flags": ["output"]}}}},
        **more,
    }


def engines(*backends: Any) -> list[str]:
    """Who computes for each."""
    return [b.engine for b in ggmltool.load(scenario(*backends, "CPU")).start(values=True).start().backends]


def refusal(*backends: Any) -> NotComputable:
    """What is raised where values are to be computed."""
    with pytest.raises(NotComputable) as caught:
        ggmltool.load(scenario(*backends)).compute()
    return caught.value


def test_auto_takes_a_gpu_for_cuda_devices_only(double: Doubles) -> None:
    double()
    assert engines("CUDA0", "Vulkan0", "GPU0") == ["cupy", "numpy", "numpy", "numpy"]


def test_cupy_can_stand_for_any_device_with_memory_of_its_own(double: Doubles) -> None:
    double()
    assert engines({"name": "GPU0", "engine": "cupy"}, {"name": "CUDA0", "engine": "numpy"}) == [
        "cupy",
        "numpy",
        "numpy",
    ]


def test_auto_takes_numpy_where_there_is_no_gpu(double: Doubles) -> None:
    double(0)
    assert engines("CUDA0") == ["numpy", "numpy"]


def test_devices_share_a_gpu_where_there_are_not_enough(double: Doubles) -> None:
    double(2)
    run = ggmltool.load(scenario("CUDA0", "CUDA1", "CUDA2", "CPU")).start(values=True)
    queues = [b.queue for b in run.start().backends]
    assert [None if q is None else q.gpu.number for q in queues] == [0, 1, 0, None]
    assert queues[0] is not queues[2]


def test_a_gpu_that_nobody_needs_is_left_alone(double: Doubles) -> None:
    cupy = double(2)
    ggmltool.load(scenario("CUDA1", "CPU")).compute()
    assert cupy.state.free[0] == cupy.state.total
    assert {s.device_id for s in cupy.state.made} == {1}
    with pytest.raises(IndexError):
        gpu.find().gpus[2]


def test_a_gpu_that_cannot_be_used_is_said(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = double(2)

    def taken(device: int) -> Any:
        raise CUDARuntimeError("cudaErrorDevicesUnavailable: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(cupy.state, "Device", taken)
    with pytest.raises(GgmlFailed, match="GPU 0 cannot be used: cudaErrorDevicesUnavailable"):
        ggmltool.load(scenario("CUDA0", "CPU")).compute()


def test_planning_looks_for_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find", lambda: pytest.fail("a GPU was looked for"))
    assert ggmltool.load(scenario({"name": "CUDA0", "engine": "cupy"}, "CPU")).plan().ok


def test_without_the_package_the_refusal_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    gpu.find.cache_clear()
    error = refusal({"name": "CUDA0", "engine": "cupy"}, "CPU")
    assert error.message == "CUDA0 has the engine cupy: cupy is not installed"
    assert "pip install 'ggmltool[cuda]'" in error.explanation
    assert "'ggmltool[cuda13]'" in error.explanation
    gpu.find.cache_clear()


def test_without_a_gpu_the_refusal_says_so(double: Doubles) -> None:
    double(0)
    error = refusal({"name": "CUDA0", "engine": "cupy"}, "CPU")
    assert error.message == "CUDA0 has the engine cupy: cupy finds no GPU"


def test_a_cupy_that_cannot_be_imported_is_none(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    double()

    def broken(name: str) -> Any:
        warnings.warn("CUDA path could not be detected", UserWarning, stacklevel=2)
        raise ImportError("\n====\nlibcudart.so.12: cannot open shared object file\n====")

    monkeypatch.setattr(gpu, "import_module", broken)
    assert gpu.find().why == "cupy cannot be imported: libcudart.so.12: cannot open shared object file"


def test_a_cupy_without_a_driver_finds_no_gpu(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = double()

    def no_driver() -> int:
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    monkeypatch.setattr(cupy.state.runtime._of, "getDeviceCount", no_driver)
    assert gpu.find().why.startswith("cupy finds no GPU: cudaErrorInsufficientDriver")


def test_a_cupy_that_computes_nothing_is_none(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = double()

    def no_cublas(*_: Any) -> Any:
        raise RuntimeError("libcublas.so.12 not found")

    monkeypatch.setattr(cupy, "matmul", no_cublas)
    assert gpu.find().why == "cupy cannot compute on the GPU: libcublas.so.12 not found"
    assert engines("CUDA0") == ["numpy", "numpy"]


def test_a_cpu_is_no_gpu(double: Doubles) -> None:
    double()
    error = refusal({"name": "CPU", "engine": "cupy"})
    assert "it is a CPU, and cupy computes on NVIDIA's GPUs" in error.message


def test_a_device_that_uses_the_hosts_memory_stays_with_numpy(double: Doubles) -> None:
    double()
    device = {"name": "CUDA0", "supports_bufts": ["CPU"]}
    assert engines(device) == ["numpy", "numpy"]
    error = refusal({**device, "engine": "cupy"}, "CPU")
    assert "it uses memory of other devices (CPU)" in error.message


def test_the_first_ggml_gets_no_gpu(double: Doubles) -> None:
    double()
    source = scenario({"name": "CUDA0", "engine": "cupy"}, "CPU", ggml="2024-01")
    del source["contexts"]["in"]["tensors"]["x"]["flags"]
    source["graphs"]["g"]["nodes"] = {"y": "mul_mat(w, x)"}
    with pytest.raises(NotComputable, match="is computed by numpy only"):
        ggmltool.load(source).start(values=True).start()


def test_memory_that_the_gpu_lacks_is_ggmls_failure(double: Doubles) -> None:
    cupy = double(1, total=256)
    with pytest.raises(GgmlFailed) as caught:
        ggmltool.load(scenario("CUDA0", "CPU")).compute()
    assert caught.value.message.startswith("allocating 0.00 MiB on device 0: cudaMalloc failed: out of memory")
    assert "of 256 bytes are free on Double 0" in caught.value.explanation
    assert cupy.pools_freed == 1


def test_a_buffer_is_one_allocation_of_its_planned_size(double: Doubles) -> None:
    cupy = double()
    run = ggmltool.load(scenario("CUDA0", "CPU")).start(values=True)
    run.start()
    free = cupy.state.total - cupy.state.free[0]
    assert free == run.buffers[0].size == 512
    assert run.buffers[0].base == 0x10000000


def test_fresh_memory_is_zero(double: Doubles) -> None:
    gpu = Gpu(double(), 0)
    out = np.ones(64, np.uint8)
    gpu.read(gpu.alloc(64, "b"), 0, out)
    assert not out.any()


def test_pinned_host_memory_is_pinned_and_the_cpus(double: Doubles) -> None:
    cupy = double()
    source = scenario("CUDA0", "CPU")
    source["contexts"]["in"]["buft"] = "CUDA_Host"
    on_gpu = ggmltool.load(source).compute()
    assert cupy.state.pinned == [384]
    source["backends"][0] = {"name": "CUDA0", "engine": "numpy"}
    np.testing.assert_allclose(on_gpu["y"], ggmltool.load(source).compute()["y"], rtol=1e-5)


def test_quantized_weights_are_converted_once_while_nobody_writes_to_them(
    double: Doubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    double()
    decoded: list[str] = []
    decode = GpuArrays.decode

    def counted(self: GpuArrays, data: Any, type: Any) -> Any:
        decoded.append(type.name)
        return decode(self, data, type)

    monkeypatch.setattr(GpuArrays, "decode", counted)
    loaded = ggmltool.load(scenario("CUDA0", "CPU", weights="q8_0"))
    run = loaded.start(values=True)
    sched = run.start()
    for _ in range(3):
        sched.reset()
        assert run.alloc("g").ok
        run.compute("g")
    assert decoded.count("q8_0") == 1
    first = run.get("y")
    (step,) = loaded.steps([{"set": {"w": {"fill": 0.5}}}])
    run.step(step)
    sched.reset()
    assert run.alloc("g").ok
    run.compute("g")
    assert decoded.count("q8_0") == 2
    assert not np.allclose(first, run.get("y"))


def test_what_is_kept_gives_way_to_buffers(double: Doubles) -> None:
    cupy = double(1, total=1000)
    gpu = Gpu(cupy, 0)
    buffer = Buffer(BufferType("CUDA0", "CUDA0"), 100, AddressSpace())
    buffer.buft.gpu = gpu
    gpu.kept.get(buffer.memory, "a", lambda: cupy.zeros(10))
    assert gpu.kept.used == 80
    with pytest.raises(GgmlFailed):
        gpu.alloc(2000, "b")
    assert gpu.kept.used == 0


def test_who_watches_a_gpu_sees_what_it_has_computed(double: Doubles) -> None:
    double()
    run = ggmltool.load(scenario("CUDA0", "CPU")).start(values=True)
    assert run.alloc("g").ok
    seen: list[float] = []
    run.compute("g", lambda t: seen.append(float(HostArrays().raw(t).sum())))
    assert seen == [pytest.approx(float(run.get("y").sum()))]


def test_a_function_of_python_gets_and_gives_arrays_of_the_host(double: Doubles) -> None:
    double()
    source = scenario({"name": "GPU0", "engine": "cupy"}, "CPU")
    source["graphs"]["g"]["nodes"] = {"y": {"op": "map_custom1", "src": ["w"], "flags": ["output"]}}
    given: list[Any] = []

    def twice(a: Any) -> Any:
        given.append(type(a))
        return 2 * a

    out = ggmltool.load(source).compute(custom={"y": twice})
    assert given == [np.ndarray]
    source["graphs"]["g"]["nodes"] = {"y": {"op": "scale", "src": ["w"], "s": 2.0, "flags": ["output"]}}
    np.testing.assert_array_equal(out["y"], ggmltool.load(source).compute()["y"])


def test_an_error_of_cuda_ends_as_in_ggml(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = double()

    def failing(*_: Any) -> Any:
        raise CUDARuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    run = ggmltool.load(scenario("CUDA0", "CPU")).start(values=True)
    assert run.alloc("g").ok
    monkeypatch.setattr(cupy, "run", failing)
    with pytest.raises(GgmlAbort, match="CUDA error: cudaErrorLaunchFailure") as caught:
        run.compute("g")
    assert caught.value.explanation == "on GPU 0, Double 0"


def on_gpu(cupy: Cupy, type: str = "f32") -> tuple[GpuArrays, Tensor]:
    """A tensor of 4 by 3 elements in a GPU's memory."""
    gpu = Gpu(cupy, 0)
    buft = BufferType("CUDA0", "CUDA0")
    buft.gpu = gpu
    t = Tensor(TYPES[type], (4, 3, 1, 1), name="t")
    t.buffer = Buffer(buft, 48, AddressSpace())
    t.data = t.buffer.base
    return GpuArrays(gpu, "CUDA0", frozenset((buft,)), DEFAULT.ops), t


def test_a_view_that_leaves_its_buffer_is_refused(double: Doubles) -> None:
    arrays, t = on_gpu(double())
    t.data += 4
    with pytest.raises(GgmlOverrun, match="reads 4 bytes beyond the buffer of t"):
        arrays.raw(t)


def test_elements_that_lie_askew_are_refused(double: Doubles) -> None:
    arrays, t = on_gpu(double())
    t.set_layout((3, 2, 1, 1), (4, 18, 36, 36))
    with pytest.raises(NotComputable, match="t is not aligned"):
        arrays.raw(t)


def test_memory_of_others_is_refused(double: Doubles) -> None:
    arrays, t = on_gpu(double())
    assert t.buffer is not None
    t.buffer.buft = BufferType("CPU", "CPU")
    with pytest.raises(GgmlFailed, match="CUDA0 cannot read t, which lies in CPU"):
        arrays.raw(t)
    t.buffer = None
    with pytest.raises(GgmlAssert, match="tensor buffer not set"):
        arrays.raw(t)


def test_bf16_is_rounded_and_read_as_on_the_host(double: Doubles) -> None:
    cupy = double()
    arrays, t = on_gpu(cupy, "bf16")
    host = HostArrays()
    values = np.float32([[1, 1.00390625, 1.01171875, -3e38], [3.4e38, np.inf, -np.inf, np.nan], [0, -0.0, 1e-40, 7]])
    arrays.put(t, cupy.asarray(values))
    expected = host.decode(host.encode(values, TYPES["bf16"]), TYPES["bf16"])
    np.testing.assert_array_equal(arrays.to_host(arrays.f32(t))[0, 0], expected)


def test_what_the_host_sees_of_a_gpus_tensor_cannot_be_written_to(double: Doubles) -> None:
    _, t = on_gpu(double())
    with pytest.raises(ValueError, match="read-only"):
        HostArrays().raw(t)[...] = 1


def test_two_runs_share_no_memory(double: Doubles) -> None:
    cupy = double()
    for _ in range(3):
        ggmltool.load(scenario("CUDA0", "CPU")).compute()
    import gc

    gc.collect()
    assert cupy.state.free == [cupy.state.total]


def test_the_double_is_not_left_behind() -> None:
    assert not isinstance(import_module("sys").modules.get("cupy"), Cupy)


def test_backends_shows_the_gpu_and_its_memory(double: Doubles, capsys: pytest.CaptureFixture[str]) -> None:
    double(1, 3 << 30)
    assert run_and_report(cli, ["backends", "--device", "CUDA0", "--device", "CPU"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "computed by cupy, on GPU 0 of this machine, Double 0, with 3 GiB of 3 GiB free" in text
    assert "memory 3 GiB (3221225472 bytes)" in text
    assert run_and_report(cli, ["backends", "--json", "--device", "CUDA0"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["backends"]
    assert found["engine"] == {
        "name": "cupy",
        "gpu": {"number": 0, "name": "Double 0", "free": 3 << 30, "total": 3 << 30},
        "refusal": None,
    }


def test_backends_shows_what_is_refused(double: Doubles, capsys: pytest.CaptureFixture[str]) -> None:
    double(0)
    assert run_and_report(cli, ["backends", "--device", "CUDA0:engine=cupy", "--device", "CPU"]) == 0
    assert "none: CUDA0 has the engine cupy: cupy finds no GPU" in " ".join(capsys.readouterr().out.split())


def test_compare_says_who_computed_on_each(double: Doubles, capsys: pytest.CaptureFixture[str]) -> None:
    double()
    assert run_and_report(cli, ["compare", "--backends", "CUDA0,CPU", "transformer"]) == 0
    text = capsys.readouterr().out
    assert "23 of 31 nodes compared" in text
    assert "CUDA0 is computed by cupy and CPU is computed by numpy" in text
    assert run_and_report(cli, ["compare", "--backends", "CUDA0,CPU", "--json", "transformer"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [b["engine"] for b in found["backends"]] == ["cupy", "numpy"]


def test_a_wrong_kernel_is_found_whoever_computes_beside_it(
    double: Doubles, capsys: pytest.CaptureFixture[str]
) -> None:
    double()
    for backends in ("CUDA0,CPU", "CPU,CUDA0"):
        assert run_and_report(cli, ["compare", "--backends", backends, "--inject", "attn_in=add", "transformer"]) == 1
        assert "attn_in" in capsys.readouterr().out


def test_run_shows_nodes_of_a_gpu_as_they_are_computed(double: Doubles, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for devices in (1, 0):
        double(devices)
        assert run_and_report(cli, ["run", "--watch", "attn_in", "transformer"]) == 0
        shown.append(capsys.readouterr().out)
    assert "attn_in" in shown[0]
    assert shown[0].splitlines()[:8] == shown[1].splitlines()[:8]


def test_a_device_whose_memory_others_use_stays_with_numpy(double: Doubles) -> None:
    double()
    assert engines("CUDA0", {"name": "GPU1", "supports_bufts": ["CUDA0"]}) == ["numpy"] * 3
    error = refusal({"name": "CUDA0", "engine": "cupy"}, {"name": "GPU1", "supports_bufts": ["CUDA0"]}, "CPU")
    assert "other devices (GPU1) use its memory, but a GPU's is its own" in error.message


def test_verify_takes_a_gpu_only_where_one_is_asked_for(
    double: Doubles, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    library()
    for engine, used in (("auto", False), ("cupy", True)):
        cupy = double()
        path = tmp_path / f"{engine}.json"
        path.write_text(json.dumps(scenario({"name": "CUDA0", "profile": "custom", "engine": engine}, "CPU")))
        assert run_and_report(cli, ["verify", "--values", str(path)]) == 0
        assert bool(cupy.state.timeline.works) is used
    capsys.readouterr()
