"""What llama.cpp's eval callback prints of a tensor, and a process in which llama.cpp decodes tokens and prints it.

text = eval_log(path, tokens, n_ctx=512)
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.oracle.structs import Tensor
from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.sources.reference import Reference

SHOWN = 3
"""Elements, rows and planes at each end."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_NUMPY = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "i64": "<i8"}


def _indices(n: int, shown: int) -> list[int | None]:
    """The numbers that are printed of `n`; None is the gap."""
    if n <= 2 * shown:
        return list(range(n))
    return [*range(shown), None, *range(n - shown, n)]


def printed(name: str, type: str, op: str, sources: list[tuple[str, Any]], values: Any, shown: int = SHOWN) -> str:
    """A node with its values, of shape ne reversed, as `common_debug_cb_eval` prints it."""

    def dims(ne: Any) -> str:
        return ", ".join(map(str, ne))

    said = [f"{source}{{{dims(ne)}}}" for source, ne in sources[:2]] + ["", ""]
    ne = values.shape[::-1]
    lines = [f"common_debug_cb_eval: {name:>24} = ({type}) {op:>10}({said[0]}, {said[1]}}}) = {{{dims(ne)}}}"]
    with np.errstate(all="ignore"):
        total = np.add.accumulate(values.astype(np.float32).reshape(-1))[-1]
    for i3 in range(ne[3]):
        lines.append("    [")
        for i2 in _indices(ne[2], shown):
            if i2 is None:
                lines.append("        ..., ")
                continue
            lines.append("        [")
            for i1 in _indices(ne[1], shown):
                if i1 is None:
                    lines.append("            ..., ")
                    continue
                row = [f"{values[i3, i2, i1, i]:12.4f}" if i is not None else "   ..." for i in _indices(ne[0], shown)]
                lines.append(f"            [{', '.join(row)}  ],")
            lines.append("        ],")
        lines += ["    ]", f"    sum = {total:f}"]
    return "\n".join(lines) + "\n"


def eval_log(path: Path, tokens: list[int], n_ctx: int) -> str:
    """What llama.cpp prints while it decodes the tokens."""
    request = json.dumps({"path": str(path), "tokens": tokens, "n_ctx": n_ctx})
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "tests.sources.eval_printer"]
    return subprocess.run(command, input=request, capture_output=True, text=True, env=environment, check=True).stdout


class _Printer(Reference):
    """llama.cpp with a callback that prints every node."""

    def context_params(self) -> Any:
        self.lines: list[str] = []
        self._print_callback = _CALLBACK(self._print)
        params = super().context_params()
        params.cb_eval = ctypes.cast(self._print_callback, ctypes.c_void_p).value
        return params

    def _print(self, address: int, ask: bool, _: Any) -> bool:
        if ask:
            return True
        t = Tensor.from_address(address)
        type = TYPES_BY_ID[t.type].name
        content = ctypes.string_at(t.data, self.lib.ggml_nbytes(address))
        values = np.ndarray(tuple(t.ne)[::-1], _NUMPY[type], content, strides=tuple(t.nb)[::-1])
        sources = [(Tensor.from_address(s).name.decode(), tuple(Tensor.from_address(s).ne)) for s in t.src if s]
        describe = self.lib.library.ggml_op_desc
        describe.restype, describe.argtypes = ctypes.c_char_p, (ctypes.c_void_p,)
        self.lines.append(printed(t.name.decode(), type, describe(address).decode(), sources, values))
        return True


def main() -> NoReturn:
    asked = json.load(sys.stdin)
    printer = _Printer(CaptureOptions(n_ctx=asked["n_ctx"], program="library"))
    printer.load(asked["path"])
    printer.lines.clear()
    printer._decode("prompt", 0, asked["tokens"], 0)
    sys.stdout.write("".join(printer.lines))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
