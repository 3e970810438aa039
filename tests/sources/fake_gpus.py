"""Real llama.cpp with GPUs that do not exist: where it puts a model, and what its scheduler makes of the graph.

    placed = place(cached("llama"), [FakeGpu("CUDA0"), FakeGpu("CUDA1")], Settings(n_gpu_layers=3))
    placed.scenario       # the graph as llama.cpp hands it to ggml_backend_sched_reserve: contexts `w_CUDA0`, `w_CPU`,
                          # `kv_CUDA0` … by buffer type, its own assignments as `backend:`, the devices as `backends:`
    placed.splits         # [("CUDA0", 0, 12, ("inp_embd", …)), …]: what the real scheduler did with it
    placed.buffer_sizes   # {"CUDA0": 7379200, …}: bytes of the compute buffers it reserved
    placed.logged         # {"CUDA0 compute buffer size": 7.04, …}: MiB as logged while the context was made, for the
                          # larger of a prompt and a token; without `alloc` llama.cpp forgets its assignments there
    placed.weights        # {"blk.0.attn_q.weight": "CPU", …}: the buffer type of every weight
    placed.allocated      # {"CUDA0": [204800, …]}: bytes of every buffer that was asked of each device
    placed.log            # every line that it logged; with debug=2 also the scheduler's own print of the graph

A fake GPU is made of callbacks. It runs every op but those of `without`, has memory that nobody touches, and is one of
`profile: custom` in the scenario. Nothing is computed, and of the model only the metadata is loaded.

The library runs in a child process; `Refused` carries what went wrong there.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ggmltool.oracle import structs
from ggmltool.oracle.structs import Tensor
from ggmltool.sources.llama.capture.lib import ABORT_CALLBACK, LlamaLib
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.capture.session import LlamaGraphWriter, Session
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.state.memory.tensors import TensorStruct
from ggmltool.structs.mirrors import mirrors_of
from tests.sched_memory import splits_of
from tests.sources.fake_device import Device, FakeGpu
from tests.sources.hook import replace

ROOT = Path(__file__).resolve().parents[2]
MIB_LINE = re.compile(r"(\S+ (?:compute|model|KV|RS|output) buffer size) = +([0-9.]+) MiB")
SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}

_P, _Z, _B, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_int


class Refused(Exception):  # noqa: N818 - it says what llama.cpp did
    """llama.cpp refused or aborted; the message has its words."""


@dataclass(frozen=True)
class Settings:
    """llama.cpp's settings of placement, under the names of its parameters.

    `alloc` loads the weights and allocates for real (on a fake device: into memory that nobody touches), which makes
    `logged` what a user sees; buffer_sizes are then those of the largest graph so far, not of the one asked for.
    `overrides` are pairs of a regular expression and a device's name (or `CPU`), as in -ot; `n_gpu_layers` -1 is all.
    `options` are those of a capture; its `offload_kqv` is -nkvo.
    """

    n_gpu_layers: int = -1
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    op_offload: bool = True
    use_extra_bufts: bool = False
    alloc: bool = False
    options: CaptureOptions = field(default_factory=lambda: CaptureOptions(n_ctx=2048, n_batch=512))


@dataclass(frozen=True)
class Placed:
    """What llama.cpp and its scheduler did; see the top of this file."""

    scenario: dict[str, Any]
    splits: list[tuple[str, int, int, tuple[str, ...]]]
    buffer_sizes: dict[str, int]
    n_copies: int
    weights: dict[str, str]
    allocated: dict[str, list[int]]
    log: list[str]

    @property
    def logged(self) -> dict[str, float]:
        """Sizes in MiB as logged, the last of each kind."""
        return {found[1]: float(found[2]) for line in self.log if (found := MIB_LINE.search(line))}


def place(path: Path, devices: Sequence[FakeGpu], settings: Settings | None = None, debug: int = 0) -> Placed:
    """Let llama.cpp place a model on fake devices and reserve its graph.

    `debug` is the GGML_SCHED_DEBUG of its scheduler. Raises Refused.
    """
    request = {"path": str(path), "devices": [asdict(d) for d in devices], "settings": asdict(settings or Settings())}
    reply = ask("tests.sources.fake_gpus", request, GGML_SCHED_DEBUG=str(debug))
    splits = [(backend, start, end, tuple(inputs)) for backend, start, end, inputs in reply.pop("splits")]
    return Placed(splits=splits, **reply)


def ask(module: str, request: dict[str, Any], **environment: str) -> dict[str, Any]:
    """The reply of a module that runs as a child process, with the library. Raises Refused."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    child = subprocess.run(
        [sys.executable, "-P", "-m", module],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"} | environment,
        check=False,
    )
    try:
        reply: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        raise Refused(f"exit status {child.returncode}: {child.stderr.strip()[-2000:]}") from None
    if "error" in reply:
        raise Refused(reply["error"])
    return reply


