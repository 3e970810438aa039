"""Functions that are followed over memory return what they return when they are called, or nothing is said."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ggmltool.attach.getters import Getters
from ggmltool.attach.link import Call, Link
from ggmltool.attach.memory import c_string
from ggmltool.attach.session import Session
from tests.needs import compiled, needs_gcc, needs_gdb

CODE = 0x1000
SIZES = {"unsigned long": 8, "int": 4, "unsigned char": 1}


@pytest.fixture(params=["0.20.2", "0.26"], scope="module")
def stopped(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session.launch([str(compiled(request.param))]) as session:
        session.stop_at(["ggml_backend_sched_alloc_graph"])
        yield session
    session.wait()


@needs_gcc
@needs_gdb
def test_what_a_device_says_of_itself_is_read_off_its_code(stopped: Session) -> None:
    followed, told = 0, 0
    getters = Getters(stopped.link)

    def asked(name: str, *arguments: int, result: str = "unsigned long", text: bool = False) -> int:
        nonlocal followed, told
        function = stopped.instance.address(name)
        (real,) = stopped.link.call([Call(function, result, arguments)])
        found = getters.result(function, *arguments, size=SIZES[result])
        followed += found is not None
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
    assert followed > 0.9 * told


def nodes_of(link: Link, graph: int) -> tuple[int, ...]:
    (n,) = struct.unpack("<i", link.read(graph + 4, 4))
    (nodes,) = struct.unpack("<Q", link.read(graph + 16, 8))
    return struct.unpack(f"<{n}Q", link.read(nodes, 8 * n))


class Code:
    """A link to a program that is a list of instructions of one byte each, and memory."""

    def __init__(self, lines: list[str], memory: Mapping[int, int]) -> None:
        self.lines = lines
        self.memory = memory

    def ask(self, verb: str, address: int, count: int) -> Any:
        assert verb == "disassemble"
        return [[CODE + i, line, 1] for i, line in enumerate(self.lines)][address - CODE :][:count]

    def read_many(self, spans: list[tuple[int, int]]) -> list[bytes]:
        return [self.memory[a].to_bytes(8, "little")[:n] if a in self.memory else b"" for a, n in spans]


def result(*lines: str, given: tuple[int, ...] = (), memory: Mapping[int, int] = {}, size: int = 8) -> int | None:
    return Getters(Code(list(lines), memory)).result(CODE, *given, size=size)


@pytest.mark.parametrize(
    ("lines", "given", "expected"),
    [
        (["lea    rax,[rip+0xf]        # 0x1010", "ret"], (), 0x1010),
        (["endbr64", "mov    eax,0xffffffff", "ret"], (), 0xFFFFFFFF),
        (["mov    rax,QWORD PTR [rdi+0x8]", "mov    rax,QWORD PTR [rax]", "ret"], (0x2000,), 77),
        (["xor    eax,eax", "ret"], (), 0),
        (["test   edi,edi", "sete   al", "movzx  eax,al", "ret"], (0,), 1),
        (["cmp    rdi,rsi", "cmovb  rdi,rsi", "mov    rax,rdi", "ret"], (3, 9), 9),
        (["cmp    edi,esi", "setl   al", "movzx  eax,al", "ret"], (0xFFFFFFFF, 1), 1),
        (["lea    rax,[rdi+rsi*4+0x1f]", "and    rax,0xffffffffffffffe0", "ret"], (0, 3), 32),
        (["push   rbp", "mov    rbp,rsp", "push   rbx", "mov    rax,rdi", "pop    rbx", "leave", "ret"], (5,), 5),
        (["call   0x1002", "ret", "mov    eax,0x7", "ret"], (), 7),
        (["mov    rax,rdi", "neg    rax", "sar    rax,1", "ret"], (8,), (1 << 64) - 4),
        (["mov    rax,rdi", "cqo", "idiv   rsi", "ret"], ((1 << 64) - 7, 2), (1 << 64) - 3),
        (["mov    eax,edi", "xor    edx,edx", "div    esi", "mov    eax,edx", "ret"], (17, 5), 2),
    ],
)
def test_instructions(lines: list[str], given: tuple[int, ...], expected: int) -> None:
    assert result(*lines, given=given, memory={0x2008: 0x3000, 0x3000: 77}) == expected


@pytest.mark.parametrize(
    "lines",
    [
        ["mov    rax,QWORD PTR [rdi]", "ret"],
        ["mov    rax,rbx", "ret"],
        ["mov    QWORD PTR [rip+0x1],0x5", "xor    eax,eax", "ret"],
        ["rdtsc", "ret"],
        ["jmp    0x1000"],
        ["push   rbx", "pop    rax", "ret"],
        ["mov    eax,0x1", "push   rax", "pop    rcx", "push   rbx", "pop    rax", "ret"],
        ["mov    al,0x1", "ret"],
        ["add    rdi,rsi", "setb   al", "ret"],
        ["mov    rax,QWORD PTR fs:0x28", "ret"],
        ["mov    rax,QWORD PTR [rsp-0x8]", "ret"],
        ["jmp    0x0"],
        ["mov    rax,rdi", "cqo", "xor    ecx,ecx", "idiv   rcx", "ret"],
    ],
)
def test_what_is_not_known_is_refused(lines: list[str]) -> None:
    assert result(*lines, given=(0x9000, 1)) is None


def test_a_truth_is_one_byte() -> None:
    assert result("cmp    rdi,0x5", "sete   al", "ret", given=(5,), size=1) == 1
