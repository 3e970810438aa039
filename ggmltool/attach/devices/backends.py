"""Backends, devices, buffer types and buffers: what they hold, and what they answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.attach.files.loaded import library_function
from ggmltool.attach.gdb.link import FunctionCall, GdbLink, Late, Mappings
from ggmltool.attach.gdb.machines import is_confined
from ggmltool.attach.state import BackendState, DeviceState, Snapshot
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.state import BufferState, BuftState, SchedState
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.state.errors import AttachError, LinkError, NoBytes, NotAsLaidOut
from ggmltool.state.memory import limits
from ggmltool.state.memory.fields import StructFields
from ggmltool.state.memory.pages import PAGE, Memory, c_strings
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Pointer, Struct, bare

_AT_ONCE = 200


class Questions:
    """Functions that are to be called, all together; the answers come by the key that each was asked with. A pointer
    that no function can be at is not called. In a dead program functions that do more than read have no answer."""

    def __init__(self, link: GdbLink, mappings: Mappings) -> None:
        self.link = link
        self._mappings = mappings
        self._calls: dict[Any, FunctionCall] = {}
        self.failed: list[str] = []
        self.asked = self.left_out = 0

    @property
    def unanswered(self) -> tuple[str, ...]:
        """What could not be asked, in words."""
        return (f"{len(self.failed)} functions that could not be asked ({self.failed[0]})",) if self.failed else ()

    @property
    def live(self) -> bool:
        """Whether anything can be called at all."""
        return self._mappings.live

    def can_ask(self, function: int) -> bool:
        """Whether there can be a function."""
        return self._mappings.runs(function)

    def add(self, key: Any, function: int, result: str, *arguments: int) -> bool:
        """Ask a function; whether it can be asked."""
        if not self.can_ask(function):
            return False
        self._calls[key] = FunctionCall(function, result, arguments)
        return True

    def answers(self, until: float | None = None) -> dict[Any, int | None]:
        """What all of them say; what fails has no answer. Where there is only time `until` then, nothing is asked any
        more once a function did not come back."""
        calls, self._calls = list(self._calls.items()), {}
        out: dict[Any, int | None] = {}
        for i in range(0, len(calls), _AT_ONCE):
            some = calls[i : i + _AT_ONCE]
            if until is not None and time.monotonic() > until:
                self.left_out += len(calls) - i
                break
            try:
                out.update(zip((key for key, _ in some), self.link.call([call for _, call in some]), strict=True))
            except LinkError as error:
                if until is not None and isinstance(error, Late):
                    self.left_out += len(calls) - i
                    break
                self._one_by_one(some, out)
            self.asked += len(some)
        return out

    def _one_by_one(self, calls: Sequence[tuple[Any, FunctionCall]], out: dict[Any, int | None]) -> None:
        for key, call in calls:
            try:
                (out[key],) = self.link.call([call])
            except LinkError as error:
                self.failed.append(str(error))
                if isinstance(error, Late):
                    return

    def words(self) -> dict[Any, str]:
        """The same of functions that give back a C string."""
        found = {key: address for key, address in self.answers().items() if address}
        read = c_strings(self.link, list(found.values()))
        return {key: text for key, text in zip(found, read, strict=True) if text is not None}


def type_names(questions: Questions, symbols: Mapping[str, int], layout: Layout, used: Iterable[int]) -> dict[int, str]:
    """ggml_type_name of each number; where it cannot be called, by the enum of this ggml."""
    numbers = sorted({n for n in used if 0 <= n < limits.TYPES})
    own = _numbered(layout, "ggml_type")
    ours = {name.lower(): name for name in TYPES}
    names = {n: ours.get(own[n].lower(), own[n].lower()) for n in numbers if n in own}
    return names | _called(questions, symbols, "ggml_type_name", numbers)


def op_names(
    questions: Questions, symbols: Mapping[str, int], layout: Layout, used: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """ggml's name of each op with the first word of its parameters: of UNARY and GLU it is that of the function."""
    pairs = {(op, word) for op, word in used if 0 <= op < limits.TYPES}
    own = _numbered(layout, "ggml_op")
    numbers = sorted({op for op, _ in pairs})
    names = {n: own[n] for n in numbers if n in own} | _called(questions, symbols, "ggml_op_name", numbers)
    functions: dict[tuple[str, int], str] = {}
    for op, enum in (("UNARY", "ggml_unary_op"), ("GLU", "ggml_glu_op")):
        words = sorted({word for n, word in pairs if names.get(n) == op and 0 <= word < limits.TYPES})
        own = _numbered(layout, enum)
        found = {n: own[n] for n in words if n in own} | _called(questions, symbols, f"{enum}_name", words)
        functions |= {(op, n): name for n, name in found.items()}
    return {(op, word): functions.get((names[op], word), names[op]) for op, word in pairs if op in names}


def _called(questions: Questions, symbols: Mapping[str, int], function: str, numbers: Sequence[int]) -> dict[int, str]:
    address = symbols.get(function, 0)
    for n in numbers:
        questions.add(n, address, "unsigned long", n)
    return questions.words()


