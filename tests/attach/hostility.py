"""`python -m tests.attach.hostility [--ggml 0.26] [CASE...]`: programs that behave badly, looked at by the command.

Of each: the exit status, one message at most, no traceback, the time, the memory that ggmltool takes, and the program's
own output, which is byte for byte that of the same run without us.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ggmltool.attach.files.elf import opened
from tests.attach.programs import c_library, c_program, environment, linked

MEMORY = 1 << 30
"""Bytes that ggmltool may take."""


class Case(NamedTuple):
    """`options` of attach, the program's `words`; the `status`, what is `said` (a pattern), how many `seconds`.
    `version` is what its ggml says instead of its version, `code` what it does when it is asked for it."""

    name: str
    words: tuple[str, ...] = ("--iterations", "2")
    options: tuple[str, ...] = ("-o", "x.json.gz")
    status: int = 0
    said: str = "goes on; it stood still for"
    seconds: float = 120
    version: bytes = b""
    code: bytes = b""


CASES = (
    Case("lies", version=b"0.9.4\0\0", status=2, said="cannot be read with the structs of ggml 0.9"),
    Case("lies", version=b"9.9.99\0", status=2, said="is ggml 9.9.99, which is later than all"),
    Case("lies", version=b"99.0\x1b\0\0", status=2, said="is ggml 99.0.x1b, which is later than all"),
    Case("lies", version=b"a.b.c\0\0", status=2, said="a ggml that does not say its version cannot be read"),
    Case("lies", version=b"endless", status=2, said="a ggml that does not say its version cannot be read"),
    Case("changed", code=b"\x31\xc0\xc3", status=2, said="a ggml that does not say its version cannot be read"),
    Case("changed", code=b"\x0f\x0b", status=2, said="a ggml that does not say its version cannot be read"),
    Case("changed", code=b"\xeb\xfe", status=2, said="a ggml that does not say its version cannot be read"),
    Case("plain"),
    Case("throw"),
    Case("threads"),
    Case("vfork"),
    Case("children"),
    Case("user"),
    Case("silent"),
    Case("elsewhere"),
    Case("limits"),
    Case("megabytes"),
    Case("changed", ("--iterations", "1"), ("--graph", "2", "-o", "x.json.gz")),
    Case("exec", options=("--graph", "4")),
    Case("confined", ("--iterations", "8"), ("--graph", "7", "-o", "x.json.gz")),
    Case("confined", ("--iterations", "8"), ("--graph", "7", "--compare"), 2, "in a sandbox of its own"),
    Case("closes", ("LIBRARY", "--iterations", "1"), ("--graph", "2")),
    Case("closes", ("LIBRARY", "--iterations", "1"), ("--graph", "9"), 1, "ended with status 0"),
    Case("deep", seconds=300),
    Case("million", status=2, said="graphs of 262144 are read at most"),
    Case("freed", status=2, said="damaged"),
    Case("cycle"),
    Case("huge", status=2, said="damaged"),
    Case("junk", status=2, said="damaged"),
)


def look(case: Case, ggml: str) -> list[str]:
    """Do it; what is wrong with it."""
    words = [str(c_library(ggml)) if word == "LIBRARY" else word for word in case.words]
    line = [str(c_program(ggml, source="unruly")), case.name, *words]
    with tempfile.TemporaryDirectory() as folder:
        if case.version or case.code:
            line[:0] = ["env", f"LD_PRELOAD={lying(case, ggml, Path(folder))}"]
        alone = subprocess.run(line, env=environment(), cwd=folder, capture_output=True, check=False, timeout=60)
        began = time.monotonic()
        status, out, said, peak = measured(["attach", *case.options, "--", *line], Path(folder), case.seconds)
    took = time.monotonic() - began
    wrong = []
    if status != case.status:
        wrong.append(f"exit status {status}, not {case.status}")
    if not re.search(case.said, said):
        wrong.append(f"{case.said!r} is not said")
    if "Traceback" in said or "internal error" in said or said.count("Error: ") > 1:
        wrong.append("no single message")
    if out != alone.stdout:
        wrong.append(f"the program printed {out[-100:]!r}, alone {alone.stdout[-100:]!r}")
    if peak > MEMORY:
        wrong.append(f"{peak >> 20} MiB of memory")
    tell(f"{case.name:10} {' '.join(case.options):30} {took:6.1f} s {peak >> 20:5} MiB  {last_line(said)}")
    return wrong


def lying(case: Case, ggml: str, folder: Path) -> Path:
    """A copy of the library that says another version, or does something else when it is asked for it."""
    base, version = linked(ggml).base, linked(ggml).version.encode() + b"\0"
    data = bytearray(base.read_bytes().replace(version, case.version or version))
    with opened(str(base)) as elf:
        at = elf.symbols("ggml_version").addresses["ggml_version"]
    data[at : at + len(case.code)] = case.code
    copy = folder / "libggml-lying.so"
    copy.write_bytes(data)
    return copy


def measured(words: Sequence[str], folder: Path, seconds: float) -> tuple[int, bytes, str, int]:
    """ggmltool of these words: its exit status, standard output and error, the most memory that it took."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        command = [sys.executable, "-m", "ggmltool", *words]
        peak, until = 0, time.monotonic() + seconds
        with subprocess.Popen(command, env=environment(), cwd=folder, stdout=out, stderr=err) as process:
            while process.poll() is None:
                peak = max(peak, _memory(process.pid))
                if time.monotonic() > until:
                    process.send_signal(signal.SIGINT)
                    time.sleep(5)
                    process.kill()
                time.sleep(0.05)
    said = (folder / "err").read_bytes().decode("utf-8", "replace")
    return process.returncode, (folder / "out").read_bytes(), said, peak


def _memory(pid: int) -> int:
    with suppress(OSError, IndexError):
        found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) << 10 if found else 0
    return 0


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def last_line(said: str) -> str:
    """The end of what was said, without the program's own lines."""
    lines = [line for line in said.splitlines() if line and not line.startswith("xxx")]
    return lines[-1][:200] if lines else ""


def main() -> int:
    """Do the cases that are asked for; how many went wrong."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--ggml", choices=["0.20.2", "0.26"], default="0.20.2")
    asked.add_argument("cases", nargs="*", help="names (default: all)")
    options = asked.parse_args()
    bad = 0
    for case in CASES:
        if not options.cases or case.name in options.cases:
            wrong = look(case, options.ggml)
            bad += bool(wrong)
            for what in wrong:
                tell(f"  wrong: {what}")
    tell(f"{bad} cases are not as they should be")
    return min(bad, 1)


if __name__ == "__main__":
    if shutil.which("gdb") is None:
        sys.exit("gdb is not installed")
    sys.exit(main())
