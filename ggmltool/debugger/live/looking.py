"""The live views: what the program's scheduler and allocator have now."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions import evaluate
from ggmltool.debugger.live.desk import Asked, Visit
from ggmltool.debugger.live.stopping import tensor_named, words_of
from ggmltool.inspect.attached.seen import Seen
from ggmltool.show.table import Style
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.types import Pointer, Struct, bare
from ggmltool.views.attach import live
from ggmltool.views.attach import tensor as one

View = Callable[[Seen, Style], str]


def style_of(asked: Asked) -> Style:
    """The room and the colors of gdb's terminal."""
    return Style(asked.columns, "256" if asked.color else "")


def plain(view: View) -> Callable[[Visit, Asked], str]:
    """A verb that takes no argument."""

    def answer(visit: Visit, asked: Asked) -> str:
        if asked.argument.strip():
            raise CommandError(f"`ggml {asked.verb}` takes no argument.")
        return view(visit.seen_now, style_of(asked))

    return answer


def hash_sets(visit: Visit, asked: Asked) -> str:
    """The allocator's hash set, or the scheduler's."""
    words = words_of(asked.argument)
    if words not in ([], ["--sched"]):
        raise CommandError("`ggml hash`, or `ggml hash --sched`.")
    return (live.sched_view if words else live.hash_view)(visit.seen_now, style_of(asked))


def tensor_at(visit: Visit, text: str) -> int:
    """The tensor of a name, else that which an expression points to. Raises CommandError."""
    if not text:
        raise CommandError("Name a tensor, or write an expression that points to one.")
    name = words_of(text)
    if len(name) == 1 and name[0] in visit.tensors:
        return visit.tensors[name[0]]
    seen = visit.seen_now
    known = seen.named(name[0]) if len(name) == 1 else None
    if known is not None:
        return known
    try:
        value = evaluate(text, visit.scope)
    except ExpressionError:
        if text.isidentifier() or (len(name) == 1 and not set(text) & set("*&()[]>")):
            return tensor_named(visit, name[0])
        raise
    t = value.bare
    target = bare(t.to) if isinstance(t, Pointer) else t
    if isinstance(target, Struct) and target.name != "ggml_tensor":
        raise CommandError(f"That is no tensor but a {value.type_name()}.")
    return (value.address or 0) if isinstance(t, Struct) else value.integer()


def tensor(visit: Visit, asked: Asked) -> str:
    """One tensor, by name or expression."""
    address = tensor_at(visit, asked.argument.strip())
    return one.tensor_view(visit.seen_with(address), address, style_of(asked))


def lifetime(visit: Visit, asked: Asked) -> str:
    """Who has a tensor's bytes."""
    address = tensor_at(visit, asked.argument.strip())
    return one.lifetime_view(visit.seen_with(address), address, style_of(asked))
