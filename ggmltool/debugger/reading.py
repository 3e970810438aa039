"""What a session reads of a history: expressions in the frames of a point, and the names that there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from ggmltool.debugger.breakpoints import of_tensors
from ggmltool.debugger.expressions.commands import Examined, examine
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.expressions.image.galloc import Galloc
from ggmltool.debugger.expressions.image.image import Images
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.expressions.values import CValue
from ggmltool.debugger.walk import Evaluator
from ggmltool.ggml.events import Allocated, Assigned, Grown, Left, Logged, PassedOver, ReallocNeeded, Refused
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.state.story.calls import calls_of
from ggmltool.state.story.frames import key_at
from ggmltool.state.story.history import History
from ggmltool.state.story.points import Key
from ggmltool.structs.declarations import ExpressionError, TokenCursor, read_type
from ggmltool.structs.layout import layout
from ggmltool.structs.types import BOOL, CType, Function, Pointer, Struct, Void, bare

_NO = ("ggml_gallocr_node_needs_realloc",)
"""Functions that answer no where they are told of: this one's yes is that no more memory is needed."""


def returned_value(scope: Scope) -> CValue | None:
    """What the function returned that was left at the moment of a scope; None of one that returns nothing."""
    event: Any = scope.event
    key = event.function if isinstance(event, Left) else key_at(scope.history, scope.at, scope.phase - 1)
    type = _result(scope, key)
    if type is None:
        return None
    if isinstance(bare(type), Struct) and isinstance(event, Allocated):
        return scope.address(event.chunk, event.offset)
    number = _number(scope, key, type, event)
    return None if number is None else scope.of(type, number)


def _result(scope: Scope, key: str) -> CType | None:
    """The type of what a function returns, None for void and where it is not known."""
    table, _, field = key.partition(".")
    if field:
        member = (scope.layout.struct(table).members or {}).get(field)
        pointer = None if member is None else bare(member.type)
        function = bare(pointer.to) if isinstance(pointer, Pointer) else None
        type = function.result if isinstance(function, Function) else None
        return None if isinstance(type, Void) else type
    declared = calls_of(scope.history.release).returns.get(key)
    return None if declared is None else read_type(TokenCursor(declared), scope.layout)


def _number(scope: Scope, key: str, type: CType, event: Any) -> int | None:
    """The result as a number: a backend, an answer, or where something lies."""
    answers = bare(type) is BOOL
    match event:
        case Allocated():
            return int(event.offset)
        case Grown() if isinstance(bare(type), Pointer):
            return _buffer(scope, key, event.buft)
        case Assigned() | PassedOver() | Refused() if not answers:
            return _chosen(scope, type, event)
        case PassedOver() | Refused():
            return 0
        case ReallocNeeded() | Logged() if key in (*_NO, "ggml_gallocr_alloc_graph"):
            return 0
    return 1 if answers else 0


def _chosen(scope: Scope, type: CType, event: Assigned | PassedOver | Refused) -> int:
    decided = event.backend if isinstance(event, Assigned) else ""
    number = next((i for i, b in enumerate(scope.history.backends) if b.name == decided), -1)
    if not isinstance(bare(type), Pointer):
        return number
    return scope.image.galloc.tallocr(number) if number >= 0 else 0


def _buffer(scope: Scope, key: str, buft: str) -> int:
    number = next((i for i, b in enumerate(scope.history.backends) if buft in (b.memory, b.buft)), -1)
    galloc = scope.image.galloc
    if key == "ggml_tallocr_new_from_buft":
        return galloc.tallocr(number)
    if key == "ggml_vbuffer_alloc" and isinstance(galloc, Galloc):
        return galloc.buffer(number)
    return scope.image.devices.chunk(number, 0)


_PLAIN = re.compile(r"(sched|galloc)->(\w+)")
"""A field that is a cell of its own."""


