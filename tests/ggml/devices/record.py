"""Asks ggml's own source what its devices say of random ops and graphs, compares ggmltool's answers, and records them.

    python -m tests.ggml.devices.record --source llama.cpp/ggml --ggml 0.26 CUDA ROCm
    python -m tests.ggml.devices.record --source llama.cpp/ggml --ggml 0.26 CUDA --seeds 100-140 --splits captured/
    python -m tests.ggml.devices.record --source llama.cpp/ggml --ggml 0.26 CUDA --write

SOURCE is ggml's tree, the folder with `include` and `src`. It takes g++, and no device or vendor's library: the
functions that answer are cut out of the source and compiled for the CPU (`judges/build.py`). `judges/families.py` says
which functions a family has; another one takes an entry there, and a header with the types that the vendor's has.
What is recorded (`recorded/VERSION/FAMILY.json.xz`) is what `test_recorded_answers.py` compares everywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ggmltool.ggml.op import KEY_NAMES
from ggmltool.ggml.ops.registry import since_of
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.scenario.versions import lacks
from tests.ggml.devices.judges.asking import ask_graphs, ask_ops
from tests.ggml.devices.judges.build import NotBuiltError, build
from tests.ggml.devices.judges.captured import ask_captured, paths
from tests.ggml.devices.judges.comparing import Compared, device_of
from tests.ggml.devices.judges.families import FAMILIES
from tests.ggml.devices.recording import N_GRAPHS, SEED, graphs_of, write


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where something differs, or a judge cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m tests.ggml.devices.record", description=__doc__.split("\n")[0])
    parser.add_argument("families", nargs="+", choices=sorted(FAMILIES))
    parser.add_argument("--source", type=Path, required=True, help="ggml's source tree")
    parser.add_argument("--ggml", required=True, choices=sorted(BY_NAME), help="the release that it is compared with")
    parser.add_argument("--seeds", default=str(SEED), help="of random ops and graphs, such as 100-140")
    parser.add_argument("--splits", type=Path, help="a folder of captured graphs, whose splits are ordered too")
    parser.add_argument("--work", type=Path, help="where the programs are built, and kept")
    parser.add_argument("--write", action="store_true", help="record the answers for the tests")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        differ = False
        for name in given.families:
            try:
                judge = build(FAMILIES[name], given.source, work / name)
            except NotBuiltError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
            differ = _compare(name, judge, given) or differ
            if given.write:
                print(f"Wrote {write(name, judge, BY_NAME[given.ggml])}")
    return int(differ)


def _compare(name: str, judge: Path, given: argparse.Namespace) -> bool:
    """Whether something differs, which is printed."""
    family, release = FAMILIES[name], BY_NAME[given.ggml]
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    differ = False
    for i, (label, hardware) in enumerate(family.hardware.items()):
        compared = Compared(label, device_of(hardware, release))
        for seed in seeds:
            ops = [op for op in family.cases(seed) if not lacks(release, since_of(KEY_NAMES[op.key]))]
            compared.ops(ops, ask_ops(judge, hardware.told, ops))
        # The order does not depend on the hardware.
        if compared.device.graph_optimize is not None and i == 0:
            for seed in seeds:
                questions = graphs_of(family, range(seed * N_GRAPHS, (seed + 1) * N_GRAPHS))
                compared.splits(questions, ask_graphs(judge, hardware.told, questions))
            for path in paths(given.splits) if given.splits is not None else ():
                ask_captured(path, release.name, hardware, judge, compared.splits)
        print(compared)
        differ = differ or bool(compared.differences)
    return differ


if __name__ == "__main__":
    sys.exit(main())
