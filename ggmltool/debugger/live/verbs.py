"""`ggml …` in the user's gdb: what each verb answers."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import IO, Any

from ggmltool.ask.attach.live import OF_TENSOR, PLAIN
from ggmltool.attach.files.emulator import DeadLink
from ggmltool.attach.files.instance import STOPS
from ggmltool.attach.gdb.link import LinkLost
from ggmltool.debugger.command import split_format
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions.commands import Examined, examine, type_text
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.live.process import GdbCommand, GdbServer, StoppedProcess
from ggmltool.ggml.errors import Error
from ggmltool.show.text import harmless, printable
from ggmltool.state.errors import AttachError, LinkError
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.layout import layout

Answer = Callable[[StoppedProcess, GdbCommand], str]
MOST_COMPLETED = 1000
_MOST = 1 << 20


def answers() -> dict[str, Answer]:
    """By verb."""
    return {
        **dict.fromkeys(("splits", "allocs", "buffers", "graph", "hash"), view),
        **dict.fromkeys(OF_TENSOR, view_of_tensor),
        **dict.fromkeys(("save", "why", "verify"), planned),
        "print": printed,
        "ptype": type_of,
        "x": Examining(),
        "break": stop_at,
        "watch": watch,
        "use": use,
        "complete": complete,
    }


class VerbHandler:
    """Answers commands: what is to be shown, and what went wrong, in a line."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes]) -> None:
        self._server = GdbServer(requests, replies)
        self._answers = answers()

    def answer(self, message: dict[str, Any]) -> tuple[str, str]:
        """What gdb shows, and the error ("": none). Raises LinkLost if gdb is gone."""
        command = GdbCommand.of(message)
        try:
            text = self._answers[command.verb](self._server.stopped(command), command)
            return harmless(text, command.color), ""
        except LinkLost:
            raise
        except (Error, CommandError, ExpressionError, LinkError) as error:
            return "", harmless(" ".join(str(error).split()))
        except Exception as error:
            if os.environ.get("GGMLTOOL_TRACEBACK"):
                return traceback.format_exc(), "this is a bug in ggmltool"
            return "", f"this is a bug in ggmltool: {type(error).__name__}: {harmless(str(error))}"


def view(process: StoppedProcess, command: GdbCommand) -> str:
    """What the scheduler and its allocator have now."""
    verb, words = command.verb, command.words
    if verb != "hash" and words:
        raise CommandError(f"`ggml {verb}` takes no argument.")
    if words not in ([], ["--sched"]):
        raise CommandError("`ggml hash`, or `ggml hash --sched`.")
    return PLAIN[" ".join([verb, *words])](process.named, command.style)


def view_of_tensor(process: StoppedProcess, command: GdbCommand) -> str:
    """One tensor, by name or expression, or who has its bytes."""
    address = process.tensor_at(command.argument.strip())
    return OF_TENSOR[command.verb](process.named_with(address), address, command.style)


def planned(process: StoppedProcess, command: GdbCommand) -> str:
    """A verb that plans the graph: the engine is imported when the first of them is command."""
    from ggmltool.debugger.live.planning import save, verified, why

    return {"save": save, "why": why, "verify": verified}[command.verb](process, command)


def complete(process: StoppedProcess, command: GdbCommand) -> str:
    """Tensors of the graph whose names begin so."""
    begun = command.argument.lstrip()
    before = command.argument[: len(command.argument) - len(begun)]
    names = (name for name in process.tensors if name.startswith(begun) and name.isprintable())
    return "\n".join(before + name for name, _ in zip(names, range(MOST_COMPLETED), strict=False))


def _check_alive(process: StoppedProcess) -> None:
    """Raises CommandError of a core dump, which never stops anywhere."""
    if isinstance(process.link, DeadLink):
        raise CommandError("A core dump does not run.")