class Reading(Evaluator):
    """Reads expressions and names of a history. `values` are those of `$1`, `$2`, …, `variables` those of `$name`."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.values: list[CValue] = []
        self.variables: dict[str, CValue] = {}
        self.structs: str | None = None
        self._scope: Scope | None = None
        self._images: Images | None = None
        self._examined: Examined | None = None

    @cached_property
    def tensors(self) -> dict[str, list[int]]:
        """The tensors that events are about, each with its points."""
        return of_tensors(self.history.points)

    @cached_property
    def bufts(self) -> Sequence[str]:
        """The buffer types in which the allocator places tensors."""
        events = (point.event for point in self.history.points)
        return list(dict.fromkeys(event.buft for event in events if isinstance(event, Allocated)))

    @cached_property
    def _plain(self) -> set[Key]:
        """The fields of scheduler and allocator that are cells of their own."""
        cells = self.history.cells(len(self.history.points) - 1)
        return {key for key in cells if key[0] in ("sched", "galloc")}

    def functions(self, called: Iterable[str]) -> list[str]:
        """The functions that are known in the release, those of this history first."""
        return list(dict.fromkeys([*called, *sorted(calls_of(self.history.release).parameters)]))

    def scope(self, at: int, frame: int, phase: int = 0) -> Scope:
        """The scope of a frame of a moment; what was asked last is kept."""
        kept = self._scope
        if kept is None or (kept.at, kept.frame, kept.phase) != (at, frame, phase):
            images = self._images or Images(self.history, layout(self.structs or self.history.release))
            self._images = images
            kept = Scope(self.history, at, frame, self.values, self.variables, images=images, phase=phase)
            self._scope = kept
        return kept

    def use_structs(self, name: str) -> None:
        """Show structs as the ggml of this name has them; "": as the release that decides. Raises ExpressionError for a
        name that is not there, and for a ggml that is too old for the state."""
        if name:
            release = RELEASES[self.history.release]
            if release.reserves and "ggml_dyn_tallocr" not in layout(name).structs:
                raise ExpressionError(f"The structs of {name} cannot show ggml {release.name}: they lack its planner.")
        self.structs = name or None
        self._scope = self._images = None

    def printed(self, text: str, fmt: str, scope: Scope, columns: int | None) -> str:
        """`$1 = …` in so many columns (None: all), where the value is kept as `$1`, behind what functions print. Raises
        ExpressionError."""
        if text == "$" and not self.values:
            raise ExpressionError("The history is empty.")
        scope.written.clear()
        value = evaluate(text, scope)
        before = f"${len(self.values) + 1} = "
        shown = formatted(value, fmt, columns, len(before))
        self.values.append(value.fetched())
        return "".join(scope.written) + before + shown

    def examined(self, text: str, fmt: str, scope: Scope) -> str:
        """What `x` prints; without a text it goes on. Raises ExpressionError."""
        said, self._examined = examine(fmt, text, scope, self._examined)
        return said

    def returned(self, scope: Scope, columns: int | None) -> str | None:
        """`$1 = …`: what the function returned that was just left, kept as `$1`; None of one that returns nothing."""
        try:
            value = returned_value(scope)
        except ExpressionError:  # a type that the structs of `symbol-file` lack
            return None
        if value is None:
            return None
        self.values.append(value.fetched())
        return f"${len(self.values)} = {formatted(value, '', columns)}"

    def truth(self, text: str, at: int, frame: int, phase: int = 0) -> bool:
        """Whether a condition is true in a frame of a moment. Raises ExpressionError."""
        return evaluate(text, self.scope(at, frame, phase)).truth()

    def shown(self, text: str, at: int, frame: int, phase: int = 0) -> str:
        """The value of an expression in a frame of a moment, as it is printed. Raises ExpressionError."""
        return formatted(evaluate(text, self.scope(at, frame, phase)))

    def may_change(self, text: str, at: int) -> bool:
        """Whether an expression without arguments of functions may have another value than at the point before: if
        nothing of the state changed, it has not, nor has a plain field whose cell did not."""
        changed = self.history.changed(at)
        field = _PLAIN.fullmatch(text.strip())
        if field is None or not at:
            return bool(changed)
        key = (field[1], field[2])
        return key in changed or key not in self._plain

    def arguments(self, at: int, frame: int, phase: int = 0) -> list[tuple[str, str]]:
        """The arguments of a frame, with their values as gdb prints them."""
        return [(name, formatted(value)) for name, value in self.scope(at, frame, phase).arguments().items()]

    def locals(self, at: int, frame: int, phase: int = 0) -> list[tuple[str, str]]:
        """The other variables of a frame that are known."""
        return [(name, formatted(value)) for name, value in self.scope(at, frame, phase).locals().items()]

    def kept(self, what: str) -> list[str]:
        """The values that were printed, or (`convenience`) the variables, each in a line."""
        if what == "values":
            return [f"${n} = {formatted(value)}" for n, value in enumerate(self.values, 1)][-10:]
        return [f"${name} = {formatted(value)}" for name, value in self.variables.items()]
