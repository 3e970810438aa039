"""Backends, devices, buffer types and buffers: what they hold, and what they answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ggmltool.attach.devices.properties import Questions, device_type, mapped, unmapped
from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.link import Mappings
from ggmltool.attach.state import BackendState, DeviceState, Snapshot
from ggmltool.ggml.state import BufferState, BuftState, SchedState
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.state.errors import LinkError, NoBytes, NotAsLaidOut
from ggmltool.state.memory import limits
from ggmltool.state.memory.fields import Record
from ggmltool.state.memory.pages import PAGE, Memory
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Pointer, Struct, bare

_PROPS = {
    "memory_free": "memory_free",
    "memory_total": "memory_total",
    "events": "caps.events",
}


class FoundBackends(NamedTuple):
    """All of a scheduler's, by address; the backends in its order."""

    backends: Mapping[int, BackendState]
    devices: Mapping[int, DeviceState]
    bufts: Mapping[int, BuftState]
    buffers: Mapping[int, BufferState]


class InterfaceTable(NamedTuple):
    """A struct with its table of functions: those that are not NULL by name, and its other fields in order."""

    functions: dict[str, int]
    fields: list[int]


class BackendReader:
    """Reads them, and asks them what is not `known` from before the call."""

    def __init__(
        self, memory: Memory, layout: Layout, questions: Questions, mappings: Mappings, known: Snapshot | None = None
    ) -> None:
        self.memory = memory
        self.known = FoundBackends({}, {}, {}, {})
        if known is not None:
            backends = {b.address: b for b in known.backends}
            self.known = FoundBackends(backends, known.devices, known.bufts, known.buffers)
        self.layout = layout
        self.questions = questions
        self.mappings = mappings
        self.unread: list[str] = []

    def read(self, sched: SchedState, live: Iterable[int], named: Iterable[int], device: int = 0) -> FoundBackends:
        """Those of a scheduler, and the buffers: `live` ones are asked, of others that are `named` is only read what
        lies there. `device` is a further one."""
        backends = {a: self._table("ggml_backend", a, ("device",)) for a in sched.backends}
        live, buffers = set(live) - {0}, self._read_buffers(live, named)
        asked = {*sched.bufts, *sched.galloc.bufts, *(b.fields[0] for a, b in buffers.items() if a in live)}
        bufts = {a: self._table("ggml_backend_buffer_type", a, ("device",)) for a in sorted(asked)}
        owners = {device, *(t.fields[0] for t in (*backends.values(), *bufts.values()))} - {0}
        devices = {a: self._table("ggml_backend_device", a, ()) for a in sorted(owners)}
        known = self.known
        names = self._names(_new(backends, known.backends), _new(devices, known.devices), _new(bufts, known.bufts))
        told = FoundBackends(
            {
                a: BackendState(a, names.get(("ggml_backend", a)), t.fields[0], frozenset(t.functions))
                for a, t in _new(backends, known.backends).items()
            },
            self._devices(_new(devices, known.devices), names),
            self._bufts(_new(bufts, known.bufts), names),
            self._buffers(buffers, live, {b for of in sched.galloc.buffers for b in of}),
        )
        return FoundBackends(
            {a: known.backends.get(a) or told.backends[a] for a in backends},
            {a: known.devices.get(a) or told.devices[a] for a in devices},
            {a: known.bufts.get(a) or told.bufts[a] for a in bufts},
            told.buffers,
        )

    def _read_buffers(self, live: Iterable[int], named: Iterable[int]) -> dict[int, InterfaceTable]:
        live, gone, out = set(live) - {0}, 0, {}
        wanted = sorted({*live, *named} - {0})
        if len(wanted) > limits.BUFFERS:
            raise AttachError(f"there are more than {limits.BUFFERS} buffers; the memory is damaged")
        for address in wanted:
            try:
                out[address] = self._table("ggml_backend_buffer", address, ("buft", "size", "usage"))
            except (NoBytes, NotAsLaidOut):
                if address in live:
                    raise
                gone += 1
        if gone:
            self.unread.append(f"{gone} buffers that such tensors name")
        return out

    def _table(self, tag: str, address: int, fields: tuple[str, ...]) -> InterfaceTable:
        struct = self.layout.structs[tag]
        record = Record(self.layout, tag, fields)
        data = self.memory.read(address, record.size)
        iface = (struct.members or {})["iface"]
        inner = bare(iface.type)
        functions = {}
        for name, member in ((inner.members or {}) if isinstance(inner, Struct) else {}).items():
            if isinstance(bare(member.type), Pointer):
                at = iface.offset + member.offset
                functions[name] = int.from_bytes(data[at : at + 8], "little")
        wrong = [name for name, at in functions.items() if at and not self._may_run(at)]
        if wrong:
            raise NotAsLaidOut(f"what lies at {address:#x} is no {tag}: its {wrong[0]} is no function")
        return InterfaceTable({name: at for name, at in functions.items() if at}, record.unpack(data))

    def _may_run(self, address: int) -> bool:
        """Whether there can be a function. A core dump names the mapped files alone: one that a program wrote itself,
        as Python's ctypes does, lies in memory that was dumped."""
        if self.mappings.live:
            return self.mappings.runs(address)
        if self.mappings.at(address) is not None:
            return True
        try:
            return bool(self.memory.read(address, 1))
        except NoBytes:
            return False

    def _names(
        self,
        backends: Mapping[int, InterfaceTable],
        devices: Mapping[int, InterfaceTable],
        bufts: Mapping[int, InterfaceTable],
    ) -> dict[tuple[str, int], str]:
        add = self.questions.add
        for tag, tables in (
            ("ggml_backend", backends), ("ggml_backend_device", devices), ("ggml_backend_buffer_type", bufts),
        ):  # fmt: skip
            for address, table in tables.items():
                add((tag, address), table.functions.get("get_name", 0), "unsigned long", address)
        for address, table in devices.items():
            add(("description", address), table.functions.get("get_description", 0), "unsigned long", address)
        return self.questions.words()

    def _bufts(
        self, tables: Mapping[int, InterfaceTable], names: Mapping[tuple[str, int], str]
    ) -> dict[int, BuftState]:
        for a, table in tables.items():
            for name, result in (
                ("get_alignment", "unsigned long"), ("get_max_size", "unsigned long"), ("is_host", "unsigned char"),
            ):  # fmt: skip
                self.questions.add((name, a), table.functions.get(name, 0), result, a)
        answers = self.questions.answers()
        out = {}
        for a, table in tables.items():
            max_size, host = answers.get(("get_max_size", a)), answers.get(("is_host", a))
            max_size = max_size if "get_max_size" in table.functions else SIZE_MAX
            host = host if "is_host" in table.functions else 0
            out[a] = BuftState(
                table.fields[0],
                names.get(("ggml_backend_buffer_type", a)),
                answers.get(("get_alignment", a)),
                max_size,
                None if host is None else bool(host),
            )
        return out

    def _buffers(self, tables: Mapping[int, InterfaceTable], live: set[int], made: set[int]) -> dict[int, BufferState]:
        """Where they begin. Those that the allocator has `made` may be others than were known by their addresses."""
        bases: dict[int, int | None] = {
            a: b.base for a, b in self.known.buffers.items() if b.base is not None and a not in made
        }
        for a, table in tables.items():
            if a in live and a not in bases and table.fields[1]:
                self.questions.add(a, table.functions.get("get_base", 0), "unsigned long", a)
        bases |= self.questions.answers()
        out = {}
        for a, table in tables.items():
            buft, size, usage = table.fields
            nothing = a in live and (not size or "get_base" not in table.functions)
            out[a] = BufferState(buft, size, usage, 0 if nothing else bases.get(a), a)
        return out

    def _devices(
        self, tables: Mapping[int, InterfaceTable], names: Mapping[tuple[str, int], str]
    ) -> dict[int, DeviceState]:
        for a, table in tables.items():
            self.questions.add(("type", a), table.functions.get("get_type", 0), "int", a)
            self.questions.add(("buft", a), table.functions.get("get_buffer_type", 0), "unsigned long", a)
        answers = self.questions.answers()
        props = self._props(tables)
        out = {}
        for a, table in tables.items():
            type = answers.get(("type", a))
            told = props.get(a, {})
            out[a] = DeviceState(
                a,
                names.get(("ggml_backend_device", a)),
                names.get(("description", a)),
                None if type is None else device_type(self.layout, type),
                told.get("memory_free"),
                told.get("memory_total"),
                bool(told["events"]) if told else "event_new" in table.functions,
                answers.get(("buft", a)) or 0,
            )
        return out

    def _props(self, tables: Mapping[int, InterfaceTable]) -> dict[int, dict[str, int]]:
        """Memory and events of each device, which it writes into a page of ours."""
        out: dict[int, dict[str, int]] = {}
        record = Record(self.layout, "ggml_backend_dev_props", tuple(_PROPS.values()))
        link = self.questions.link
        page = self._page() if tables and self.questions.live else 0
        if not page:
            return out
        try:
            for a, table in tables.items():
                if self.questions.add(a, table.functions.get("get_props", 0), "void", a, page):
                    answered = self.questions.answers()
                    (data,) = link.read_many([(page, record.size)])
                    if a in answered and len(data) == record.size:
                        out[a] = dict(zip(_PROPS, record.unpack(data), strict=True))
        finally:
            unmapped(link, page, PAGE)
        return out

    def _page(self) -> int:
        """A page of the program; 0 where it has none to give."""
        try:
            return mapped(self.questions.link, PAGE)
        except LinkError as error:
            self.unread.append(f"the memory of the devices: {error}")
            return 0


def _new(tables: Mapping[int, InterfaceTable], known: Mapping[int, Any]) -> dict[int, InterfaceTable]:
    return {address: table for address, table in tables.items() if address not in known}
