"""`python -m tests.attach.files.damaged_elf --cases 5000`: ELF files changed or cut off are read, or refused.

No other exception than those that are named, no case that takes long or much memory: any program may be looked at.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path

from ggmltool.attach.files.corefile import build_id
from ggmltool.attach.files.instance import names_ggml
from ggmltool.attach.files.loaded import Code, LoadedFiles, _symbols
from tests import needs

MEMORY = 1 << 30
SECONDS = 2.0
_HEADER, _SECTION, _SEGMENT = 64, 64, 56


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """A file with something wrong, most of it in the tables that are read."""
    data = bytearray(whole)
    segments, sections = struct.unpack_from("<QQ", whole, 32)
    n_segments, n_sections = (struct.unpack_from("<H", whole, at)[0] for at in (56, 60))
    areas = (
        range(16, _HEADER),
        range(segments, segments + n_segments * _SEGMENT),
        range(sections, sections + n_sections * _SECTION),
        range(len(whole)),
    )
    for _ in range(rng.choice((1, 1, 2, 10, 100))):
        area = rng.choice(areas)
        at = rng.choice(area)
        width = rng.choice((1, 1, 2, 4, 8))
        value = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        number = rng.choice((value, len(whole), len(whole) - 1, (1 << 64) - 1, 1 << 63, rng.randrange(len(whole))))
        data[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)


def look(file: Path) -> None:
    """All that is read of a file of a process."""
    _symbols(str(file), Code(0x7F0000000000, 0x1000))
    LoadedFiles(_Nobody(), 0).tells_structs(str(file))
    names_ggml(str(file))
    with file.open("rb") as head:
        build_id(head.read(1 << 16))


class _Nobody:
    def ask(self, verb: str, *arguments: object) -> object:
        raise AssertionError(f"asked {verb} about {arguments}")


def many_tables(n: int = 0xFFFF) -> bytes:
    """As many sections as there can be, all of them tables of symbols over the whole file, with the longest name."""
    size = _HEADER + n * _SECTION
    head = b"\x7fELF\x02\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 64, 0, 64, 56, 0, 64, n, 0)
    one = struct.pack("<IIQQQQIIQQ", 64, 2, 0, 0, 0, size, 0, 0, 0, 0)
    return head + one * n


def main() -> int:
    """Damage the files of the library; the number of those that were not read properly."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--cases", type=int, default=2000, help="how many")
    asked.add_argument("--seed", type=int, default=0, help="the first case's")
    options = asked.parse_args()
    files = needs.library("0.20.2").files
    wholes = [Path(file).read_bytes() for file in (files.base, sys.executable)]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "damaged.so"
        for seed in range(options.seed, options.seed + options.cases):
            rng = random.Random(seed)
            place.write_bytes(damaged(rng.choice(wholes), rng))
            began = time.process_time()
            try:
                look(place)
            except Exception as error:
                bad += 1
                sys.stderr.write(f"seed {seed}: {error!r}\n")
            took = time.process_time() - began
            if took > SECONDS:
                bad += 1
                sys.stderr.write(f"seed {seed}: {took:.1f} s\n")
    sys.stdout.write(f"{options.cases} ELF files, {bad} badly read\n")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
