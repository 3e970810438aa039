"""llama.cpp's own parser of command lines (common_params_parse), in a process of its own with GPUs that do not exist.

read = parse("llama-server -m model.gguf -dev CUDA0 -ngl all", [FakeGpu("CUDA0")])
read["n_gpu_layers"]  # -2
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.sources.fake_device import FakeGpu

ROOT = Path(__file__).resolve().parents[2]
_PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
_EXAMPLES = {"llama-cli": 5, "llama-server": 12}
_FIELDS = (
    "n_ctx", "n_batch", "n_ubatch", "n_gpu_layers", "n_parallel", "kv_unified", "fit_params", "main_gpu", "swa_full",
    "no_kv_offload", "no_op_offload", "no_extra_bufts", "tensor_buft_overrides",
)  # fmt: skip
_ENUMS = ("cache_type_k", "cache_type_v", "flash_attn_type", "split_mode", "lazy_mode")


def parse(line: str, gpus: Sequence[FakeGpu]) -> dict[str, Any]:
    """What llama.cpp reads from a line; the first word is the tool. Raises ValueError with its words if it refuses."""
    words = shlex.split(line)
    child = subprocess.run(
        [sys.executable, "-P", "-m", "tests.sources.real_parser"],
        input=json.dumps({"words": words, "gpus": [asdict(gpu) for gpu in gpus]}),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        check=False,
    )
    if child.returncode:
        raise ValueError(child.stderr.strip())
    read: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return read


def _main() -> None:
    """The child: one request on standard input, what was read on standard output."""
    from xllamacpp import CommonParams, xllamacpp

    from tests.sources.fake_gpus import FakeSession, Settings

    request = json.load(sys.stdin)
    session = FakeSession([FakeGpu(**{**gpu, "without": ()}) for gpu in request["gpus"]], Settings())
    params = CommonParams()
    # The struct lies in the object; its third and fourth numbers are the sizes of batches.
    offset = ctypes.string_at(id(params), params.__sizeof__()).index(struct.pack("<ii", 2048, 512)) - 8
    parse = ctypes.CDLL(xllamacpp.__file__)[_PARSE]
    parse.restype = ctypes.c_bool
    words = request["words"]
    arguments = (ctypes.c_char_p * (len(words) + 1))(*[word.encode() for word in words])
    if not parse(len(words), arguments, ctypes.c_void_p(id(params) + offset), _EXAMPLES[words[0]], None):
        sys.exit(1)
    read = {name: getattr(params, name) for name in _FIELDS}
    read |= {name: int(getattr(params, name)) for name in _ENUMS}
    read |= {"model": params.model.path, "tensor_split": list(params.tensor_split)}
    sys.stdout.write(json.dumps(read))
    sys.stdout.flush()
    os._exit(0 if session.lib else 1)


if __name__ == "__main__":
    _main()
