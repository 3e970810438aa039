"""What a question is: a class whose fields are its options; command, completion and method derive from it.

`ggmltool help house` says how one is added, by the example of `ask/hash/`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from msgspec import Struct

from ggmltool.state.errors import WrongUse

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.inspect.opened import Opened

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Option(NamedTuple):
    """An option of the command line. `names` are those that it has beside `--field-name`, or instead; `complete` is the
    name of a completer. A number is at least `least`, at most `most`; `words` may stand for numbers. `implied` is shown
    as the default where that is None: where the option is left out; `shows`: whether the default is shown at all, None:
    as of others of its type. `repeats`: it may be repeated, where one text can be given
    in Python too."""

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
    complete: str = ""
    least: int | None = None
    most: int | None = None
    implied: int | str | None = None
    shows: bool | None = None
    repeats: bool = False
    words: Mapping[str, int | None] = {}


DEPTH = Option(
    "Of estimated seconds: the tokens that the caches hold before, as llama-bench has it.", "N", ("-d",), least=0,
    most=1 << 30,
)  # fmt: skip


class Argument(NamedTuple):
    """A word of the command line, as usage shows it."""

    metavar: str
    complete: str = "tensors"


class Exclusion(NamedTuple):
    """Fields of which one may be given, or `one` beside none of the `others`; `why` has a `{}` for each of the two."""

    one: str
    others: tuple[str, ...]
    why: str = ""


class Misuse(WrongUse):
    """Two fields were given of which one may be. A command line spells them as options."""

    def __init__(self, one: str, other: str, why: str = "") -> None:
        self.fields = (one, other)
        self.why = why
        super().__init__((why or "{} and {} exclude each other; choose one").format(one, other))

    def __reduce__(self) -> tuple[type[Misuse], tuple[str, str, str]]:
        return Misuse, (*self.fields, self.why)


class BadValue(WrongUse):
    """A field cannot have this value."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)

    def __reduce__(self) -> tuple[type[BadValue], tuple[str, str]]:
        return BadValue, (self.field, self.message)


class Question(Struct, Generic[R], frozen=True, kw_only=True):
    """A question to a scenario."""

    formats: ClassVar[tuple[str, ...]] = ("text", "json", "csv")
    """The formats of the command; the first one is the default."""
    formats_help: ClassVar[str] = "Text (default), or JSON or CSV with exact bytes."
    exclusions: ClassVar[tuple[Exclusion, ...]] = ()
    in_ggmls_words: ClassVar[bool] = False
    """Whether it is answered with what ggml itself prints: then the command has --raw."""
    bounds: ClassVar[tuple[str, ...]] = ()
    """What its command can be told to exceed when it computes: "memory", "operations"."""
    endings: ClassVar[tuple[str, ...]] = ()
    """The endings of files of which the command itself knows what they hold."""
    of_release: ClassVar[bool] = True
    """Whether its command has --ggml."""
    first: ClassVar[tuple[str, ...]] = ()
    """Fields whose options stand before those that it shares with other questions."""
    own_after: ClassVar[str] = ""
    """The field behind whose option those of the command alone stand."""
    only_python: ClassVar[tuple[str, ...]] = ()
    """Fields that are no options of the command."""
    raises: ClassVar[str] = ""
    """What the method raises."""

    def __post_init__(self) -> None:
        for one, others, why in self.exclusions:
            for other in others:
                if self._given(one) and self._given(other):
                    raise Misuse(one, other, why)

    def _given(self, name: str) -> bool:
        return getattr(self, name) not in (None, False, ())

    def ask(self, opened: Opened) -> Answer[R]:
        """The answer of a scenario. Raises InspectError for what is asked for and is not there."""
        raise NotImplementedError


def name_of(question: Callable[..., Question[R]]) -> str:
    """What its command and its method are called: the class's name, without the `Question` that keeps it apart from a
    class of the engine's."""
    return question.__name__.removesuffix("Question").lower()


class Askable(Protocol):
    """A scenario that questions are methods of."""

    @property
    def opened(self) -> Opened: ...


def method(question: Callable[P, Question[R]], name: str = "") -> Callable[Concatenate[Askable, P], Answer[R]]:
    """The method that asks a question, with the parameters that its class has; `name` if it is not called as that."""

    def asked(self: Askable, /, *args: P.args, **kwargs: P.kwargs) -> Answer[R]:
        return question(*args, **kwargs).ask(self.opened)

    asked.__name__ = asked.__qualname__ = name or name_of(question)
    raises: str = getattr(question, "raises", "")
    about = inspect.cleandoc(question.__doc__ or "").partition("\n\n\b")[0]
    asked.__doc__ = f"{about}\n\nRaises {raises}" if raises else about
    return described(question)(asked)


def described(question: Callable[..., object]) -> Callable[[F], F]:
    """The decorator for a function that asks a question: its signature is that of the class, after what it has of its
    own before `**kwargs`."""
    signature = inspect.signature(question)
    types: dict[str, str] = {}
    for cls in reversed(inspect.getmro(cast(type, question))):
        types |= vars(cls).get("__annotations__", {})

    def decorate(asked: F) -> F:
        own = {name: p for name, p in inspect.signature(asked).parameters.items() if name not in ("args", "kwargs")}
        given = [p.replace(annotation=_plain(types[name])) for name, p in signature.parameters.items()]
        if "self" in own:
            own["self"] = own["self"].replace(annotation=inspect.Parameter.empty)
        parameters = [*own.values(), *(p for p in given if p.name not in own)]
        asked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return asked

    return decorate


def _plain(annotation: str) -> str:
    """`str | None` of `Annotated[str | None, Option(…)]`."""
    match ast.parse(annotation, mode="eval").body:
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([type, *_])):
            return ast.unparse(type)
    return annotation
