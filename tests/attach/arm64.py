"""The program in C as one of arm64, in an emulator, through its gdbserver: every call, ends, values, core dumps.

    python -m tests.attach.arm64 --library xllamacpp.abi3.so --seeds 0:10

The library is a ggml for Linux on arm64 (0.26), such as lies in the wheel of xllamacpp for aarch64. Needs Debian's
packages gcc-aarch64-linux-gnu, qemu-user and gdb-multiarch. Each seed is another line of options of the program.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ggmltool.ask.attach.verified import AttachVerifyDocument
from ggmltool.attach.gdb.link import Dies
from ggmltool.attach.session import AttachSession, Remote
from tests.attach.emulated_core import memory_of, write_core
from tests.attach.on_library import read_seeds
from tests.attach.programs import HERE, environment, headers, scratch
from tests.attach.randomly import say, stops

COMPILER = "aarch64-linux-gnu-gcc"
SYSROOT = "/usr/aarch64-linux-gnu"


def program(library: Path, *options: str) -> Path:
    """`graphs.c` for arm64, linked with a library. What that takes from a Python is there by name alone."""
    made, stub = scratch() / "-".join(["arm64", *options]), scratch() / "libstub.so"
    symbols = subprocess.run(
        ["aarch64-linux-gnu-nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = sorted(set(re.findall(r" U (_?Py\w+)$", symbols, re.MULTILINE)))
    source = stub.with_suffix(".c")
    source.write_text("".join(f"long {name}[64];\n" for name in ["nothing", *names]))
    subprocess.run([COMPILER, "-w", "-shared", "-o", stub, source], check=True)
    subprocess.run(
        [
            COMPILER, *options, "-std=c11", "-D_GNU_SOURCE", "-DGGML_OF_0_26=1", "-I", headers(), HERE / "graphs.c",
            "-o", made, "-Wl,--no-as-needed", stub, "-L", library.parent, f"-l:{library.name}", "-lpthread", "-ldl",
            "-Wl,--unresolved-symbols=ignore-all", f"-Wl,-rpath,{stub.parent}:{library.parent}",
        ],
        check=True,
    )  # fmt: skip
    return made


def emulated() -> dict[str, str]:
    """What the emulator is started with."""
    return environment(QEMU_LD_PREFIX=SYSROOT, COLUMNS="200")


def alone(line: Sequence[str]) -> bytes:
    """What a program prints when nobody looks."""
    return subprocess.run(["qemu-aarch64", *line], env=emulated(), capture_output=True, check=False).stdout


@contextmanager
def held(line: Sequence[str], folder: Path | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A program that the emulator holds at its first instruction, and where; it may dump its core into the folder."""
    socket = scratch() / f"gdb-{time.monotonic_ns()}"
    command = ["qemu-aarch64", "-g", str(socket), *line]
    if folder is not None:
        command = ["bash", "-c", 'ulimit -c unlimited; exec "$@"', "-", *command]
    with subprocess.Popen(
        command, cwd=folder, env=emulated(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        while not socket.exists():
            time.sleep(0.05)
        try:
            yield str(socket), process
        finally:
            process.kill()


def compared(line: Sequence[str], at: str) -> tuple[list[AttachVerifyDocument], bytes]:
    """Every call of a program beside its plan, and what it printed."""
    with held(line) as (where, process), AttachSession.remote(Remote(where, line[0], SYSROOT)) as session:
        found = [stopped.verified() for stopped in stops(session, at)]
        return found, process.communicate(timeout=120)[0]


def attach(line: Sequence[str], *options: str) -> tuple[str, bytes]:
    """What `attach --remote` says of a program, and what the program prints."""
    with held(line) as (where, process):
        said = ggmltool("--remote", where, *options, line[0])
        return said, process.communicate(timeout=120)[0]


def ggmltool(*arguments: str) -> str:
    """What `attach` says of a program of arm64."""
    command = [sys.executable, "-m", "ggmltool", "attach", "--sysroot", SYSROOT, *arguments]
    ran = subprocess.run(command, env=emulated(), capture_output=True, text=True, check=False, timeout=300)
    return ran.stdout + ran.stderr


def dumped(line: Sequence[str]) -> Path:
    """A core dump of a program that dies."""
    place = Path(tempfile.mkdtemp(dir=scratch()))
    with held(line, place) as (where, process):
        with AttachSession.remote(Remote(where, line[0], SYSROOT)) as session:
            try:
                session.stop_at(["ggml_backend_sched_free"])
            except Dies:
                pieces = memory_of(process.pid)
        process.wait()
    return write_core(pieces, next(place.glob("qemu_*.core")), place / "core")


def chosen(seed: int) -> tuple[list[str], str]:
    """Options of the program, and at which of its calls it is stopped."""
    dice = random.Random(seed)
    out = ["--layers", str(dice.randint(2, 12)), "--iterations", str(dice.randint(1, 3))]
    flags = ("--parallel", "--no-offload", "--assign", "--no-reserve", "--picky")
    out += [flag for flag in flags if dice.random() < 0.35]
    if dice.random() < 0.2:
        return [*out, "--gallocr"], "alone"
    out += ["--schedulers", str(dice.randint(1, 2))]
    return (out, "alloc") if dice.random() < 0.7 else ([*out, "--no-alloc"], "compute")


def judged(what: str, wanted: Sequence[str], said: str, same: bool = True) -> bool:
    """Print whether all that is wanted was said, and the program did what it does alone."""
    missing = [words for words in wanted if words not in said]
    say(f"{'NOT' if missing or not same else 'ok'}: {what}")
    if missing:
        say(f"  not said: {', '.join(missing)}\n{said}")
    return not missing and same


def ends(made: str) -> bool:
    """Whether ends, values and core dumps are told."""
    fine = True
    for arguments, options, wanted in (
        (["--abort", "preallocated"], ["--until-abort"], ["CPU: not its memory", "ends with the same words"]),
        (["--abort", "buffer"], ["--until-abort"], ["tensor buffer not set", "inp "]),
        (["--crash"], ["--until-abort"], ["SIGSEGV in ", "did what the plan says"]),
        ([], ["--compare"], ["node_2"]),
        (["--wrong"], ["--compare"], ["first node whose own kernel is off: normed-0"]),
    ):
        said, out = attach([made, *arguments], *options)
        fine &= judged(" ".join([*arguments, *options]), wanted, said, out == alone([made, *arguments]))
    for arguments in ([], ["--parallel"], ["--layers", "9"]):
        said = ggmltool("--core", str(dumped([made, "--crash", *arguments])), made)
        fine &= judged(" ".join(["core dump", *arguments]), ["SIGSEGV in ", "did what the plan says"], said)
    return fine


def main() -> int:
    """1 if a plan differs, or something is not told."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seeds", default="0:6", metavar="A:B,C", help="from A up to, not including, B, and C")
    parser.add_argument("--options", default="-O2", help="of the compiler")
    options = parser.parse_args()
    made = str(program(options.library.resolve(), *options.options.split()))
    fine, all_of_them = True, []
    for seed in read_seeds(options.seeds):
        given, at = chosen(seed)
        found, out = compared([made, *given], at)
        all_of_them += found
        same = bool(found) and all(one.same for one in found)
        fine &= judged(f"seed {seed}, {at}: {' '.join(given)}", [], "", same and out == alone([made, *given]))
    fields, different = sum(one.fields for one in all_of_them), sum(one.different for one in all_of_them)
    say(f"{len(all_of_them)} calls, {fields} fields, {different} differ")
    return 0 if ends(made) and fine else 1


if __name__ == "__main__":
    os.chdir(HERE.parent.parent)
    sys.exit(main())
