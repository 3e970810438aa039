"""Functions that run in unicorn return what they return when the program is called, or nothing is said."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

import pytest

from ggmltool.attach.files import emulator
from ggmltool.attach.files.emulator import Emulator
from ggmltool.attach.gdb.link import FunctionCall, GdbLink
from ggmltool.attach.session import AttachSession
from ggmltool.state.memory.pages import PAGE, c_string
from tests.needs import compiled, needs_gcc, needs_gdb

CODE = 0x1000
SIZES = {"unsigned long": 8, "int": 4, "unsigned char": 1}


@pytest.fixture(params=["0.20.2", "0.26"], scope="module")
def stopped(request: pytest.FixtureRequest) -> Iterator[AttachSession]:
    with AttachSession.launch([str(compiled(request.param))]) as session:
        session.stop_at(["ggml_backend_sched_alloc_graph"])
        yield session
    session.wait()


@needs_gcc
@needs_gdb
def test_what_a_device_says_of_itself_is_read_off_its_code(stopped: AttachSession) -> None:
    ran, told = 0, 0
    runs = Emulator(stopped.link)

    def asked(name: str, *arguments: int, result: str = "unsigned long", text: bool = False) -> int:
        nonlocal ran, told
        function = stopped.instance.address(name)
        (real,) = stopped.link.call([FunctionCall(function, result, arguments)])
        found = runs.result(function, *arguments, size=SIZES[result])
        ran += found is not None
        told += 1
        if text and found:
            assert c_string(stopped.link, found) == c_string(stopped.link, real or 0)
        else:
            assert found in (None, real), (name, arguments)
        return real or 0

    sched, graph = stopped.link.arguments()[:2]
    nodes = nodes_of(stopped.link, graph)
    for i in range(asked("ggml_backend_sched_get_n_backends", sched, result="int")):
        backend = asked("ggml_backend_sched_get_backend", sched, i)
        asked("ggml_backend_name", backend, text=True)
        device = asked("ggml_backend_get_device", backend)
        asked("ggml_backend_dev_name", device, text=True)
        asked("ggml_backend_dev_type", device, result="int")
        buft = asked("ggml_backend_get_default_buffer_type", backend)
        asked("ggml_backend_buft_name", buft, text=True)
        asked("ggml_backend_buft_get_alignment", buft)
        asked("ggml_backend_buft_get_max_size", buft)
        asked("ggml_backend_buft_is_host", buft, result="unsigned char")
        asked("ggml_backend_supports_buft", backend, buft, result="unsigned char")
        for node in nodes[:12]:
            asked("ggml_backend_supports_op", backend, node, result="unsigned char")
            asked("ggml_backend_buft_get_alloc_size", buft, node)
    assert ran > 0.9 * told


def nodes_of(link: GdbLink, graph: int) -> tuple[int, ...]:
    (n,) = struct.unpack("<i", link.read(graph + 4, 4))
    (nodes,) = struct.unpack("<Q", link.read(graph + 16, 8))
    return struct.unpack(f"<{n}Q", link.read(nodes, 8 * n))


class Code:
    """A link to a program that is some bytes of code, and numbers in memory."""

    def __init__(self, code: bytes, memory: Mapping[int, int]) -> None:
        self.places = {CODE: code} | {at: number.to_bytes(8, "little") for at, number in memory.items()}

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """As a core dump has it: nothing, where a part of a span is missing."""
        return [self._read(*span) for span in spans]

    def _read(self, address: int, n: int) -> bytes:
        near = [data[address - at :][:n] for at, data in self.places.items() if at <= address]
        return max((data for data in near if len(data) == n), default=b"")


def result(code: str, *given: int, memory: Mapping[int, int] = {}, size: int = 8) -> int | None:
    """What a function returns, as its code is in hexadecimal."""
    return Emulator(Code(bytes.fromhex(code).ljust(PAGE, b"\xcc"), memory)).result(CODE, *given, size=size)


LOADS = "48 8b 47 08 c3"
"""mov rax, [rdi + 8]; ret"""


def test_memory_is_read_also_of_a_page_that_was_dumped_in_part() -> None:
    # mov rax, [rdi + 8]; mov rax, [rax]; ret
    assert result("48 8b 47 08 48 8b 00 c3", 0x5000, memory={0x5008: 0x6000, 0x6000: 77}) == 77
    code = Code(bytes.fromhex(LOADS).ljust(PAGE, b"\xcc"), {})
    code.places[0x5000] = (0x6000).to_bytes(8, "little") * 32
    runs = Emulator(code)
    assert runs.result(CODE, 0x5000) == runs.result(CODE, 0x50F0) == 0x6000
    assert runs.result(CODE, 0x50F8) is None
    assert runs.result(CODE, 0x9000) is None
    assert runs.result(CODE, 0x5000) == 0x6000


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("c7 05 01 00 00 00 05 00 00 00 31 c0 c3", "mov dword [rip + 1], 5: it writes"),
        ("eb fe", "jmp to itself: it does not end"),
        ("31 c0 ff e0", "jmp 0: it goes nowhere"),
        ("31 c9 48 99 48 f7 f9 c3", "cqo; idiv of 0: it divides by zero"),
        ("64 48 8b 04 25 28 00 00 00 c3", "mov rax, fs:0x28: what is the thread's is not known"),
        ("b8 27 00 00 00 0f 05 c3", "getpid: it asks the system"),
        ("0f 0b", "ud2: it traps"),
    ],
)
def test_what_is_not_known_is_refused(code: str, why: str) -> None:
    assert result(code, 0x9000, 1) is None, why


def test_a_truth_is_one_byte() -> None:
    # mov eax, 0xffffff00; cmp rdi, 5; sete al; ret
    code = "b8 00 ff ff ff 48 83 ff 05 0f 94 c0 c3"
    assert result(code, 5, size=1) == 1
    assert result(code, 6, size=1) == 0
    assert result(code, 5, size=4) == 0xFFFFFF01


def test_more_pages_than_are_mapped_at_a_time_are_read_over_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "_PAGES", 4)
    code = Code(bytes.fromhex(LOADS).ljust(PAGE, b"\xcc"), {})
    code.places |= {0x10000 + i * PAGE: bytes([i]) * PAGE for i in range(40)}
    runs = Emulator(code)
    assert [runs.result(CODE, 0x10000 + i * PAGE, size=1) for i in range(40)] == list(range(40))
    assert len(runs._pages) <= 6
