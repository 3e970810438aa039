"""Functions of arm64, as gcc and clang compile them, give what C says when unicorn runs them.

`arm64/functions.json.gz` is the code and data of `arm64/functions.c` by compiler: names, and memory by address.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from ggmltool.attach.files.emulator import Emulator

COMPILED = json.loads(gzip.decompress((Path(__file__).parent / "arm64" / "functions.json.gz").read_bytes()))
NE, NB, TEXT, OTHER, SMALL = 0x100000, 0x100020, 0x100040, 0x100048, 0x100050
GIVEN = {NE: [5, 1, 3, 2], NB: [4, 77, 20, 60]}
WORD = 1 << 64


class Memory:
    """The memory of a compiled program, and some numbers and texts."""

    def __init__(self, pieces: list[tuple[int, str]]) -> None:
        self.pieces = [(at, bytes.fromhex(text)) for at, text in pieces]
        numbers = b"".join(n.to_bytes(8, "little") for at in GIVEN for n in GIVEN[at])
        self.pieces.append((NE, numbers + b"CUDA0\0\0\0CUDA1\0\0\0" + bytes([1, 0x9C, 0, 0, 0xFE, 0xFF, 0, 0])))

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        return [self.read(*span) for span in spans]

    def read(self, address: int, n: int) -> bytes:
        """As a core dump has it: less than a page where less is there."""
        for at, data in self.pieces:
            if at <= address < at + len(data):
                return data[address - at : address - at + n]
        return b""

    def text(self, address: int) -> str:
        return self.read(address, 64).split(b"\0")[0].decode()


class Program:
    """The functions that one compiler made."""

    def __init__(self, compiler: str) -> None:
        self.symbols: dict[str, int] = COMPILED[compiler]["symbols"]
        self.memory = Memory(COMPILED[compiler]["memory"])
        self.emulator = Emulator(self.memory, "aarch64")
        self.first = self.symbols["devices"]
        self.second = self.first + 64

    def __call__(self, function: str, *given: int, size: int = 8) -> int | None:
        return self.emulator.result(self.symbols[function], *(g % WORD for g in given), size=size)


@pytest.fixture(params=COMPILED)
def program(request: pytest.FixtureRequest) -> Program:
    return Program(request.param)


def test_names_and_sizes_are_read_through_pointers_and_calls(program: Program) -> None:
    def said(function: str, *given: int) -> str:
        at = program(function, *given)
        assert at is not None
        return program.memory.text(at)

    assert said("constant") == "GPU0"
    assert said("description", program.first) == said("name", program.first) == "a device of the tests"
    assert said("text", program.second) == said("name", program.second) == "Test0"
    assert said("name", 0) == "none"
    assert program("nth", 1) == program.second
    assert program("nth", 2) == 0
    assert (program("alignment", program.first), program("alignment", program.second)) == (64, 32)
    assert (program("padded", program.first, 130), program("rounded", 257)) == (192, 512)
    assert [program("is_host", d, size=1) for d in (program.first, program.second)] == [0, 1]


def test_choices_by_tables_and_comparisons_are_taken(program: Program) -> None:
    dense = {1: 5, 2: 9, 3: 1, 4: 77, 5: -3, 9: 8, 10: 41}
    assert [program("dense", op, size=4) for op in range(-2, 14)] == [
        dense.get(op, 0) % (1 << 32) for op in range(-2, 14)
    ]
    for number, (device, type_, odd) in enumerate([(program.first, 3, True), (program.second, 7, False)]):
        for op in (*range(50), -1):
            for t in (0, 1, 2, 8, 13):
                wanted = (
                    t in (0, 1)
                    if 20 <= op < 28
                    else op in (3, 7, 11, 13) or (op == 15 and odd) or (op == 40 and t != 8 and (type_ == 3 or t > 12))
                )
                assert program("supports", device, op, t, size=1) == wanted, (number, op, t)


def test_loops_over_shapes_and_texts_end_where_they_do_in_c(program: Program) -> None:
    assert program("product", NE) == 30
    assert [program("contiguous", NE, NB, size, size=1) for size in (4, 8)] == [1, 0]
    assert [program("same", TEXT, other, size=1) for other in (TEXT, OTHER)] == [1, 0]
    assert program("recursive", 7, size=4) == 13
    assert program("small", SMALL, size=4) == -52 % (1 << 32)


@pytest.mark.parametrize(
    ("function", "given", "wanted", "size"),
    [
        ("rest", (-17, 5), -2, 8),
        ("rest", (17, 0), -1, 8),
        ("quotient", (-17, 5), -3, 4),
        ("quotient", (3, 0), 0, 4),
        ("between", (-5, -3, 9), -3, 4),
        ("between", (12, -3, 9), 9, 4),
        ("between", (4, -3, 9), 4, 4),
        ("magnitude", (-77,), 77, 4),
        ("mixed", (0x12345678,), 0xB809F606, 4),
        ("high", (0xFEDCBA9876543210, 0xF000000000000001), 0xEEEEEEEEEEEEEEEF, 8),
        ("third", (-1000,), -333 - 142, 8),
        ("part", (0x7D,), 15 | 5 << 20, 4),
        ("large", (), 0x123456789ABCDEF0, 8),
        ("masks", (0xF123456789ABCDEF,), 0x0123456789ABCDE0 | 0xA, 8),
    ],
)
def test_numbers_are_those_of_c(
    program: Program, function: str, given: tuple[int, ...], wanted: int, size: int
) -> None:
    assert program(function, *given, size=size) == wanted % (1 << 8 * size)


def test_what_writes_is_not_told(program: Program) -> None:
    assert program("writes", NE) is None
    assert program("description", 0x10) is None
