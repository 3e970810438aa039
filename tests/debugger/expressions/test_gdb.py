"""Values, types and memory are written as the real gdb writes them, of a program whose memory is copied."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import ggmltool
from ggmltool.debugger.expressions.commands import complete, examine, type_text
from ggmltool.debugger.expressions.evaluate import EvalScope, evaluate, value_of
from ggmltool.debugger.expressions.image.image import Images
from ggmltool.debugger.expressions.memory import ImageMemory
from ggmltool.debugger.expressions.parser import parse
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.expressions.values import CValue
from ggmltool.ggml.events import Allocated
from ggmltool.state.story.history import History, record_history
from ggmltool.structs.declarations import ExpressionError, TokenCursor, read_type
from ggmltool.structs.layout import Layout, TypesFile, layout
from ggmltool.structs.types import CType
from tests.needs import program

SOURCE = Path(__file__).parent / "program.c"
pytestmark = [program("gdb", "gdb"), program("gcc", "gcc")]

STRUCTS = {
    "pair": ("size_t offset", "size_t size"),
    "buffer": ("void (*clear)(struct buffer *, const void *, size_t)", "int x"),
    "tensor": (
        "enum plain type", "struct buffer * buffer", "int64_t ne[4]", "size_t nb[4]", "int32_t params[16]",
        "int32_t flags", "struct tensor * src[10]", "struct tensor * view", "void * data", "char name[64]",
        "void * extra", "char padding[8]", "_Bool on", "float f[12]", "double d", "uint8_t u8[4]", "char c",
        "enum bits bits", "const char * s", "unsigned short h", "struct pair pairs[256]", "void * events[16][4]",
        "buffer_t bt", "buffer_t bts[2]",
    ),
}  # fmt: skip
ENUMS = {
    "plain": ("PLAIN_A", "PLAIN_B", "PLAIN_C", "PLAIN_D"),
    "bits": ("BITS_A = 1", "BITS_B = 2", "BITS_C = 4"),
}
VARIABLES = {
    "T": "struct tensor", "B": "struct buffer", "t": "struct tensor *", "tt": "struct tensor **", "ff": "float [20]",
    "counted": "int [300]", "longer": "char [300]", "filled": "char [210]", "escaped": "char [20]", "runs": "char [40]",
    "two": "struct pair [3]", "big": "int64_t", "wide": "size_t", "dd": "double", "uc": "unsigned char",
    "ten": "int [10]", "eleven": "int [11]", "yes": "_Bool", "sh": "short", "none": "enum bits", "odd": "enum bits",
    "high": "enum plain", "text_a": "char [4]",
}  # fmt: skip

PRINTS = """
T | *t | t | tt | **tt | *t->src[0] | T.src | *T.src@3 | T.pairs | T.pairs[1] | T.events | T.events[0] | T.name | T.c
T.u8 | T.bits | T.type | T.s | &T | &T.ne | &T.ne[1] | T.ne | *T.ne@2 | T.f | T.d | T.on | T.h | T.padding | T.extra
T.bt | T.bts | *T.bt | T.buffer | T.buffer->clear | T.buffer->x | T->ne | t.ne | tt[0]->ne[0] | T.view | T.view == 0
ff | ff[1] | counted | longer | filled | escaped | runs | two | big | wide | dd | uc | ten | eleven | yes | sh | none
odd | high | &two[1] | two[1] | *two@2 | &counted | counted + 1 | &counted[2] | text_a | (long) t % 16 | (char) 97
(float) 3 | (enum plain) 1 | (enum bits) 9 | (enum bits) 8 | (_Bool) 5 | t + 1 | (char *) (t + 1) - (char *) t
t + 1 == t | t == 0 | 1 ? 2 : 3 | T.ne[0] == 10 && T.c == 'x' | PLAIN_B | PLAIN_B + 1 | T.type == PLAIN_B | wide + 1
1 << 16 | 10 / 3 | 10 / 3.0 | -7 % 3 | 7 % -3 | 'a' | "abc" | "abc"[1] | sizeof (struct tensor) | sizeof (T.ne)
sizeof T | 5 > 3 | ~5 | -5 | !5 | sizeof (counted) / sizeof (counted[0]) | 1, 2 | 2147483647 + 1 | 4294967295
4294967296 | 1.0f | 3.0 | 1e10 | 100000.0 | 1e16 | (float) 0.1 | 0.1f | -0.0 | 1.0 / 0 | 0x7fffffff | 0xffffffff | 017
1u - 2 | -1 / 2u | 5 % 3 * 2 - 1 | 6 & 3 | 6 | 3 ^ 1 | 1 << 3 | 2 > 1 ? 5 : 6 | big + 1 | dd * 10 | T.d + 1 | uc + 1
(unsigned char) 300 | (short) 70000 | (int) 3.99 | (int) -3.99 | T.c + 1 | 'a' == 97 | '\\n' | T.flags & 4 | T.nb[1] / 4
foo | T.foo | t->foo | 3->x | *T | *t->view | t->view->ne | (struct nope *) t | T + 1 | T == T | 1 / 0 | 1 +
(1 | 1 @ 2 | counted@0 | 5 = 6 | 08 | 0xfg | 3[4] | T[0] | main | (struct tensor) 5 | t * 2 | t - 1 < t | &5 | ff + ff
"""
FORMATTED = """
x T.ne | x two | c 65 | c T.ne[0] | t 1 << 16 | d (1 << 16) | o 8 | o 0 | a &T | z 5 | x -1 | u -1 | s T.name | x T.name
t ff[3] | x ff[3] | d ff[3] | x T.on | x T.type | d T.type | x t | d 'a' | x 'a' | t T.flags | x T.events[0] | c T.u8
x dd | f 3 | f counted | z T.h | d uc | u sh | x sh | o uc | t sh | x 0 | t 0 | a 0 | c 200 | c -1 | x *T.src@2 | f ff
s T.u8 | z T.ne | f T.d | d T.f | x T.c | t 255 | u 4294967295 | q 1 | i 1
"""
TYPES = """
T | t | tt | &T | T.src | T.pairs[0] | T.pairs | T.buffer->clear | 1 | 1u | 1L | 1.0 | 1.0f | 'a' | "abc" | 1 == 1
T.type | enum bits | struct pair | T.bt | T.bts | T.ne[0] | T.ne | unsigned long | T.c | T.u8 | T.on | T.events | &T.ne
struct tensor * | ff | ff + 1 | *ff | t + 1 | t - t | 5 / 2.0f | T.h + 1 | uc + 1 | big | !T.on | ~uc | buffer_t
"""


class Said(NamedTuple):
    """What gdb said to each command, and the memory of the program."""

    printed: dict[str, str]
    memory: ImageMemory
    addresses: dict[str, int]


def commands() -> list[str]:
    return [
        *(f"print {e}" for e in expressions(PRINTS)),
        *(f"print/{e}" for e in expressions(FORMATTED)),
        *(f"ptype {e}" for e in expressions(TYPES)),
        *(f"whatis {e}" for e in expressions(TYPES)),
    ]


def expressions(table: str) -> list[str]:
    return [e for line in table.strip().split("\n") for e in line.split(" | ")]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    there = tmp_path_factory.mktemp("gdb")
    subprocess.run(["gcc", "-g", "-O0", "-o", there / "program", SOURCE], check=True)
    script = there / "script"
    asked = commands()
    lines = ["set width 0", "set confirm off", "set debuginfod enabled off", "break main", "run"]
    for name in VARIABLES:
        lines += [f"dump binary value {there / name} {name}", f'printf "%s = %ld\\n", "{name}", (long) &{name}']
    lines += ['printf "main = %ld\\n", (long) &main', 'printf "clear_it = %ld\\n", (long) &clear_it']
    for i, command in enumerate(asked):
        lines += [f'printf "<<{i}>>\\n"', "python", "try:", f"    gdb.execute({command!r})"]
        lines += ["except gdb.error as e:", "    print(e)", "end"]
    script.write_text("\n".join(lines) + "\n")
    run = subprocess.run(
        ["gdb", "-q", "-nx", "-batch", "-x", script, there / "program"],
        capture_output=True, text=True, timeout=60, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    parts = re.split(r"<<(\d+)>>\n", run.stdout)
    addresses = {name: int(at) for name, at in re.findall(r"^(\w+) = (\d+)$", parts[0], re.MULTILINE)}
    if not addresses:
        pytest.skip(f"gdb cannot run a program here: {run.stderr[-300:]}")
    memory = ImageMemory()
    for name in VARIABLES:
        raw = (there / name).read_bytes()
        memory.add(addresses[name], len(raw), lambda offset, n, raw=raw: raw[offset : offset + n], name)
    for name in ("main", "clear_it"):
        memory.add(addresses[name], 16, lambda offset, n: b"\xc3" * n, name)
    printed = {asked[int(i)]: text.rstrip("\n") for i, text in zip(parts[1::2], parts[2::2], strict=True)}
    return Said(printed, memory, addresses)


class Globals(EvalScope):
    """The variables of the program."""

    def __init__(self, said: Said) -> None:
        self._memory = said.memory
        self._addresses = said.addresses
        typedefs = {"buffer_t": "struct buffer *"}
        self.layout = Layout("program", TypesFile(typedefs=typedefs, enums=ENUMS, structs=STRUCTS))

    @property
    def memory(self) -> ImageMemory:
        return self._memory

    def name(self, name: str, quoted: bool = False) -> CValue:
        if name in VARIABLES:
            return CValue(self._type(VARIABLES[name]), self.memory, self._addresses[name])
        if name == "main":
            return CValue(self._type("int (void)"), self.memory, self._addresses[name])
        if name in self.layout.constants:
            enum, value = self.layout.constants[name]
            return self.of(enum, value)
        raise ExpressionError(f'No symbol "{name}" in current context.')

    def _type(self, text: str) -> CType:
        return read_type(TokenCursor(text), self.layout)


def ours(command: str, names: Globals) -> str:
    """What this debugger says to a command."""
    verb, text = command.split(" ", 1)
    try:
        if verb in ("ptype", "whatis"):
            return type_text(text, names, verb == "whatis")
        letter, text = (text[0], text[1:]) if verb == "print/" else ("", text)
        return formatted(value_of(parse(text, names.layout), names), letter)
    except ExpressionError as error:
        return str(error)


@pytest.mark.parametrize("command", [c.replace("print/", "print/ ") for c in commands()])
def test_says_what_gdb_says(said: Said, command: str) -> None:
    theirs = said.printed[command.replace("print/ ", "print/")]
    theirs = re.sub(r"^\$\d+ = ", "", theirs)
    assert ours(command, Globals(said)) == theirs


@pytest.fixture(scope="module")
def history() -> History:
    return record_history(ggmltool.load("allocator", ggml="2025-03"))


@pytest.fixture
def scope(history: History) -> Scope:
    """Right after the allocator gave b its memory, as the structs of January 2025 have it."""
    at = next(i for i, p in enumerate(history.points) if isinstance(p.event, Allocated) and p.event.tensor == "b")
    return Scope(history, at, images=Images(history, layout("2025-01")))


PRINTED = {
    "*hn": "{n_children = 0, n_views = 0, buffer_id = 0, offset = 32, allocated = true}",
    "*a": (
        "{type = GGML_TYPE_F32, backend = GGML_BACKEND_TYPE_CPU, buffer = 0x0, ne = {1, 1, 1, 1}, nb = {4, 4, 4, 4}, "
        "op = GGML_OP_NONE, op_params = {0 <repeats 16 times>}, flags = 1, src = {0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, "
        "0x0, 0x0, 0x0}, view_src = 0x0, view_offs = 0, data = 0x0, name = \"a\", '\\000' <repeats 62 times>, "
        'extra = 0x0, padding = "\\000\\000\\000\\000\\000\\000\\000"}'
    ),
    "*galloc.buf_tallocs[0]": (
        "{alignment = 32, n_free_blocks = 1, free_blocks = {{offset = 64, size = 9223372036854775743}, "
        "{offset = 0, size = 0} <repeats 255 times>}, max_size = 64}"
    ),
    "ggml_hash(a) % galloc->hash_set->size": "1",
    "galloc->hash_values[ggml_hash(a) % galloc->hash_set->size]": (
        "{n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = true}"
    ),
    "sched->hv_tensor_backend_ids[ggml_hash(mul) % sched->hash_set->size]": "0",
    "ggml_op_can_inplace(mul->op)": "true",
    "graph->leafs[1]->name": "\"b\", '\\000' <repeats 62 times>",
    "sched->bufts[sched->node_backend_ids[0]]": (
        "(ggml_backend_buffer_type_t) 0x7ffff7f40000 <ggml_backend_cpu_buffer_type::ggml_backend_cpu_buffer_type>"
    ),
    "sizeof(struct ggml_object)": "32",
    'strcmp(a->name, "a") == 0 && a->name == "a"': "1",
    "(char *) b - (char *) a": "368",
}


@pytest.mark.parametrize("text", PRINTED)
def test_what_gdb_printed(scope: Scope, text: str) -> None:
    assert formatted(evaluate(text, scope)) == PRINTED[text]


def test_a_struct_with_its_fields(scope: Scope) -> None:
    assert type_text("hn", scope) == (
        "type = struct hash_node {\n    int n_children;\n    int n_views;\n    int buffer_id;\n    size_t offset;\n"
        "    _Bool allocated;\n} *"
    )


def test_memory_in_units(scope: Scope) -> None:
    assert examine("2dg", "a->ne", scope)[0] == "0x555500000030:\t1\t1"


def test_a_condition(scope: Scope) -> None:
    assert evaluate("hn->offset == 32", scope).truth()
    assert not evaluate("sched->n_splits > 1", scope).truth()


def test_what_can_follow(scope: Scope) -> None:
    assert complete("galloc->n_", scope) == ["galloc->n_buffers", "galloc->n_leafs", "galloc->n_nodes"]
    assert complete("1 + ga", scope) == ["1 + galloc"]


ERRORS = {
    "notes_ptr": 'No symbol "notes_ptr" in current context.',
    "a->nope": "There is no member named nope.",
    "*a->view_src": "Cannot access memory at address 0x0",
    "1 +": "A syntax error in expression, near `'.",
    "(struct nope *) a": "No struct type named nope.",
    "1 / 0": "Division by zero",
    "*a + 1": "Structure has no component named operator+.",
    "a = b": "Left operand of assignment is not an lvalue.",
    "a->flags = 2": "Cannot access memory at address 0x",
    "$3": "History has not yet reached $3.",
}


@pytest.mark.parametrize("text", ERRORS)
def test_what_gdb_says_of_a_mistake(scope: Scope, text: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        formatted(evaluate(text, scope))
    assert str(raised.value).startswith(ERRORS[text])