def stop_at(process: StoppedProcess, command: GdbCommand) -> str:
    """A breakpoint before the split of a node is computed, or where a tensor gets its address."""
    _check_alive(process)
    words = command.words
    names = [word for word in words if word != "--alloc"]
    if len(names) != 1:
        raise CommandError("Name one node: ggml break [--alloc] NODE.")
    process.tensor_named(names[0])
    name, offset = printable(names[0]), process.offset
    named = {"text": names[0].encode("utf-8", "surrogateescape").hex(), "offset": offset("ggml_tensor", "name")}
    numbers: list[int] = []
    if "--alloc" in words:
        for function, argument in (("ggml_backend_tensor_alloc", 1), ("ggml_backend_view_init", 0)):
            address = process.session.instance.address(function)
            said = f"ggml: {name} is about to get its address\n"
            numbers += process.link.ask("break_where", [address], {**named, "argument": argument}, said)
        when = f"{name} gets its address"
    else:
        nodes = {"count": offset("ggml_cgraph", "n_nodes"), "array": offset("ggml_cgraph", "nodes"), "most": _MOST}
        said = f"ggml: a backend is about to compute the nodes with {name}\n"
        functions = list(_compute_functions(process))
        numbers += process.link.ask("break_where", functions, {**named, "argument": 1, **nodes}, said)
        when = f"a backend is given the nodes with {name}"
    return f"Breakpoint{'s' if len(numbers) != 1 else ''} {', '.join(map(str, numbers))}: when {when}\n"


def _compute_functions(process: StoppedProcess) -> dict[int, None]:
    sched, offset = process.found.sched, process.offset
    compute = offset("ggml_backend", "iface") + offset("ggml_backend_i", "graph_compute")
    n = process.memory.number(sched + offset("ggml_backend_sched", "n_backends"), 4)
    backends = process.memory.numbers(sched + offset("ggml_backend_sched", "backends"), n)
    return dict.fromkeys(process.memory.number(backend + compute) for backend in backends)


def watch(process: StoppedProcess, command: GdbCommand) -> str:
    """Remember the calls of the scheduler, or do so no more."""
    _check_alive(process)
    word = command.argument.strip()
    if word == "off":
        process.link.ask("forget")
        return "Calls of the scheduler are remembered no more.\n"
    if word:
        raise CommandError("`ggml watch`, or `ggml watch off`.")
    copies = process.session.instances
    process.link.ask("remember", [copy.symbols[name] for copy in copies for name in STOPS if name in copy.symbols])
    return "The scheduler and the graph of every call are remembered from now on; the program does not stop for it.\n"


def use(process: StoppedProcess, command: GdbCommand) -> str:
    """Choose a scheduler and a graph, or say which ones are looked at."""
    words = command.words
    if len(words) > 2:
        raise CommandError("Name a scheduler, and a graph if you like: ggml use SCHED [GRAPH].")
    if words:
        numbers = [evaluate(word, process.scope).integer() for word in words]
        process.choose(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    try:
        found = process.found
    except AttachError as none:
        return f"scheduler none: {none}\n{_ggml(process)}"
    own = " (the scheduler's own copy)" if found.graph == process.own_graph(found.sched) else ""
    return f"scheduler {found.sched:#x}\ngraph     {found.graph:#x}{own}\n{_ggml(process)}"


def _ggml(process: StoppedProcess) -> str:
    """The line that says which ggml it is, and by what its structs are read."""
    instance, structs = process.session.instance, process.layout
    where = f" in {printable(instance.files[0])}" if instance.files else ""
    told = (
        ""
        if structs is layout(structs.name, process.session.instance.max_name)
        else ", as its debug information has them,"
    )
    return f"ggml      {printable(instance.version) or 'without a version'}, structs of {structs.name}{told}{where}\n"


def _expression(text: str, usage: str) -> str:
    if not text:
        raise CommandError(f"Argument required: {usage}.")
    return text


def printed(process: StoppedProcess, command: GdbCommand) -> str:
    """The value of an expression, as gdb prints it. Raises ExpressionError."""
    fmt, text = split_format(command.argument)
    value = evaluate(_expression(text, "an expression of C"), process.scope)
    return formatted(value, fmt, command.width) + "\n"


def type_of(process: StoppedProcess, command: GdbCommand) -> str:
    """The type of an expression. Raises ExpressionError."""
    return type_text(_expression(command.argument.strip(), "an expression or a type"), process.scope) + "\n"


class Examining:
    """`ggml x`, which goes on where it ended when nothing is named."""

    def __init__(self) -> None:
        self._last: Examined | None = None

    def __call__(self, process: StoppedProcess, command: GdbCommand) -> str:
        """Units of memory. Raises ExpressionError."""
        fmt, text = split_format(command.argument)
        if not text and self._last is None:
            raise CommandError("Argument required (starting display address).")
        said, self._last = examine(fmt, text, process.scope, self._last)
        return said + "\n"
