"""How long reading a log takes, and how much memory.

    python -m tests.benchmarks.importing [MEGABYTES]

Logs of that size (default: 1024) are made of the real ones, one at a time, in the folder for temporary files, and
removed. Prints a table of figures with the goal, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT.parent / "shared" / "logs"
GOAL_SECONDS, GOAL_MEGABYTES = 60, 300

MEASURED = """
import resource, runpy, sys
sys.argv = ["ggmltool", *sys.argv[1:]]
try:
    runpy.run_module("ggmltool", run_name="__main__")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
"""


def real() -> bytes:
    """The real logs, one after the other; without them a small one."""
    logs = sorted(LOGS.glob("*.log.gz"))
    if not logs:
        return b"\n".join((ROOT / "tests/sources/logs" / f"{name}.log").read_bytes() for name in ("2024-01", "2025-03"))
    return b"".join(gzip.decompress(path.read_bytes()) for path in logs)


def before_lines(prefix: bytes) -> Callable[[bytes], bytes]:
    """What puts a prefix in front of every line."""
    return lambda data: b"".join(prefix + line + b"\n" for line in data.split(b"\n")[:-1])


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "as ggml prints it": lambda data: data,
    "syslog": before_lines(b"Nov 21 06:28:10 host llama-server[123]: "),
    "colours": before_lines(b"\x1b[34m0.00.123.456\x1b[0m \x1b[33mD \x1b[0m"),
    "nodes alone": lambda data: b"".join(b for b in data.splitlines(True) if b.startswith(b"node #")),
    "spaces collapsed": lambda data: b"\n".join(b" ".join(line.split()) for line in data.split(b"\n")),
    "other lines": lambda data: b"slot print_timing: id  0 | task 3 | prompt processing, n_tokens = 8192\n" * 10_000,
}


def measured(args: list[str]) -> tuple[float, int]:
    """Seconds of a command in a process of its own, and the megabytes it had at most."""
    start = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", MEASURED, *args], capture_output=True, text=True, env=environment, check=False
    )
    return time.perf_counter() - start, int(result.stderr.split()[-1])


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    for kind, change in KINDS.items():
        part = change(real())
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "big.log"
            with log.open("wb") as file:
                for _ in range((megabytes << 20) // len(part) + 1):
                    file.write(part)
                if kind == "other lines":
                    file.write(b"## SPLIT #0: CPU # 0 inputs\n")
            for name, args in (("import", ["import"]), ("splits --by", ["splits", "--by", "op,backend"])):
                seconds, memory = measured([*args, str(log)])
                print(
                    f"{kind:<18} {name:<12} {seconds:7.1f} s  {log.stat().st_size / seconds / 2**20:6.0f} MiB/s  "
                    f"{memory:5} MiB    goal {GOAL_SECONDS} s, {GOAL_MEGABYTES} MiB for 1 GiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
