"""Real llama.cpp's --fit on GPUs that do not exist: what it sets, and every line that it logs with -lv 4.

    found = fit(cached("llama"), [FakeGpu("CUDA0", memory=8 << 20)], Settings(options=CaptureOptions(n_ctx=0)))
    found.n_gpu_layers, found.tensor_split, found.overrides, found.n_ctx

common_fit_params is not of llama.h; the shared object exports it as C++ names it. It runs in a child process.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.sources.fake_device import FakeGpu
from tests.sources.fake_gpus import FUNCTIONS, SPLIT_MODES, BuftOverride, FakeSession, Settings, ask, serve, session_of

FIT = (
    "_Z17common_fit_paramsPKcP18llama_model_paramsP20llama_context_paramsPf"
    "P32llama_model_tensor_buft_overridePmj{}14ggml_log_level"
)
PRINT = "_Z16common_fit_printPKcP18llama_model_paramsP20llama_context_params"
EXTRA = "PK22common_fit_extra_model"
MAX_DEVICES, MAX_OVERRIDES = 16, 4096
TRACE, ERROR_LEVEL = 4, 4

_P = ctypes.c_void_p


@dataclass(frozen=True)
class FitSettings:
    """What common_fit_params is given: margins in bytes for each device, the smallest context."""

    margins: tuple[int, ...] = (0,)
    n_ctx_min: int = 4096
    split_mode: str = "layer"


@dataclass(frozen=True)
class Found:
    """What it set: `overrides` are pairs of a pattern and a buffer type; `printed` is what -fitp on prints."""

    status: int
    n_ctx: int
    n_gpu_layers: int
    tensor_split: list[float]
    overrides: list[list[str]]
    log: list[str]
    host: list[int]
    printed: str = ""


def fit(path: Path, devices: Sequence[FakeGpu], settings: Settings, asked: FitSettings, prints: bool = False) -> Found:
    """Let llama.cpp fit a model's parameters. `settings` are those of the user; the log lacks how long it took.

    With `prints` it only prints what these parameters need (-fitp on). Raises Refused where it crashes.
    """
    request = {
        "path": str(path),
        "devices": [asdict(d) for d in devices],
        "settings": asdict(settings),
        "asked": asdict(asked),
        "prints": prints,
    }
    return Found(**ask("tests.sources.real_fit", request))


class FitSession(FakeSession):
    """A session whose params go through common_fit_params; it loads nothing itself."""

    def fit(self, path: str, asked: FitSettings, prints: bool) -> dict[str, Any]:
        model, context = self.model_params(), self.fit_context()
        model.split_mode = SPLIT_MODES[asked.split_mode]
        self.split = (ctypes.c_float * MAX_DEVICES)(*self.settings.tensor_split)
        model.tensor_split = ctypes.addressof(self.split)
        given = self.overrides
        self.overrides = (BuftOverride * MAX_OVERRIDES)(*given)
        model.tensor_buft_overrides = ctypes.addressof(self.overrides)
        margins = (ctypes.c_size_t * MAX_DEVICES)(*asked.margins)
        library = self.lib.library
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            self._log_to(log)
            status = 0
            if prints:
                getattr(library, PRINT)(os.fsencode(path), ctypes.byref(model), ctypes.byref(context))
            else:
                status = self._call(path, model, context, margins, asked)
            library._Z16common_log_flushP10common_log(self._main_log())
            lines = log.read_text().splitlines()
        names = self.ggml("ggml_backend_buft_name")
        made = self._up_to_end(model.tensor_buft_overrides)
        return {
            "status": status,
            "n_ctx": context.n_ctx,
            "n_gpu_layers": model.n_gpu_layers,
            "tensor_split": list(self.split),
            "overrides": [[o.pattern.decode(), names(o.buft).decode()] for o in made],
            "log": [line for line in lines if "fitting params to free memory took" not in line],
            "host": self._host(),
        }

    def fit_context(self) -> Any:
        """The params of the context; 0 tokens are the model's own, which is not loaded here."""
        n_ctx = self.options.n_ctx
        self.options = replace(self.options, n_ctx=n_ctx or 256)
        params = self.context_params()
        params.n_ctx = n_ctx
        return params

    def _call(self, path: str, model: Any, context: Any, margins: Any, asked: FitSettings) -> int:
        library = self.lib.library
        more: list[Any] = [None]
        function = getattr(library, FIT.format(EXTRA), None)
        if function is None:
            function, more = getattr(library, FIT.format("")), []
        function.restype = ctypes.c_int
        return int(
            function(
                os.fsencode(path), ctypes.byref(model), ctypes.byref(context), self.split, self.overrides, margins,
                ctypes.c_uint32(asked.n_ctx_min), *more, ERROR_LEVEL,
            )
        )  # fmt: skip

    def _main_log(self) -> Any:
        function = self.lib.library._Z15common_log_mainv
        function.restype = _P
        return _P(function())

    def _log_to(self, path: Path) -> None:
        library = self.lib.library
        library._Z30common_log_set_verbosity_tholdi(TRACE)
        library._Z21common_log_set_prefixP10common_logb(self._main_log(), False)
        library._Z25common_log_set_timestampsP10common_logb(self._main_log(), False)
        library._Z19common_log_set_fileP10common_logPKc(self._main_log(), os.fsencode(path))

    def _up_to_end(self, address: int | None) -> list[BuftOverride]:
        if not address:
            return []
        out = []
        for override in self.overrides:
            if not override.pattern:
                break
            out.append(override)
        return out

    def _host(self) -> list[int]:
        """The CPU's free and total memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        cpu = self.ggml("ggml_backend_dev_by_type")(0)
        self.ggml("ggml_backend_dev_memory")(cpu, ctypes.byref(free), ctypes.byref(total))
        return [free.value, total.value]


FUNCTIONS |= {
    "ggml_backend_buft_name": (ctypes.c_char_p, (_P,)),
    "ggml_backend_dev_by_type": (_P, (ctypes.c_int,)),
    "ggml_backend_dev_memory": (None, (_P, _P, _P)),
}


def _run(request: dict[str, Any], printed: Path) -> dict[str, Any]:
    session = session_of(FitSession, request)
    result = session.fit(request["path"], FitSettings(**request["asked"]), request["prints"])
    ctypes.CDLL(None).fflush(None)
    return result | {"printed": printed.read_text()}


def _main() -> None:
    serve(_run)


if __name__ == "__main__":
    _main()
