"""All nodes of gemma-3-270m in llama.cpp, with random weights of its real types, beside what the engine makes of them.

    python -m tests.attach.gemma_values

It takes 250 MB on the disk for the time being; the exit status is that of `attach --compare`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ggmltool.scenario.encoded import read_gguf_tensor
from tests.attach.programs import decoding, environment
from tests.sources import random_weights
from tests.sources.gguf_file import write_gguf
from tests.sources.real_models import REAL_MODELS

MODEL = "gemma-270m"
SCALES = {**random_weights._SCALES, "q5_0": ((0, 0.0065),)}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="ggmltool-gemma-") as folder:
        path = Path(folder) / f"{MODEL}.gguf"
        model = REAL_MODELS[MODEL]()
        write_gguf(path, model)
        random = np.random.default_rng(1)
        with patch.object(random_weights, "_SCALES", SCALES), path.open("r+b") as file:
            for name in model.tensors:
                tensor = read_gguf_tensor(path, name)
                file.seek(tensor.offset)
                file.write(random_weights._values(name, tensor, random))
        program = decoding(path, "2,818,5279,529,7001,563", "-n", "2")
        command = [sys.executable, "-m", "ggmltool", "attach", "--compare", "--graph", "2", "--", *program]
        return subprocess.run(command, env=environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
