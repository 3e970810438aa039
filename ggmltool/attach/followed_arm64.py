"""A function of arm64 that is followed: what its instructions, each a word of 32 bits, do with numbers.

The bits are those of the Arm Architecture Reference Manual for A64. A register that is not known is None; vectors never
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ggmltool.attach.arm64_bits import bit, bits, extended, field, flags, pattern, rd, rm, rn, shift, wide
from ggmltool.attach.followed import RETURN, STACK, Followed, Reads, Unknown, signed

_SP = 31
_ALL = (1 << 64) - 1
_LINK = 30


class Arm64(Followed):
    """One call: registers x0 to x30 and the stack pointer, the flags N, Z, C, V."""

    def __init__(self, code: Reads, arguments: Sequence[int]) -> None:
        super().__init__(code)
        self.x: list[int | None] = [None] * 31
        self.x[: min(len(arguments), 8)] = arguments[:8]
        self.sp = STACK
        self.flags: tuple[bool, bool, bool, bool] | None = None

    def enter(self) -> None:
        self.x[_LINK] = RETURN

    def returned(self, size: int) -> int:
        return self._x(0) & (1 << 8 * size) - 1

    def step(self) -> None:
        word = self.code.memory(self.at, 4)
        self.next = self.at + 4
        for mask, value, do in _TABLE:
            if word & mask == value:
                do(self, word)
                return
        raise Unknown(f"the instruction {word:#010x}")

    # Registers.

    def _x(self, n: int, wide: bool = True, stack: bool = False) -> int:
        """A register; number 31 is the stack pointer or 0."""
        value = self.x[n] if n != _SP else self.sp if stack else 0
        if value is None:
            raise Unknown(f"x{n}")
        return value if wide else value & 0xFFFFFFFF

    def _set(self, n: int, value: int | None, wide: bool = True, stack: bool = False) -> None:
        value = None if value is None else value & (_ALL if wide else 0xFFFFFFFF)
        if n != _SP:
            self.x[n] = value
        elif stack:
            if value is None:
                raise Unknown("the stack pointer")
            self.sp = value

    # Numbers.

    def address(self, w: int) -> None:
        """adr, adrp."""
        offset = signed(field(w, 5, 19) << 2 | field(w, 29, 2), 21)
        self._set(rd(w), self.at - self.at % 4096 + (offset << 12) if w >> 31 else self.at + offset)

    def add_immediate(self, w: int) -> None:
        """add, sub and, with flags, cmp and cmn of a small number."""
        number = field(w, 10, 12) << 12 * bit(w, 22)
        self._sum(w, self._x(rn(w), wide(w), stack=True), number, stack=not bit(w, 29))

    def add_shifted(self, w: int) -> None:
        """The same of two registers, the second shifted."""
        self._sum(w, self._x(rn(w), wide(w)), self._shifted(w))

    def add_extended(self, w: int) -> None:
        """The same, the second extended from fewer bits."""
        number = extended(self._x(rm(w)), field(w, 13, 3)) << field(w, 10, 3)
        self._sum(w, self._x(rn(w), wide(w), stack=True), number, stack=not bit(w, 29))

    def _sum(self, w: int, a: int, b: int, stack: bool = False) -> None:
        minus = bit(w, 30)
        if bit(w, 29):
            self.flags = flags(a, b, bool(minus), bits(w))
        self._set(rd(w), a - b if minus else a + b, wide(w), stack)

    def _shifted(self, w: int) -> int:
        return shift(self._x(rm(w), wide(w)), field(w, 22, 2), field(w, 10, 6), bits(w))

    def logic_immediate(self, w: int) -> None:
        """and, orr, eor and tst of a pattern of bits."""
        self._logic(w, pattern(bit(w, 22), field(w, 10, 6), field(w, 16, 6), bits(w)), stack=True)

    def logic_shifted(self, w: int) -> None:
        """The same of a register, also inverted: mov, mvn, bic, orn, eon."""
        b = self._shifted(w)
        self._logic(w, ~b & (1 << bits(w)) - 1 if bit(w, 21) else b)

    def _logic(self, w: int, b: int, stack: bool = False) -> None:
        kind = field(w, 29, 2)
        a = self._x(rn(w), wide(w))
        value = (a & b, a | b, a ^ b, a & b)[kind]
        if kind == 3:
            self.flags = bool(value >> bits(w) - 1 & 1), not value, False, False
        self._set(rd(w), value, wide(w), stack and kind != 3)

    def move(self, w: int) -> None:
        """movn, movz, movk."""
        kind, place = field(w, 29, 2), 16 * field(w, 21, 2)
        number = field(w, 5, 16) << place
        if kind == 3:
            number |= self._x(rd(w)) & ~(0xFFFF << place)
        self._set(rd(w), ~number if kind == 0 else number, wide(w))

    def bits(self, w: int) -> None:
        """sbfm, bfm and ubfm: shifts by a number, sxtw, uxtb, ubfx and the like."""
        kind, first, last, n = field(w, 29, 2), field(w, 16, 6), field(w, 10, 6), bits(w)
        value = self._x(rn(w), wide(w))
        length, place = (last - first + 1, 0) if last >= first else (last + 1, n - first)
        found = value >> (first if last >= first else 0) & (1 << length) - 1
        if kind == 0:
            out = signed(found, length) << place
        elif kind == 2:
            out = found << place
        else:
            mask = (1 << length) - 1 << place
            out = self._x(rd(w), wide(w)) & ~mask | found << place
        self._set(rd(w), out, wide(w))

    def extract(self, w: int) -> None:
        """extr, ror: bits of two registers."""
        n, by = bits(w), field(w, 10, 6)
        both = self._x(rn(w), wide(w)) << n | self._x(rm(w), wide(w))
        self._set(rd(w), both >> by, wide(w))

    def two(self, w: int) -> None:
        """udiv, sdiv, and shifts by a register."""
        kind, n = field(w, 10, 6), bits(w)
        a, b = self._x(rn(w), wide(w)), self._x(rm(w), wide(w))
        if kind in (2, 3):
            if kind == 3:
                a, b = signed(a, n), signed(b, n)
            value = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
        elif 8 <= kind <= 11:
            value = shift(a, kind - 8, b % n, n)
        else:
            raise Unknown(f"the instruction {w:#010x}")
        self._set(rd(w), value, wide(w))

    def one(self, w: int) -> None:
        """rev, clz and the like; a pointer that is signed stays as it is."""
        if rm(w) == 1 and wide(w):
            return
        kind, n, a = field(w, 10, 6), bits(w), self._x(rn(w), wide(w))
        if rm(w) or kind not in (0, 1, 2, 3, 4):
            raise Unknown(f"the instruction {w:#010x}")
        if kind == 0:
            value = int(f"{a:0{n}b}"[::-1], 2)
        elif kind == 4:
            value = n - a.bit_length()
        else:
            unit = 2 << kind - 1
            value = sum(
                int.from_bytes((a >> 8 * i & (1 << 8 * unit) - 1).to_bytes(unit, "little"), "big") << 8 * i
                for i in range(0, n // 8, unit)
            )
        self._set(rd(w), value, wide(w))

    def three(self, w: int) -> None:
        """madd, msub, and products of which more or all bits are kept."""
        kind, minus = field(w, 21, 3), bit(w, 15)
        a, b = self._x(rn(w)), self._x(rm(w))
        if kind in (2, 6):
            product = (signed(a, 64) * signed(b, 64) if kind == 2 else a * b) >> 64
            self._set(rd(w), product)
            return
        if kind in (1, 5):
            a, b = (signed(v & 0xFFFFFFFF, 32) if kind == 1 else v & 0xFFFFFFFF for v in (a, b))
        elif kind:
            raise Unknown(f"the instruction {w:#010x}")
        more = self._x(field(w, 10, 5))
        self._set(rd(w), more - a * b if minus else more + a * b, wide(w))

    # Conditions.

    def holds(self, condition: int) -> bool:
        """Whether a condition holds, by its number."""
        if self.flags is None:
            raise Unknown("flags")
        n, z, c, v = self.flags
        found = (z, c, n, v, c and not z, n == v, n == v and not z, True)[condition >> 1]
        return found if condition == 15 else found != bool(condition & 1)

    def select(self, w: int) -> None:
        """csel, csinc, csinv, csneg: cset and cinc among them."""
        if self.holds(field(w, 12, 4)):
            self._set(rd(w), self._x(rn(w), wide(w)), wide(w))
            return
        b = self._x(rm(w), wide(w))
        self._set(rd(w), (b, b + 1, ~b, -b)[2 * bit(w, 30) + bit(w, 10)], wide(w))

    def compare_if(self, w: int) -> None:
        """ccmp, ccmn: a comparison, or flags that are given."""
        if not self.holds(field(w, 12, 4)):
            self.flags = bool(w & 8), bool(w & 4), bool(w & 2), bool(w & 1)
            return
        b = rm(w) if bit(w, 11) else self._x(rm(w), wide(w))
        self.flags = flags(self._x(rn(w), wide(w)), b, bool(bit(w, 30)), bits(w))

    # Elsewhere.

    def jump(self, w: int) -> None:
        """b, bl."""
        if w >> 31:
            self.x[_LINK] = self.next
        self.next = self.at + 4 * signed(field(w, 0, 26), 26)

    def jump_if(self, w: int) -> None:
        """b.eq and its like."""
        if self.holds(w & 15):
            self._near(w, 19)

    def jump_zero(self, w: int) -> None:
        """cbz, cbnz."""
        if bool(self._x(rd(w), wide(w))) == bool(bit(w, 24)):
            self._near(w, 19)

    def jump_bit(self, w: int) -> None:
        """tbz, tbnz."""
        which = bit(w, 31) << 5 | field(w, 19, 5)
        if self._x(rd(w)) >> which & 1 == bit(w, 24):
            self._near(w, 14)

    def _near(self, w: int, n: int) -> None:
        self.next = self.at + 4 * signed(field(w, 5, n), n)

    def jump_register(self, w: int) -> None:
        """br, blr, ret."""
        target = self._x(rn(w))
        if not target:
            raise Unknown("it calls nothing")
        if field(w, 21, 2) == 1:
            self.x[_LINK] = self.next
        self.next = target

    def return_signed(self, _: int) -> None:
        """retaa, retab: what is signed is not checked."""
        self.next = self._x(_LINK)

    def nothing(self, _: int) -> None:
        """nop, bti, paciasp, barriers: nothing that counts here."""

    # Memory.

    def near_literal(self, w: int) -> None:
        """ldr of a constant beside the code."""
        kind = w >> 30
        at = self.at + 4 * signed(field(w, 5, 19), 19)
        if not bit(w, 26) and kind != 3:
            self._loaded(rd(w), at, 8 if kind == 1 else 4, 64 if kind == 2 else 0)

    def pair(self, w: int) -> None:
        """ldp, stp; those of vectors leave the stack unknown."""
        kind, vector, mode = w >> 30, bit(w, 26), field(w, 23, 2)
        size = 4 << kind if vector else 8 if kind == 2 else 4
        at = self._at(w, size * signed(field(w, 15, 7), 7), mode)
        for i, register in enumerate((rd(w), field(w, 10, 5))):
            if bit(w, 22):
                if not vector:
                    self._loaded(register, at + i * size, size, 64 if kind == 1 else 0)
            else:
                self._stored(None if vector else register, at + i * size, size)

    def scaled(self, w: int) -> None:
        """ldr, str and their like at a number of units from a register."""
        size = self._size(w)
        self._moved(w, self._x(rn(w), stack=True) + field(w, 10, 12) * size, size)

    def unscaled(self, w: int) -> None:
        """The same at a number of bytes, also with the register moved before or behind; at two registers."""
        size, mode = self._size(w), field(w, 10, 2)
        if bit(w, 21):
            if mode != 2:
                raise Unknown(f"the instruction {w:#010x}")
            by = (size.bit_length() - 1) * bit(w, 12)
            at = self._x(rn(w), stack=True) + (extended(self._x(rm(w)), field(w, 13, 3)) << by)
        elif mode == 2:
            raise Unknown(f"the instruction {w:#010x}")
        else:
            at = self._at(w, signed(field(w, 12, 9), 9), (2, 1, 2, 3)[mode])
        self._moved(w, at, size)

    def acquire(self, w: int) -> None:
        """ldar, ldapr: loads that others' stores do not overtake."""
        self._loaded(rd(w), self._x(rn(w), stack=True), 1 << (w >> 30))

    def _at(self, w: int, offset: int, mode: int) -> int:
        """The address, and the register moved: 1 behind, 3 before, else not."""
        base = self._x(rn(w), stack=True)
        if mode & 1:
            self._set(rn(w), base + offset, stack=True)
        return base if mode == 1 else base + offset

    @staticmethod
    def _size(w: int) -> int:
        return 1 << ((bit(w, 23) << 2 if bit(w, 26) else 0) | w >> 30)

    def _moved(self, w: int, at: int, size: int) -> None:
        kind, vector = field(w, 22, 2), bit(w, 26)
        if not (kind & 1 if vector else kind):
            self._stored(None if vector else rd(w), at & _ALL, size)
        elif not vector and not (kind == 2 and size == 8):
            self._loaded(rd(w), at & _ALL, size, (0, 0, 64, 32)[kind])

    def _loaded(self, register: int, at: int, size: int, extended: int = 0) -> None:
        value = self.load(at & _ALL, size)
        if value is not None and extended:
            value = signed(value, 8 * size) & (1 << extended) - 1
        self._set(register, value)

    def _stored(self, register: int | None, at: int, size: int) -> None:
        value = None if register is None else 0 if register == _SP else self.x[register]
        self.store(at & _ALL, value, size)


