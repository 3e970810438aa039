"""llama.cpp's -ot: regular expressions that name weights, and the buffer type each sends them to."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from ggmltool.sources.llama.errors import PlaceError

MAX_PATTERN = 1000
"""Characters of a pattern, at most."""

SECONDS = 2.0
"""How long all patterns may search all names; some expressions would take forever."""

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE = r"\.ffn_(up|down|gate)\."
_NOT_IN_CPP = re.compile(r"\(\?(?![:=!])|\\[AZ]|[*+?}]\+")
_POSIX = {
    "[:digit:]": "0-9",
    "[:alpha:]": "a-zA-Z",
    "[:alnum:]": "a-zA-Z0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:space:]": r"\s",
    "[:xdigit:]": "0-9a-fA-F",
}


EXPERTS = re.compile(_EXPERTS)
"""The names of experts' weights."""


class Override(NamedTuple):
    """Weights whose name `pattern` is found in go to the buffer type `buft`; `option` is what the user wrote."""

    pattern: re.Pattern[str]
    buft: str
    option: str


def parse_overrides(text: str) -> list[Override]:
    """`REGEX=BUFT[,REGEX=BUFT…]`, as llama.cpp's -ot takes it. Raises PlaceError."""
    out = []
    for part in text.split(","):
        pattern, equals, buft = part.partition("=")
        if not equals or not pattern or not buft:
            raise PlaceError(f"{part!r} is not REGEX=DEVICE; separate several by commas")
        out.append(Override(_compile(pattern), buft, f"-ot {part}"))
    return out


def cpu_moe() -> Override:
    """--cpu-moe: the experts of all layers stay on the CPU."""
    return Override(EXPERTS, "CPU", "--cpu-moe")


def n_cpu_moe(n: int) -> list[Override]:
    """--n-cpu-moe: the experts of the first `n` layers stay on the CPU."""
    return _first_layers(n, _EXPERTS, "--n-cpu-moe")


def n_cpu_ffn(n: int) -> list[Override]:
    """--n-cpu-ffn: the dense feed-forward weights of the first `n` layers stay on the CPU."""
    return _first_layers(n, _DENSE, "--n-cpu-ffn")


def _first_layers(n: int, weights: str, option: str) -> list[Override]:
    layers = "|".join(map(str, range(n)))
    return [Override(re.compile(rf"blk\.({layers}){weights}"), "CPU", f"{option} {n}")] if n else []


def _compile(pattern: str) -> re.Pattern[str]:
    """The pattern in Python's terms; both know ECMAScript's expressions, except for what is refused here."""
    if len(pattern) > MAX_PATTERN:
        raise PlaceError(f"a pattern of {len(pattern)} characters is too long; the limit is {MAX_PATTERN}")
    if found := _NOT_IN_CPP.search(pattern):
        raise PlaceError(f"{pattern!r}: {found[0]!r} is not valid in llama.cpp's regular expressions (ECMAScript)")
    for name, characters in _POSIX.items():
        pattern = pattern.replace(name, characters)
    try:
        with warnings.catch_warnings():
            # Python has plans for some sets of characters; ECMAScript has none.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PlaceError(f"{pattern!r} is not a valid regular expression: {error}") from None


def overridden(names: Iterable[str], overrides: Sequence[Override]) -> dict[str, Override]:
    """For each name that some pattern is found in, the first such override. Raises PlaceError if that takes long."""
    if not overrides:
        return {}
    found: dict[str, Override] = {}
    with _limited():
        for name in names:
            for override in overrides:
                if override.pattern.search(name):
                    found[name] = override
                    break
    return found


@contextmanager
def _limited() -> Iterator[None]:
    """A limit of time, where the system has such timers (they ring in the main thread only)."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_long(*_: object) -> NoReturn:
    raise PlaceError(f"the patterns of -ot search for longer than {SECONDS:g} s; avoid repeated groups like (a+)+")
