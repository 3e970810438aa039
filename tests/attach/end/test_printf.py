"""printf's places are filled from the registers and the stack of a program, as C would."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from ggmltool.attach.end.abort import MOST, VarArguments, printed

TEXTS = {0x5000: b"product", 0x6000: b"CUDA0", 0x7000: b"MUL_MAT"}


class Machine:
    """What a link answers of a program whose registers hold 3, 4, … and whose stack holds the numbers given."""

    def __init__(self, registers: list[int], stack: list[int], points: tuple[float, ...] = ()) -> None:
        self.registers = registers
        self.stack = struct.pack(f"<{len(stack)}Q", *stack)
        self.points = points

    def arguments(self) -> list[int]:
        return self.registers[:6]

    def ask(self, verb: str, expression: str) -> Any:
        assert verb == "evaluate"
        if expression.startswith("(long)$x") and expression[8:].isdigit():
            return self.registers[int(expression[8:])]
        if "xmm" in expression or "$v" in expression:
            i = next(int(c) for c in expression.split("$")[1] if c.isdigit())
            return struct.unpack("<q", struct.pack("<d", self.points[i]))[0]
        return 0x9000

    def read(self, address: int, length: int) -> bytes:
        return self.stack[address - 0x9000 :][:length]

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        return [TEXTS[address] + b"\0" if address in TEXTS else b"" for address, _ in spans]


def filled(machine: Machine, format: str, architecture: str = "x86-64") -> str:
    return printed(machine, format, VarArguments(machine, architecture, 3)).text  # type: ignore[arg-type]


def test_the_message_of_a_preallocated_tensor() -> None:
    machine = Machine([1, 2, 3, 0x5000, 0x6000, 0x7000], [0])
    text = "pre-allocated tensor (%s) in a buffer (%s) that cannot run the operation (%s)"
    assert filled(machine, text) == (
        "pre-allocated tensor (product) in a buffer (CUDA0) that cannot run the operation (MUL_MAT)"
    )


@pytest.mark.parametrize("architecture", ["x86-64", "aarch64"])
def test_what_does_not_fit_into_registers_lies_on_the_stack(architecture: str) -> None:
    numbers = list(range(100, 110))
    registers = 6 if architecture == "x86-64" else 8
    in_registers = numbers[: registers - 3]
    above = [0xDEAD] if architecture == "x86-64" else []
    machine = Machine([1, 2, 3, *in_registers], above + numbers[registers - 3 :])
    assert filled(machine, " ".join(["%d"] * 10), architecture) == " ".join(map(str, numbers))


@pytest.mark.parametrize(
    ("format", "value", "text"),
    [
        ("%d", 0xFFFFFFFF, "-1"), ("%ld", 1 << 63, str(-(1 << 63))), ("%zu", (1 << 64) - 1, str((1 << 64) - 1)),
        ("%u", 0x1_0000_0005, "5"), ("%08x", 0xBEEF, "0000beef"), ("%-6d|", 12, "12    |"), ("%5.5s", 0x7000, "MUL_M"),
        ("%s", 0, "(null)"), ("%p", 0, "(nil)"), ("%p", 0x1234, "0x1234"), ("%c", 65, "A"), ("100%%", 0, "100%"),
        ("%s", 0x1234, "?"), ("%hhd", 0x1FF, "-1"), ("%lld", 7, "7"), ("%99999d", 1, "1".rjust(256)),
    ],
)  # fmt: skip
def test_a_place(format: str, value: int, text: str) -> None:
    assert filled(Machine([1, 2, 3, value, 0, 0], [0]), format) == text


def test_numbers_with_a_point_have_registers_of_their_own() -> None:
    machine = Machine([1, 2, 3, 7, 8, 9], [0, 10], (0.5, 2.25))
    assert filled(machine, "%d %.2f %d %g %d") == "7 0.50 8 2.25 9"


def test_a_width_may_be_an_argument() -> None:
    assert filled(Machine([1, 2, 3, 4, 7, 0], [0]), "%*d") == "   7"


def test_a_message_is_no_longer_than_ggmls() -> None:
    assert len(filled(Machine([1, 2, 3, 0x5000, 0, 0], [0]), "x" * 4000 + "%s")) == MOST