class BuftOverride(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", _P))


class FakeSession(Session):
    """A session of a capture with fake devices. `scheds` has the scheduler and the graph it reserved last."""

    def __init__(self, gpus: Sequence[FakeGpu], settings: Settings) -> None:
        super().__init__(settings.options)
        self.settings = settings
        self.structs = mirrors_of(self.lib.ggml, self.lib.has)
        self.next_address = 1 << 44
        self.devices = [Device(self, gpu) for gpu in gpus]
        for device in self.devices:
            self.ggml("ggml_backend_device_register")(ctypes.addressof(device.device))
        self.sched = 0
        self.scenario: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.hook = ctypes.CFUNCTYPE(_B, _P, _P)(self._reserve)
        address = replace(self.lib.found.file, "ggml_backend_sched_reserve", self.hook)
        self.original = ctypes.CFUNCTYPE(_B, _P, _P)(address)

    def ggml(self, name: str) -> Any:
        """A function of the library that only fakes need."""
        function = getattr(self.lib.library, name)
        result, arguments = FUNCTIONS[name]
        function.restype, function.argtypes = result, arguments
        return function

    def address(self, size: int) -> int:
        """An address that nobody touches."""
        base = self.next_address
        self.next_address += -(-size // 4096) * 4096 + 4096
        return base

    def model_params(self) -> Any:
        params = super().model_params()
        settings = self.settings
        self.pointers = (ctypes.c_void_p * (len(self.devices) + 1))(*(ctypes.addressof(d.device) for d in self.devices))
        params.devices = ctypes.addressof(self.pointers)
        params.n_gpu_layers = settings.n_gpu_layers
        params.split_mode = SPLIT_MODES[settings.split_mode]
        params.main_gpu = settings.main_gpu
        params.use_extra_bufts = settings.use_extra_bufts
        params.no_alloc = not settings.alloc
        # As many as llama_max_devices() may be read.
        self.tensor_split = (ctypes.c_float * 16)(*settings.tensor_split)
        params.tensor_split = ctypes.addressof(self.tensor_split) if settings.tensor_split else None
        made = [BuftOverride(pattern.encode(), self._buft(device)) for pattern, device in settings.overrides]
        self.overrides = (BuftOverride * (len(made) + 1))(*made)
        params.tensor_buft_overrides = ctypes.addressof(self.overrides) if made else None
        return params

    def context_params(self) -> Any:
        params = super().context_params()
        params.op_offload = self.settings.op_offload
        return params

    def _buft(self, name: str) -> int:
        for device in self.devices:
            if device.gpu.name == name:
                return ctypes.addressof(device.buft)
        if name != "CPU":
            raise CaptureError(f"no device {name}")
        return int(self.ggml("ggml_backend_cpu_buffer_type")())

    def _reserve(self, sched: int, graph: int) -> bool:
        """In the place of ggml_backend_sched_reserve: the graph before it is split."""
        self.sched = sched
        try:
            self.scenario = PlacedWriter(self, sched).scenario(graph)
        except Exception as failure:
            self.failure = failure
        return bool(self.original(sched, graph))

    def backend_name(self, backend: int) -> str:
        return str(self.ggml("ggml_backend_name")(backend).decode())

    def result(self) -> dict[str, Any]:
        """What to tell of the last graph."""
        sched = self.structs["ggml_backend_sched"].from_address(self.sched)
        backends = sched.backends[: sched.n_backends]
        if sched.n_splits != self.ggml("ggml_backend_sched_get_n_splits")(self.sched):
            raise CaptureError("the scheduler's struct is another one")
        splits = splits_of(sched)
        sizes = {self.backend_name(b): self.ggml("ggml_backend_sched_get_buffer_size")(self.sched, b) for b in backends}
        weights = {
            tensor.get("name", id): context["buft"]
            for context in self.scenario["contexts"].values()
            if context.get("usage") == "weights"
            for id, tensor in context["tensors"].items()
        }
        return {
            "scenario": self.scenario,
            "splits": [
                (
                    self.backend_name(backends[split.backend_id]),
                    split.i_start,
                    split.i_end,
                    [Tensor.from_address(split.inputs[i]).name.decode() for i in range(split.n_inputs)],
                )
                for split in splits
            ],
            "buffer_sizes": sizes,
            "n_copies": sched.n_copies,
            "weights": weights,
            "allocated": {device.gpu.name: device.allocated for device in self.devices},
            "log": [said for _, said in self.log.lines],
        }


class PlacedWriter(LlamaGraphWriter):
    """A graph with its devices: a context per kind and buffer type, and llama.cpp's assignments."""

    def __init__(self, session: FakeSession, sched: int) -> None:
        super().__init__(session.lib)
        self.session = session
        self.sched = sched

    def place(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        name, head = super().place(tensor)
        buft = self.lib.ggml_backend_buft_name(self.lib.ggml_backend_buffer_get_type(tensor.buffer)).decode()
        return f"{'w' if name == 'weights' else name}_{buft}", {**head, "buft": buft}

    def node(self, address: int) -> dict[str, Any]:
        backend = self.session.ggml("ggml_backend_sched_get_tensor_backend")(self.sched, address)
        return self.tensor(address) | ({"backend": self.session.backend_name(backend)} if backend else {})

    def scenario(self, graph: int) -> dict[str, Any]:
        self.add("main", graph)
        parts = self.written()
        sched = self.session.structs["ggml_backend_sched"].from_address(self.sched)
        if sched.n_copies > 1:
            parts["scheduler"]["parallel"] = True
        if not sched.op_offload:
            parts["scheduler"]["op_offload"] = False
        gpus = {device.gpu.name: device.gpu.spec() for device in self.session.devices}
        meta = f"Meta({','.join(gpus)})"
        gpus[meta] = dataclasses.replace(self.session.devices[0].gpu, name=meta, offload_min_batch=None).spec()
        names = [self.session.backend_name(b) for b in sched.backends[: sched.n_backends]]
        release = self.lib.behavior.release.name
        backends = [gpus.get(name, {"name": name}) for name in names]
        head: dict[str, Any] = {"ggmltool": 1, "ggml": release, "backends": backends}
        if any(context.get("buft") == "CPU_REPACK" for context in parts["contexts"].values()):
            head["buffer_types"] = {"CPU_REPACK": {"device": "CPU", "alignment": 32, "ops": ["mul_mat", "mul_mat_id"]}}
        return head | parts


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_backend_device_register": (None, (_P,)),
    "ggml_backend_buffer_init": (_P, (_P, structs.BufferI, _P, _Z)),
    "ggml_backend_cpu_buffer_type": (_P, ()),
    "ggml_backend_name": (ctypes.c_char_p, (_P,)),
    "ggml_backend_sched_get_buffer_size": (_Z, (_P, _P)),
    "ggml_backend_sched_get_n_splits": (_I, (_P,)),
    "ggml_backend_sched_get_tensor_backend": (_P, (_P, _P)),
    "ggml_nbytes": (_Z, (_P,)),
}


S = TypeVar("S", bound=FakeSession)


def session_of(kind: type[S], request: dict[str, Any]) -> S:
    """The session that a request asks for."""
    settings = request["settings"] | {"options": CaptureOptions(**request["settings"]["options"])}
    gpus = [FakeGpu(**{**gpu, "without": tuple(gpu["without"])}) for gpu in request["devices"]]
    return kind(gpus, Settings(**settings))


def serve(run: Callable[[dict[str, Any], Path], dict[str, Any]]) -> None:
    """The child: a request on standard input, a reply on standard output; what the library prints goes to a file."""
    out, request = os.dup(1), json.load(sys.stdin)
    with tempfile.NamedTemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)

        def reply(value: dict[str, Any]) -> None:
            with os.fdopen(out, "w") as file:
                json.dump(value, file)

        def on_abort(message: bytes) -> None:
            reply({"error": message.decode()})
            os._exit(0)

        def on_callback_failure(failure: sys.UnraisableHookArgs) -> None:
            # The library would go on with a made-up answer.
            text = traceback.format_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
            reply({"error": "".join(text)})
            os._exit(1)

        sys.unraisablehook = on_callback_failure
        callback = ABORT_CALLBACK(on_abort)
        try:
            LlamaLib(request["settings"]["options"]["library"]).ggml_set_abort_callback(callback)
            result = run(request, Path(printed.name))
        except CaptureError as error:
            result = {"error": str(error)}
        reply(result)
    os._exit(0)


def _run(request: dict[str, Any], _: Path) -> dict[str, Any]:
    session = session_of(FakeSession, request)
    session.load(request["path"])
    session.reserve(session.settings.options.phase)
    if session.failure is not None:
        raise session.failure
    return session.result()


def _main() -> None:
    serve(_run)


if __name__ == "__main__":
    _main()