def _numbered(layout: Layout, enum: str) -> dict[int, str]:
    """The members of an enum by number, without what they all begin with."""
    if enum not in layout.enums:
        return {}
    prefix = {"ggml_backend_dev_type": "GGML_BACKEND_DEVICE_TYPE_"}.get(enum, f"{enum.upper()}_")
    members = layout.enums[enum].members
    return {n: name.removeprefix(prefix) for name, n in members.items() if not name.endswith("_COUNT")}


def device_type(layout: Layout, number: int) -> str:
    """A name of ggml_backend_dev_type in lower case."""
    return _numbered(layout, "ggml_backend_dev_type").get(number, f"type {number}").lower()


_READ_AND_WRITE = 3
_PRIVATE_AND_ANONYMOUS = 0x22


class NoRoom(LinkError):  # noqa: N818 - it says what is the matter
    """The program cannot give memory; the message says why."""


def mapped(link: GdbLink, nbytes: int) -> int:
    """Where so many bytes were mapped. Raises NoRoom, LinkError."""
    if is_confined(link.pid):
        raise NoRoom("the program is in a sandbox of its own (seccomp), which may end it for asking the system")
    mmap = _function(link, "mmap")
    if mmap is None:
        raise NoRoom("the program has no mmap")
    how = (0, nbytes, _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, SIZE_MAX, 0)
    (found,) = link.call([FunctionCall(mmap, "unsigned long", how)])
    if not found or found > SIZE_MAX - nbytes:
        raise NoRoom("the program has no memory left")
    return found


def unmapped(link: GdbLink, address: int, nbytes: int) -> None:
    """Give them back. Raises LinkError."""
    munmap = _function(link, "munmap")
    if munmap is not None:
        link.call([FunctionCall(munmap, "int", (address, nbytes))])


def _function(link: GdbLink, name: str) -> int | None:
    """The address of a function of the C library: gdb takes longer than its file."""
    found = library_function(link.pid, name) if link.pid else None
    if found is not None:
        return found
    try:
        return int(link.ask("evaluate", f"(unsigned long)&{name}"))
    except LinkError:
        return None


_PROPS = {"memory_free": "memory_free", "memory_total": "memory_total", "events": "caps.events"}


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
        new_backends, new_devices, new_bufts = (
            {a: table for a, table in tables.items() if a not in before}
            for tables, before in ((backends, known.backends), (devices, known.devices), (bufts, known.bufts))
        )
        for tables in (new_backends, new_devices, new_bufts):
            self._ask(tables, "unsigned long", "get_name")
        self._ask(new_devices, "unsigned long", "get_description")
        names = self.questions.words()
        told_backends = {
            a: BackendState(a, names.get(("get_name", a)), t.fields[0], frozenset(t.functions))
            for a, t in new_backends.items()
        }
        told_devices, told_bufts = self._devices(new_devices, names), self._bufts(new_bufts, names)
        return FoundBackends(
            {a: known.backends.get(a) or told_backends[a] for a in backends},
            {a: known.devices.get(a) or told_devices[a] for a in devices},
            {a: known.bufts.get(a) or told_bufts[a] for a in bufts},
            self._buffers(buffers, live, {b for of in sched.galloc.buffers for b in of}),
        )

    def _ask(self, tables: Mapping[int, InterfaceTable], result: str, *functions: str) -> None:
        """Ask functions of each table, by name and address, whose results are of a type."""
        for name in functions:
            for a, table in tables.items():
                self.questions.add((name, a), table.functions.get(name, 0), result, a)

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
        record = StructFields(self.layout, tag, fields)
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

    def _bufts(
        self, tables: Mapping[int, InterfaceTable], names: Mapping[tuple[str, int], str]
    ) -> dict[int, BuftState]:
        self._ask(tables, "unsigned long", "get_alignment", "get_max_size")
        self._ask(tables, "unsigned char", "is_host")
        answers, out = self.questions.answers(), {}
        for a, table in tables.items():
            max_size, host = answers.get(("get_max_size", a)), answers.get(("is_host", a))
            max_size = max_size if "get_max_size" in table.functions else SIZE_MAX
            host = host if "is_host" in table.functions else 0
            out[a] = BuftState(
                table.fields[0],
                names.get(("get_name", a)),
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
        self._ask(tables, "int", "get_type")
        self._ask(tables, "unsigned long", "get_buffer_type")
        answers, out = self.questions.answers(), {}
        props = self._props(tables)
        for a, table in tables.items():
            type = answers.get(("get_type", a))
            told = props.get(a, {})
            out[a] = DeviceState(
                a,
                names.get(("get_name", a)),
                names.get(("get_description", a)),
                None if type is None else device_type(self.layout, type),
                told.get("memory_free"),
                told.get("memory_total"),
                bool(told["events"]) if told else "event_new" in table.functions,
                answers.get(("get_buffer_type", a)) or 0,
            )
        return out

    def _props(self, tables: Mapping[int, InterfaceTable]) -> dict[int, dict[str, int]]:
        """Memory and events of each device, which it writes into a page of ours."""
        out: dict[int, dict[str, int]] = {}
        record = StructFields(self.layout, "ggml_backend_dev_props", tuple(_PROPS.values()))
        link = self.questions.link
        if not tables or not self.questions.live:
            return out
        try:
            page = mapped(link, PAGE)
        except LinkError as error:
            self.unread.append(f"the memory of the devices: {error}")
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