_Do = Callable[[Arm64, int], None]
_TABLE: tuple[tuple[int, int, _Do], ...] = (
    (0x1F000000, 0x10000000, Arm64.address),
    (0x1F800000, 0x11000000, Arm64.add_immediate),
    (0x1F800000, 0x12000000, Arm64.logic_immediate),
    (0x1F800000, 0x12800000, Arm64.move),
    (0x1F800000, 0x13000000, Arm64.bits),
    (0x7F800000, 0x13800000, Arm64.extract),
    (0x1F000000, 0x0A000000, Arm64.logic_shifted),
    (0x1F200000, 0x0B000000, Arm64.add_shifted),
    (0x1FE00000, 0x0B200000, Arm64.add_extended),
    (0x3FE00410, 0x3A400000, Arm64.compare_if),
    (0x3FE00800, 0x1A800000, Arm64.select),
    (0x7FE00000, 0x1AC00000, Arm64.two),
    (0x7FE00000, 0x5AC00000, Arm64.one),
    (0x7F000000, 0x1B000000, Arm64.three),
    (0x7C000000, 0x14000000, Arm64.jump),
    (0xFF000010, 0x54000000, Arm64.jump_if),
    (0x7E000000, 0x34000000, Arm64.jump_zero),
    (0x7E000000, 0x36000000, Arm64.jump_bit),
    (0xFF9FFC1F, 0xD61F0000, Arm64.jump_register),
    (0xFFFFFBFF, 0xD65F0BFF, Arm64.return_signed),
    (0xFFFFF01F, 0xD503201F, Arm64.nothing),
    (0xFFFFF01F, 0xD503301F, Arm64.nothing),
    (0x3B000000, 0x18000000, Arm64.near_literal),
    (0x3A000000, 0x28000000, Arm64.pair),
    (0x3FFFFC00, 0x38BFC000, Arm64.acquire),
    (0x3FFFFC00, 0x08DFFC00, Arm64.acquire),
    (0x3B000000, 0x39000000, Arm64.scaled),
    (0x3B000000, 0x38000000, Arm64.unscaled),
)
"""Bits that are the same in instructions of a kind, what they are, and what is done."""
