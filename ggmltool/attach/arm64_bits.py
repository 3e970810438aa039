"""Numbers in instructions of arm64: fields of a word, shifts, extensions, flags, patterns of bits."""

from __future__ import annotations

from functools import cache

from ggmltool.attach.followed import Unknown, signed


def field(w: int, at: int, n: int) -> int:
    """n bits of a word from `at` on."""
    return w >> at & (1 << n) - 1


def bit(w: int, at: int) -> int:
    """One bit of a word."""
    return w >> at & 1


def rd(w: int) -> int:
    """The number of the register that is written."""
    return w & 31


def rn(w: int) -> int:
    """That of the first operand, or of the base of an address."""
    return w >> 5 & 31


def rm(w: int) -> int:
    """That of the second operand."""
    return w >> 16 & 31


def wide(w: int) -> bool:
    """Whether it is of 64 bits, not 32."""
    return bool(w >> 31)


def bits(w: int) -> int:
    """How many bits its numbers have."""
    return 64 if w >> 31 else 32


def shift(value: int, kind: int, by: int, n: int) -> int:
    """lsl, lsr, asr, ror of a number of n bits."""
    if kind == 0:
        return value << by & (1 << n) - 1
    if kind == 1:
        return value >> by
    if kind == 2:
        return signed(value, n) >> by & (1 << n) - 1
    return (value >> by | value << n - by) & (1 << n) - 1


def extended(value: int, kind: int) -> int:
    """uxtb … uxtx, sxtb … sxtx."""
    n = 8 << (kind & 3)
    value &= (1 << n) - 1
    return signed(value, n) if kind & 4 else value


def flags(a: int, b: int, minus: bool, n: int) -> tuple[bool, bool, bool, bool]:
    """N, Z, C, V of a sum or a difference of numbers of n bits."""
    mask = (1 << n) - 1
    b &= mask
    unsigned = a + (~b & mask) + 1 if minus else a + b
    value = unsigned & mask
    exact = signed(a, n) - signed(b, n) if minus else signed(a, n) + signed(b, n)
    return bool(value >> n - 1), not value, unsigned > mask, exact != signed(value, n)


@cache
def pattern(one: int, ones: int, turned: int, n: int) -> int:
    """The number that an immediate of a logical instruction stands for (DecodeBitMasks in the manual)."""
    length = (one << 6 | ~ones & 63).bit_length() - 1
    if length < 1:
        raise Unknown("a pattern of no bits")
    size = 1 << length
    count, by = (ones & size - 1) + 1, turned & size - 1
    element = shift((1 << count) - 1, 3, by, size)
    return sum(element << i for i in range(0, n, size))
