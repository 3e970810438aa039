"""Backends, devices, buffer types and buffers, with the functions in their tables."""

from __future__ import annotations

from functools import cache, cached_property, partial

from ggmltool.debugger.expressions.image.program import (
    HEAP,
    STATICS,
    STATICS_STEP,
    TEXT,
    TEXT_STEP,
    UNKNOWN,
    Base,
    BufferFacts,
    ImagePart,
    buffer,
)
from ggmltool.debugger.expressions.memory import Fields, pack, records
from ggmltool.structs.types import CType, Function, Member, Pointer, bare, type_name

_TABLES = ("ggml_backend_i", "ggml_backend_device_i", "ggml_backend_buffer_type_i", "ggml_backend_buffer_i")


class Devices(ImagePart):
    """The devices of a program at a point. `functions` are the functions of their tables, by name, with their types."""

    def __init__(self, base: Base) -> None:
        super().__init__(base)
        self.functions: dict[str, tuple[int, Function]] = {}
        program = self.program
        n = len(program.backends)
        self._iface = {(b, kind): self._table(b, kind) for b in range(n) for kind in _TABLES}
        self.rows("backends", "ggml_backend", n, self._backend_fields, 16)
        self.rows("devices", "ggml_backend_device", n, self._device_fields, 16)
        size = self.size("ggml_backend_buffer_type")
        for number in range(len(program.bufts)):
            read = records(size, cache(partial(self._buft_bytes, number)))
            self.memory.add(self.buft(number), size, read, self._static_name(number))
        step = buffer(1) - buffer(0)
        self.memory.add(buffer(0), step * len(self.buffers), records(step, cache(self._buffer_bytes)))

    def backend(self, b: int) -> int:
        """Where a backend lies; 0 for none."""
        return HEAP["backends"] + b * self.size("ggml_backend", 16) if b >= 0 else 0

    def device(self, b: int) -> int:
        """Where a backend's device lies; 0 in a ggml without devices."""
        there = "ggml_backend_device" in self.layout.structs
        return HEAP["devices"] + b * self.size("ggml_backend_device", 16) if there else 0

    @staticmethod
    def buft(number: int) -> int:
        """Where a buffer type lies; 0 for none."""
        return STATICS + number * STATICS_STEP if number >= 0 else 0

    @cached_property
    def buffers(self) -> list[BufferFacts | None]:
        """The buffers by number: those of contexts, then those for computing, with room for all chunks of each."""
        out: list[BufferFacts | None] = [*self.program.buffers]
        b = -1
        while ("buffer", b := b + 1) in self.cells:
            chunks = self.cells["buffer", b] or ()
            out += [BufferFacts(base, size, self.program.buft_of[b], 2) for base, size in chunks]
            out += [None] * (self.program.release.rules.max_chunks - len(chunks))
        return out

    def chunk(self, b: int, chunk: int) -> int:
        """Where the buffer of a chunk lies, 0 before it is made."""
        if chunk >= len(self.cells.get(("buffer", b)) or ()):
            return 0
        return buffer(len(self.program.buffers) + b * self.program.release.rules.max_chunks + chunk)

    def by_base(self) -> dict[int, int]:
        """Where the struct of each buffer lies, by the address of its bytes; of several the first."""
        there = reversed(list(enumerate(self.buffers)))
        return {facts.base: buffer(number) for number, facts in there if facts is not None}

    def gpu_bases(self) -> frozenset[int]:
        """The bytes of buffers of a kind that made a tensor one of GGML_BACKEND_GPU."""
        families, bufts = self.program.release.gpu_families, self.program.bufts
        return frozenset(f.base for f in self.buffers if f is not None and bufts[f.buft].family in families)

    def _table(self, b: int, kind: str) -> dict[str, int]:
        struct = self.layout.structs.get(kind)
        table = self.program.tables(b).get(kind)
        known = {} if table is None else {f.field: f.function for f in table.functions}
        out = {}
        for field, member in {} if struct is None else (struct.members or {}).items():
            function = _function(member)
            name = known.get(field, "")
            if function is not None and name is not None:
                out[field] = self._address(name, function) if field in known else UNKNOWN
        return out

    def _address(self, name: str, function: Function) -> int:
        if name not in self.functions:
            at = TEXT + (len(self.functions) + 0x1000) * TEXT_STEP
            cxx = name.startswith(self.layout.cxx) if self.layout.cxx else False
            symbol = f"{name}({', '.join(map(_demangled, function.parameters))})" if cxx else name
            self.memory.add(at, TEXT_STEP, lambda offset, n: b"\xc3" * n, symbol)
            self.functions[name] = (at, function)
        return self.functions[name][0]

    def _static_name(self, number: int) -> str:
        """The name of a buffer type that is a variable of a function."""
        owner = self.program.owner(number)
        table = self.program.tables(owner).get("ggml_backend_buffer_type_i")
        is_own = self.program.buft_of[owner] == number
        if table is None or not is_own or table.instance != "ggml_backend_cpu_buffer_type":
            return ""
        return f"{table.instance}::{table.instance}"

    @staticmethod
    def _context(b: int, part: int = 0) -> int:
        return HEAP["contexts.device"] + 0x1000 * b + part

    def _backend_fields(self, b: int) -> Fields:
        iface = self._iface[b, "ggml_backend_i"]
        return {
            "guid": HEAP["guids"] + 16 * b, "iface": iface, "device": self.device(b), "context": self._context(b),
        }  # fmt: skip

    def _device_fields(self, b: int) -> Fields:
        return {"iface": self._iface[b, "ggml_backend_device_i"], "context": self._context(b, 0x400)}

    def _buft_bytes(self, number: int, _: int) -> bytes:
        owner = self.program.owner(number)
        context = 0 if self.program.bufts[number].host else self._context(owner, 0x800)
        iface = self._iface[owner, "ggml_backend_buffer_type_i"]
        fields = {"iface": iface, "device": self.device(owner), "context": context}
        return pack(self.layout.structs["ggml_backend_buffer_type"], fields)

    def _buffer_bytes(self, number: int) -> bytes:
        facts = self.buffers[number]
        if facts is None:
            return b""
        owner = self.program.owner(facts.buft)
        fields = {
            "iface": self._iface[owner, "ggml_backend_buffer_i"],
            "buft": self.buft(facts.buft),
            "context": facts.base if self.program.bufts[facts.buft].host else self._context(owner, 0xC00),
            "size": facts.size,
            "usage": facts.usage,
        }
        return pack(self.layout.structs["ggml_backend_buffer"], fields)


def _function(member: Member) -> Function | None:
    pointer = bare(member.type)
    to = bare(pointer.to) if isinstance(pointer, Pointer) else None
    return to if isinstance(to, Function) else None


def _demangled(type: CType) -> str:
    """A parameter as the demangled name of a function of C++ has it."""
    said = type_name(type, language="c++")
    if said.startswith("const ") and said.endswith("*"):
        said = f"{said.removeprefix('const ').removesuffix('*').strip()} const*"
    return said.replace(" *", "*")
