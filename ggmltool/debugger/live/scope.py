"""What names stand for in a program that stands still: its own variables, tensors by name, scheduler and graph."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.attach.gdb.link import FunctionCall, GdbLink, LinkLost
from ggmltool.debugger.expressions.evaluate import EvalScope
from ggmltool.debugger.expressions.functions import FUNCTIONS, INLINE, text_of
from ggmltool.debugger.expressions.memory import ImageMemory
from ggmltool.debugger.expressions.scope import signature
from ggmltool.debugger.expressions.values import CValue, cast, dereferenced
from ggmltool.ggml.releases.release import Release
from ggmltool.state.errors import AttachError, LinkError, NoBytes
from ggmltool.state.memory.pages import Memory
from ggmltool.structs.declarations import ExpressionError, NoMemoryError, TokenCursor, read_type
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import LONG, VOID, CType, Enum, Int, Pointer, Struct, Void, bare

_TALK = frozenset(("ggml_graph_print", "ggml_init"))
"""Functions that print, or take memory."""

_STRUCTS = {"sched": "ggml_backend_sched", "galloc": "ggml_gallocr", "graph": "ggml_cgraph"}

_TABLES = {"ggml_table_f32_f16": "float [65536]", "ggml_table_gelu_f16": "uint16_t [65536]"}
"""Tables that ggml's CPU backend exports, with their types."""


class LiveMemory(ImageMemory):
    """Reads through a link, each page once: until it is forgotten, the program stands still."""

    def __init__(self, link: GdbLink) -> None:
        super().__init__()
        self._link = link
        self.forget()

    def forget(self) -> None:
        """The program has moved: nothing holds any more."""
        self._pages = Memory(self._link)
        self._names: dict[int, str] = {}

    def read(self, address: int, n: int) -> bytes:
        """The bytes at an address. Raises NoMemoryError."""
        try:
            return self._pages.read(address, n)
        except (NoBytes, AttachError):
            raise NoMemoryError(address) from None

    def symbol(self, address: int) -> str:
        """What gdb calls what lies at an address."""
        if address not in self._names:
            try:
                self._names[address] = str(self._link.ask("symbol", address)) if address else ""
            except LinkLost:
                raise
            except LinkError:
                self._names[address] = ""
        return self._names[address]


class LiveScope(EvalScope):
    """The names of a program at a stop. `things` are the addresses of `sched`, `galloc` and `graph`, as far as they
    are known, `tensors` those of tensors by name, `functions` those of functions and tables;
    `release` decides as the program's ggml does."""

    def __init__(
        self,
        link: GdbLink,
        memory: LiveMemory,
        layout: Layout,
        things: Mapping[str, int],
        tensors: Mapping[str, int],
        functions: Mapping[str, int],
        release: Release,
        variables: dict[str, CValue],
    ) -> None:
        self._link = link
        self._memory = memory
        self.layout = layout
        self.things = things
        self.tensors = tensors
        self._functions = functions
        self.release = release
        self.variables = variables

    @property
    def memory(self) -> ImageMemory:
        return self._memory

    def pointer(self, struct: str, address: int) -> CValue:
        """A pointer to a struct."""
        return self.of(Pointer(self.layout.struct(struct)), address)

    def name(self, name: str, quoted: bool = False) -> CValue:
        """The value of a name; a variable of the program comes first, quoted names are tensors' and functions'. Raises
        ExpressionError."""
        found = (None if quoted else self._own(name)) or self._known(name)
        if found is None:
            found = self._own(f"'{name}'") if quoted else None
        if found is None:
            raise ExpressionError(f'No symbol "{name}" in current context, and no tensor of this name in the graph.')
        return found

    def _known(self, name: str) -> CValue | None:
        if self.things.get(name):
            return self.pointer(_STRUCTS[name], self.things[name])
        if name in self.tensors:
            return self.pointer("ggml_tensor", self.tensors[name])
        found = self.constant(name)
        if found is not None:
            return found
        if name in FUNCTIONS and self._functions.get(name):
            return CValue(signature(name, self.layout), self.memory, self._functions[name])
        if name in _TABLES and self._functions.get(name):
            return CValue(read_type(TokenCursor(_TABLES[name]), self.layout), self.memory, self._functions[name])
        return None

    def _own(self, name: str) -> CValue | None:
        """What gdb knows by a name, if its type is known here."""
        try:
            said = self._link.ask("value", name)
        except LinkLost:
            raise
        except LinkError:
            return None
        type = self._type(said["type"])
        if type is None:
            return None
        value = self.of(type, said["number"])
        return dereferenced(value) if said["at"] else value

    def _type(self, text: str) -> CType | None:
        for written in (text, f"struct {text}", f"enum {text}"):
            try:
                cursor = TokenCursor(written)
                type = read_type(cursor, self.layout)
                if cursor.ended:
                    return type
            except ExpressionError:
                continue
        return None

    def variable(self, text: str) -> CValue:
        """The value of `$name`: one that was set here, else gdb's own: registers, convenience variables, the values
        that gdb has printed."""
        name = text.removeprefix("$")
        if name in self.variables:
            return self.variables[name]
        found = self._own(text)
        if found is None:
            raise ExpressionError(f"gdb's {text} is of no type that is known here.")
        return found

    def call(self, name: str, arguments: list[CValue]) -> CValue:
        """What a function of ggml returns, called in the program; `tensor("name")` is a tensor of the graph. Raises
        ExpressionError."""
        if name == "tensor" and len(arguments) == 1:
            text = text_of(arguments[0]).decode("utf-8", "surrogateescape")
            if text not in self.tensors:
                raise ExpressionError(f'No tensor is called "{text}".')
            return self.pointer("ggml_tensor", self.tensors[text])
        if name in _TALK:
            raise ExpressionError(f"{name} does more than look; `ggml graph` shows the graph.")
        if name not in FUNCTIONS:
            self.name(name)
            raise ExpressionError(f"{name} is none of the functions that only look: {', '.join(sorted(FUNCTIONS))}.")
        type = signature(name, self.layout, arguments)
        if name in INLINE:
            given_values = [
                # A struct is taken as it is: the hash set, of which a pointer is asked for.
                value if isinstance(value.bare, Struct) else cast(p, value)
                for p, value in zip(type.parameters, arguments, strict=True)
            ]
            return self.of(type.result, INLINE[name](self, given_values))
        address = self._functions.get(name)
        if address is None:
            raise ExpressionError(f"The program does not export {name}.")
        given = [value.integer() & ((1 << 64) - 1) for value in map(cast, type.parameters, arguments)]
        try:
            (result,) = self._link.call([FunctionCall(address, _returned(type.result), tuple(given))])
        except LinkLost:
            raise
        except LinkError as error:
            raise ExpressionError(str(error)) from None
        if result is None:
            return CValue(VOID, self.memory)
        return self.of(type.result, result)


def _returned(type: CType) -> str:
    """A type that gdb knows without debug information, of the same bytes. Raises ExpressionError."""
    t = bare(type)
    match t:
        case Void():
            return "void"
        case Pointer():
            return "unsigned long"
        case Enum():
            return "int"
        case Int(size=size, signed=signed):
            names = {1: "char", 2: "short", 4: "int", 8: "long"}
            return names[size] if signed else f"unsigned {names[size]}"
        case Struct():
            raise ExpressionError("Functions that return a struct are not called.")
        case _:
            return LONG.name
