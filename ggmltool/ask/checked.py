"""The border of the API: arguments are of the kinds that a signature says, and what the system refuses is an Error."""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import isnan
from numbers import Integral
from typing import Any, NamedTuple, TypeVar, cast

from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.state.errors import InspectError, WrongArgument

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

Fits = Callable[[object], bool]

_NAMES = {"source", "graph", "steps", "outputs"}
"""Arguments that are looked up, where a wrong one is a ScenarioError with the nearest name."""

_OPTIONS = {"When": "ask.moment"}
"""The modules of the options that methods share."""


def checked(function: F) -> F:
    """The same function; what is wrong with its arguments is a WrongArgument, an OSError an InspectError."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise WrongArgument(f"{function.__name__}: {_wrong(signature, kwargs) or error}") from None
        for name, kind in _kinds(function).items():
            if name in given and name not in _NAMES:
                kind.check(function.__name__, name, given[name])
        try:
            return function(*args, **kwargs)
        except OSError as error:
            name = "" if error.filename is None else f"{quoted(error.filename)}: "
            raise InspectError(f"{name}{error.strerror or error}") from error

    return cast("F", call)


def checked_methods(cls: C) -> C:
    """The same class; all of its public methods, its own and inherited ones, are `checked`."""
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            setattr(cls, name, checked(member))
    return cls


class _Kind(NamedTuple):
    """What an argument has to be: as it is annotated, and whether a value fits. `options`: it is the rest of the
    keywords, each with its own kind; `each`: it is the rest of the positional arguments."""

    text: str
    fits: Fits
    options: Mapping[str, _Kind] | None = None
    each: bool = False

    def check(self, function: str, name: str, value: Any) -> None:
        if self.options is not None:
            for key, one in value.items():
                if key not in self.options:
                    hint = did_you_mean(key, self.options) or f"the options are {', '.join(self.options)}"
                    raise WrongArgument(f"{function}: there is no option {key!r}; {hint}")
                self.options[key].check(function, key, one)
        elif not all(map(self.fits, value)) if self.each else not self.fits(value):
            wanted = self.text.replace(" | ", " or ")
            raise WrongArgument(f"{function}: {name} must be {wanted}, not {_shown(value)}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:59]}…"


def _wrong(signature: inspect.Signature, kwargs: Mapping[str, object]) -> str:
    """A keyword that is none of the parameters, "" if all are."""
    names = [name for name in signature.parameters if name != "self"]
    wrong = next((name for name in kwargs if name not in names), None)
    if wrong is None:
        return ""
    return f"there is no option {wrong!r}; {did_you_mean(wrong, names) or f'the options are {_listed(names)}'}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


@functools.cache
def _kinds(function: Callable[..., Any]) -> dict[str, _Kind]:
    names = function.__globals__
    kinds: dict[str, _Kind] = {}
    for name, p in inspect.signature(function).parameters.items():
        if isinstance(p.annotation, str):
            text = p.annotation
            if p.kind is p.VAR_KEYWORD and text.startswith("Unpack["):
                options = _options(text[7:-1])
                kinds[name] = _Kind(text, _anything, options)
            else:
                kinds[name] = _Kind(text, _fits(text, names), None, p.kind is p.VAR_POSITIONAL)
    return {name: kind for name, kind in kinds.items() if kind.fits is not _anything or kind.options is not None}


def _options(name: str) -> dict[str, _Kind]:
    """The kinds of a TypedDict's keys."""
    module = import_module(f"ggmltool.{_OPTIONS[name]}")
    fields, names = getattr(module, name), module.__dict__
    texts = {key: getattr(kind, "__forward_arg__", str(kind)) for key, kind in fields.__annotations__.items()}
    return {key: _Kind(text, _fits(text, names)) for key, text in texts.items()}


def _anything(_: object) -> bool:
    return True


def _text(value: object) -> bool:
    return isinstance(value, str)


def _path(value: object) -> bool:
    return isinstance(value, os.PathLike) or (isinstance(value, str) and "\0" not in value)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)


_PLAIN: dict[str, Fits] = {
    "Release": lambda value: hasattr(value, "rules"),
    "str": _text,
    "Path": _path,
    "int": lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    "float": _number,
    "bool": lambda value: isinstance(value, bool),
    "None": lambda value: value is None,
    "dict": lambda value: isinstance(value, dict),
    "Mapping": lambda value: isinstance(value, Mapping),
    "Callable": callable,
    "Listener": callable,
}


def _fits(text: str, names: Mapping[str, Any]) -> Fits:
    """Whether a value fits an annotation; of a kind that is not known here anything does."""
    return _of(ast.parse(text, mode="eval").body, names)


def _of(node: ast.expr, names: Mapping[str, Any]) -> Fits:
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            sides = [_of(left, names), _of(right, names)]
            if _anything in sides:
                return _anything
            if _path in sides:
                # A name is a path here: str | Path.
                sides = [_path if side is _text else side for side in sides]
            return lambda value: any(fits(value) for fits in sides)
        case ast.Constant(None):
            return _PLAIN["None"]
        case ast.Name(name):
            return _named(name, names)
        case ast.Subscript(ast.Name("Literal"), words):
            texts = {text.value for text in ast.walk(words) if isinstance(text, ast.Constant)}
            return lambda value: isinstance(value, str) and value in texts
        case ast.Subscript(ast.Name("Sequence"), inner):
            each = _of(inner, names)
            return lambda value: (
                isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(each, value))
            )
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(parts)):
            kinds = [_of(part, names) for part in parts]
            return lambda value: (
                isinstance(value, tuple)
                and len(value) == len(kinds)
                and all(fits(v) for fits, v in zip(kinds, value, strict=True))
            )
        case ast.Subscript(ast.Name(name), _):
            return _named(name, names)
    return _anything


def _named(name: str, names: Mapping[str, Any]) -> Fits:
    if name in _PLAIN:
        return _PLAIN[name]
    known = None if name == "Any" else names.get(name)
    if isinstance(known, type):
        return lambda value: isinstance(value, known)
    if known is not None and "|" in str(known):
        return _fits(str(known).replace("collections.abc.", "").replace("typing.", ""), {})
    return _anything
