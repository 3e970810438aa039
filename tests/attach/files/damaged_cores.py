"""`python -m tests.attach.files.damaged_cores --seconds 120`: core dumps with bytes cut off and flipped are
told in one line.

No traceback, no endless reading, no memory without bound: a core dump comes from anywhere.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.attach.programs import c_program, core_by_gdb, environment

MEMORY = 2 << 30
SECONDS = 60


def main() -> int:
    """Damage one core dump in many ways; the number of ways that it was not told properly."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=60, help="how long to go on")
    asked.add_argument("--seed", type=int, default=1, help="the first case's")
    options = asked.parse_args()
    program = c_program()
    whole = core_by_gdb([program], "ggml_backend_sched_graph_compute_async").read_bytes()
    until, seed, bad = time.monotonic() + options.seconds, options.seed, 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "core"
        while time.monotonic() < until:
            place.write_bytes(damaged(whole, random.Random(seed)))
            told = look(place, program)
            if told:
                bad += 1
                sys.stderr.write(f"seed {seed}: {told}\n")
            seed += 1
    sys.stdout.write(f"{seed - options.seed} core dumps, {bad} badly told\n")
    return min(bad, 1)


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """A core dump with something wrong: most in its headers, for there it is read first."""
    data = bytearray(whole)
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(data[: rng.randrange(len(data))])
    area = (len(data), 64, 0x4000, len(data))[kind]
    for _ in range(rng.choice((1, 10, 1000, 20_000)) if kind > 1 else rng.randrange(1, 4)):
        data[rng.randrange(area)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(data[: rng.randrange(len(data))] if kind == 3 and rng.random() < 0.2 else data)


def look(core: Path, program: Path) -> str:
    """Look at it by the command; what was wrong with that, "" if nothing was."""
    command = [sys.executable, "-m", "ggmltool", "attach", "--core", str(core), str(program)]
    try:
        ran = subprocess.run(
            command, env=environment(), capture_output=True, check=False, timeout=SECONDS, preexec_fn=_bounded
        )
    except subprocess.TimeoutExpired:
        return f"not done in {SECONDS} seconds"
    said = ran.stderr.decode("utf-8", "replace")
    if ran.returncode not in (0, 1, 2) or "Traceback" in said or "internal error" in said:
        return f"status {ran.returncode}: {said[-400:]}"
    return "" if ran.returncode == 0 or said.startswith("Error: ") else f"status {ran.returncode}, and nothing said"


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    sys.exit(main())
