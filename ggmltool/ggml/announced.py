"""Calls of ggml's API, which are announced where somebody listens: that one begins, and that it is done."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ggmltool.ggml.events import Entered, Left, Listener


class _Listened(Protocol):
    """Who has a listener, or none."""

    events: Listener | None


_S = TypeVar("_S", bound=_Listened)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Call = Callable[Concatenate[_S, _P], _R]


def announced(function: str) -> Callable[[_Call[_S, _P, _R]], _Call[_S, _P, _R]]:
    """A method, or a function of a scheduler, that mirrors ggml's `function`. One that fails is never done."""

    def decorate(call: _Call[_S, _P, _R]) -> _Call[_S, _P, _R]:
        @wraps(call)
        def telling(s: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            if s.events is None:
                return call(s, *args, **kwargs)
            s.events(Entered(function))
            result = call(s, *args, **kwargs)
            s.events(Left(function))
            return result

        return telling

    return decorate
