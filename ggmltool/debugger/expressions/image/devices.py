"""Backends, devices, buffer types and buffers, with the functions in their tables."""

from __future__ import annotations

from functools import partial
from typing import Any

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.packing import pack, records
from ggmltool.debugger.expressions.image.program import BufferFacts, Program
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.ggml.version import pad
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Function, Member, Pointer, Struct, bare, type_name

_PARTS = {
    "ggml_backend_i": "ggml_backend",
    "ggml_backend_device_i": "ggml_backend_device",
    "ggml_backend_buffer_type_i": "ggml_backend_buffer_type",
    "ggml_backend_buffer_i": "ggml_backend_buffer",
}


class Devices:
    """The devices of a program at a point. `functions` are the functions of their tables, by name, with their types."""

    def __init__(self, program: Program, cells: AnyCells, layout: Layout, memory: Memory) -> None:
        self._program = program
        self._cells = cells
        self._layout = layout
        self._memory = memory
        self._known: list[BufferFacts] | None = None
        self.functions: dict[str, tuple[int, Function]] = {}
        self._tables = {(b, kind): self._table(b, kind) for b in range(len(program.backends)) for kind in _PARTS}
        self._add()

    def backend(self, b: int) -> int:
        """Where a backend lies; 0 for none."""
        return addresses.HEAP["backends"] + b * self._step("ggml_backend") if b >= 0 else 0

    def device(self, b: int) -> int:
        """Where a backend's device lies; 0 in a ggml without devices."""
        if "ggml_backend_device" not in self._layout.structs:
            return 0
        return addresses.HEAP["devices"] + b * self._step("ggml_backend_device")

    def buft(self, number: int) -> int:
        """Where a buffer type lies."""
        return addresses.static(number) if number >= 0 else 0

    def buffers(self) -> list[BufferFacts | None]:
        """The buffers by number: those of contexts, then those for computing, with room for all chunks of each."""
        if self._known is None:
            most = self._program.release.max_chunks
            known: list[BufferFacts | None] = list(self._program.buffers)
            b = -1
            while ("buffer", b := b + 1) in self._cells:
                chunks = self._cells[("buffer", b)] or ()
                made = [BufferFacts(base, size, self._program.buft_of[b], 2) for base, size in chunks]
                known += [*made, *[None] * (most - len(made))]
            self._known = known  # type: ignore[assignment]
        return self._known  # type: ignore[return-value]

    def chunk(self, b: int, chunk: int) -> int:
        """Where the buffer of a chunk lies, 0 before it is made."""
        chunks = self._cells.get(("buffer", b)) or ()
        if chunk >= len(chunks):
            return 0
        return addresses.buffer(len(self._program.buffers) + b * self._program.release.max_chunks + chunk)

    def by_base(self) -> dict[int, int]:
        """Where the struct of each buffer lies, by the address of its bytes."""
        out: dict[int, int] = {}
        for number, facts in enumerate(self.buffers()):
            if facts is not None:
                out.setdefault(facts.base, addresses.buffer(number))
        return out

    def gpu_bases(self) -> frozenset[int]:
        """The bytes of buffers of a kind that made a tensor one of GGML_BACKEND_GPU."""
        families, bufts = self._program.release.gpu_families, self._program.bufts
        return frozenset(f.base for f in self.buffers() if f is not None and bufts[f.buft].family in families)

    def _step(self, struct: str) -> int:
        return pad(self._layout.structs[struct].size, 16)

    def _table(self, b: int, kind: str) -> dict[str, int]:
        """The addresses in a function table of a backend, by field."""
        table = self._program.tables(b).get(kind)
        struct = self._layout.structs.get(kind)
        if struct is None:
            return {}
        members = struct.members or {}
        known = {} if table is None else {f.field: f.function for f in table.functions}
        return {
            field: addresses.UNKNOWN if field not in known else self._function(name, member)
            for field, member in members.items()
            if _is_function(member) and ((name := known.get(field, "")) is not None)
        }

    def _function(self, name: str, member: Member) -> int:
        pointer = bare(member.type)
        if name not in self.functions and isinstance(pointer, Pointer):
            to = bare(pointer.to)
            assert isinstance(to, Function)
            at = addresses.TEXT + (len(self.functions) + 0x1000) * addresses.TEXT_STEP
            cxx = name.startswith(self._layout.cxx) if self._layout.cxx else False
            symbol = f"{name}({', '.join(_demangled(p) for p in to.parameters)})" if cxx else name
            self._memory.add(at, addresses.TEXT_STEP, lambda offset, n: b"\xc3" * n, symbol)
            self.functions[name] = (at, to)
        return self.functions[name][0]

    def _add(self) -> None:
        structs = self._layout.structs
        n = len(self._program.backends)
        self._rows("backends", structs["ggml_backend"], n, self._backend_fields)
        if "ggml_backend_device" in structs:
            self._rows("devices", structs["ggml_backend_device"], n, self._device_fields)
        struct = structs["ggml_backend_buffer_type"]
        for number in range(len(self._program.bufts)):
            at = addresses.static(number)
            self._memory.add(
                at,
                struct.size,
                records(struct.size, partial(self._buft_bytes, number)),
                self._static_name(number),
            )
        step = addresses.buffer(1) - addresses.buffer(0)
        self._memory.add(addresses.buffer(0), step * len(self.buffers()), records(step, self._buffer_bytes))

    def _rows(self, thing: str, struct: Struct, n: int, fields: Any) -> None:
        step = pad(struct.size, 16)
        self._memory.add(addresses.HEAP[thing], n * step, records(step, lambda i: pack(struct, fields(i))))

    def _static_name(self, number: int) -> str:
        """The name of a buffer type that is a variable of a function."""
        table = self._program.tables(self._program.owner(number)).get("ggml_backend_buffer_type_i")
        if table is None or self._program.owner(number) not in (
            b for b, own in enumerate(self._program.buft_of) if own == number
        ):
            return ""
        return f"{table.instance}::{table.instance}" if table.instance == "ggml_backend_cpu_buffer_type" else ""

    def _backend_fields(self, b: int) -> dict[str, Any]:
        return {
            "guid": addresses.HEAP["guids"] + 16 * b,
            "iface": self._tables[b, "ggml_backend_i"],
            "device": self.device(b),
            "context": addresses.HEAP["contexts.device"] + 0x1000 * b,
        }

    def _device_fields(self, b: int) -> dict[str, Any]:
        return {
            "iface": self._tables[b, "ggml_backend_device_i"],
            "context": addresses.HEAP["contexts.device"] + 0x1000 * b + 0x400,
        }

    def _buft_bytes(self, number: int, _: int) -> bytes:
        return pack(self._layout.structs["ggml_backend_buffer_type"], self._buft_fields(number))

    def _buft_fields(self, number: int) -> dict[str, Any]:
        owner = self._program.owner(number)
        host = self._program.bufts[number].host
        return {
            "iface": self._tables[owner, "ggml_backend_buffer_type_i"],
            "device": self.device(owner),
            "context": 0 if host else addresses.HEAP["contexts.device"] + 0x1000 * owner + 0x800,
        }

    def _buffer_bytes(self, number: int) -> bytes:
        facts = self.buffers()[number]
        if facts is None:
            return b""
        host = self._program.bufts[facts.buft].host
        own = addresses.HEAP["contexts.device"] + 0x1000 * self._program.owner(facts.buft) + 0xC00
        fields = {
            "iface": self._tables[self._program.owner(facts.buft), "ggml_backend_buffer_i"],
            "buft": self.buft(facts.buft),
            "context": facts.base if host else own,
            "size": facts.size,
            "usage": facts.usage,
        }
        return pack(self._layout.structs["ggml_backend_buffer"], fields)


def _is_function(member: Member) -> bool:
    """Whether a field is a pointer to a function."""
    pointer = bare(member.type)
    return isinstance(pointer, Pointer) and isinstance(bare(pointer.to), Function)


def _demangled(type: object) -> str:
    """A parameter as the demangled name of a function of C++ has it."""
    said = type_name(type, language="c++")  # type: ignore[arg-type]
    if said.startswith("const ") and said.endswith("*"):
        said = f"{said.removeprefix('const ').removesuffix('*').strip()} const*"
    return said.replace(" *", "*")
