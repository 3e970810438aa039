"""`ggml break`, `ggml watch`, `ggml use`: where the program is to stop, and what is looked at there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ggmltool.attach.errors import AttachError
from ggmltool.attach.files.emulator import DeadLink
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions import evaluate
from ggmltool.debugger.live.desk import Asked, Visit
from ggmltool.scenario.errors import nearest
from ggmltool.show.text import printable
from ggmltool.structs.layout import layout

WATCHED = (
    "ggml_backend_sched_reserve",
    "ggml_backend_sched_alloc_graph",
    "ggml_backend_sched_graph_compute_async",
)
_MOST = 1 << 20


def words_of(argument: str) -> list[str]:
    """The words of an argument; what is quoted is one."""
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()


def tensor_named(visit: Visit, name: str) -> int:
    """The address of a tensor of the graph. Raises CommandError with the nearest name."""
    found = visit.tensors.get(name)
    if found is None:
        near = nearest(name, list(visit.tensors))
        hint = f" Did you mean {printable(near)}?" if near else ""
        raise CommandError(f"No tensor of the graph is called {printable(name)}.{hint}")
    return found


def _alive(visit: Visit) -> None:
    """Raises CommandError of a core dump, which never stops anywhere."""
    if isinstance(visit.link, DeadLink):
        raise CommandError("A core dump does not run.")


def stop_at(visit: Visit, asked: Asked) -> str:
    """A breakpoint before the split of a node is computed, or where a tensor gets its address."""
    _alive(visit)
    words = words_of(asked.argument)
    names = [word for word in words if word != "--alloc"]
    if len(names) != 1:
        raise CommandError("Name one node: ggml break [--alloc] NODE.")
    tensor_named(visit, names[0])
    tensor = visit.layout.structs["ggml_tensor"].members or {}
    named = {"text": names[0].encode("utf-8", "surrogateescape").hex(), "offset": tensor["name"].offset}
    if "--alloc" in words:
        return _at_allocation(visit, names[0], named)
    return _at_compute(visit, names[0], named)


def _at_allocation(visit: Visit, name: str, named: Mapping[str, object]) -> str:
    numbers: list[int] = []
    for function, argument in (("ggml_backend_tensor_alloc", 1), ("ggml_backend_view_init", 0)):
        address = visit.session.instance.address(function)
        said = f"ggml: {printable(name)} is about to get its address\n"
        numbers += visit.link.ask("break_where", [address], {**named, "argument": argument}, said)
    return f"{_breakpoints(numbers)}: when {printable(name)} gets its address\n"


def _at_compute(visit: Visit, name: str, named: Mapping[str, object]) -> str:
    graph = visit.layout.structs["ggml_cgraph"].members or {}
    where = {
        **named, "argument": 1, "count": graph["n_nodes"].offset, "array": graph["nodes"].offset, "most": _MOST,
    }  # fmt: skip
    functions = _compute_functions(visit)
    said = f"ggml: a backend is about to compute the nodes with {printable(name)}\n"
    numbers = visit.link.ask("break_where", list(functions), where, said)
    return f"{_breakpoints(numbers)}: when a backend is given the nodes with {printable(name)}\n"


def _compute_functions(visit: Visit) -> dict[int, None]:
    """The functions graph_compute of the scheduler's backends."""
    found = visit.found
    structs = visit.layout.structs
    members = structs["ggml_backend_sched"].members or {}
    iface = (structs["ggml_backend"].members or {})["iface"].offset
    compute = iface + (structs["ggml_backend_i"].members or {})["graph_compute"].offset
    n = int.from_bytes(visit.memory.read(found.sched + members["n_backends"].offset, 4), "little")
    backends = visit.memory.read(found.sched + members["backends"].offset, 8 * n)
    pointers = (int.from_bytes(backends[i : i + 8], "little") for i in range(0, 8 * n, 8))
    return dict.fromkeys(int.from_bytes(visit.memory.read(p + compute, 8), "little") for p in pointers)


def _breakpoints(numbers: list[int]) -> str:
    said = ", ".join(map(str, numbers))
    return f"Breakpoint {said}" if len(numbers) == 1 else f"Breakpoints {said}"


def watch(visit: Visit, asked: Asked) -> str:
    """Remember the calls of the scheduler, or do so no more."""
    _alive(visit)
    word = asked.argument.strip()
    if word == "off":
        visit.link.ask("forget")
        return "Calls of the scheduler are remembered no more.\n"
    if word:
        raise CommandError("`ggml watch`, or `ggml watch off`.")
    copies = visit.session.instances
    visit.link.ask("remember", [copy.symbols[name] for copy in copies for name in WATCHED if name in copy.symbols])
    return "The scheduler and the graph of every call are remembered from now on; the program does not stop for it.\n"


def use(visit: Visit, asked: Asked) -> str:
    """Choose a scheduler and a graph, or say which ones are looked at."""
    words = words_of(asked.argument)
    if len(words) > 2:
        raise CommandError("Name a scheduler, and a graph if you like: ggml use SCHED [GRAPH].")
    if words:
        numbers = [evaluate(word, visit.scope).integer() for word in words]
        visit.choose(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    try:
        found = visit.found
    except AttachError as none:
        return f"scheduler none: {none}\n{_ggml(visit)}"
    own = " (the scheduler's own copy)" if found.graph == visit.own_graph(found.sched) else ""
    return f"scheduler {found.sched:#x}\ngraph     {found.graph:#x}{own}\n{_ggml(visit)}"


def _ggml(visit: Visit) -> str:
    """The line that says which ggml it is, and by what its structs are read."""
    instance, structs = visit.session.instance, visit.layout
    where = f" in {printable(instance.files[0])}" if instance.files else ""
    told = (
        ""
        if structs is layout(structs.name, visit.session.instance.max_name)
        else ", as its debug information has them,"
    )
    return f"ggml      {printable(instance.version) or 'without a version'}, structs of {structs.name}{told}{where}\n"
