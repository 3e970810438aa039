"""Who calls whom in a release of ggml, as far as points of a history lie in those functions.

What the engine announces are calls of ggml's API, and decisions. Between the two stand functions that nobody announces;
which ones is a matter of the release, and data (`frames.toml` of its folder).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from ggmltool.ggml.releases.interfaces import tables_of
from ggmltool.ggml.releases.table import RELEASES, own_data

MAIN = "main"
"""The program that calls ggml."""

_LASTING = frozenset(
    ["sched", "galloc", "graph", "node_buffer_ids", "leaf_buffer_ids", "measure_graph", "params", "no_alloc", "gf"]
)
"""Parameters of functions that go on over several tensors."""


class _Frames(Struct, forbid_unknown_fields=True):
    """Functions with their parameters, and who calls each; all there are, or what is not as in the release before.

    `returns` has the types of what they return, if that is not void; tables of function pointers say their own.
    `instead` has what another release's functions are called here; `last` by the kind of device which function a
    function of its tables asks last, before it says no to what is not such a device's; `inside` what functions of
    devices call of the system.
    """

    functions: dict[str, tuple[str, ...]]
    returns: dict[str, str] = {}
    instead: dict[str, str] = {}
    last: dict[str, dict[str, str]] = {}
    inside: dict[str, tuple[str, ...]] = {}
    whole: bool = False


class CallGraph(Struct, frozen=True):
    """Of each function of a release the names of its parameters, the functions that call it, what it returns."""

    parameters: Mapping[str, tuple[str, ...]]
    callers: Mapping[str, tuple[str, ...]]
    returns: Mapping[str, str]
    instead: Mapping[str, str]
    last: Mapping[str, Mapping[str, str]]
    inside: Mapping[str, tuple[str, ...]]
    paths: dict[tuple[str, str], tuple[str, ...]] = {}

    def asked_last(self, profile: str, function: str) -> str:
        """The function that one in the tables of a kind of device asks before it says no; itself if none is known."""
        return self.last.get(profile, {}).get(function, function)

    @property
    def compute(self) -> str:
        """The function by which a scheduler gives a backend its nodes."""
        return self._newest("ggml_backend_graph_compute_async", "ggml_backend_graph_compute")

    @property
    def copy(self) -> str:
        """The function by which a scheduler copies the input of a split."""
        return self._newest("ggml_backend_tensor_copy_async", "ggml_backend_tensor_copy")

    def _newest(self, *functions: str) -> str:
        return next(function for function in functions if function in self.callers)

    def called(self, function: str) -> str:
        """What a function of ggml 0.20.2 is called here."""
        return self.instead.get(function, function)

    def path(self, inner: str, outer: str) -> tuple[str, ...]:
        """The functions from `inner` to the one that `outer` calls, without what is between where that is not known.

        Of several ways the shortest, the first of those that are as short.
        """
        known = self.paths.get((inner, outer))
        if known is None:
            known = self.paths[inner, outer] = self._path(inner, outer) if inner != outer else ()
        return known

    def _path(self, inner: str, outer: str) -> tuple[str, ...]:
        before: dict[str, str] = {}
        queue = deque([inner])
        while queue:
            function = queue.popleft()
            for caller in self.callers.get(function, ()):
                if caller == outer:
                    out = [function]
                    while out[-1] != inner:
                        out.append(before[out[-1]])
                    return tuple(reversed(out))
                if caller not in before:
                    before[caller] = function
                    queue.append(caller)
        return (inner,)


@cache
def calls_of(release: str) -> CallGraph:
    """The functions of a release by its name."""
    of = RELEASES[release]
    own = own_data(of, "frames.toml", _Frames) or _Frames({})
    like = None if of.like is None else calls_of(of.like.name)
    before = None if own.whole else like
    parameters, callers = (dict(before.parameters), dict(before.callers)) if before else ({}, {})
    for signature, of_function in own.functions.items():
        function, _, names = signature[:-1].partition("(")
        parameters[function] = tuple(names.split(", "))
        callers[function] = of_function
        if not of_function:
            del parameters[function], callers[function]
    there = callers.keys() | {MAIN}
    callers = {function: tuple(c for c in of_function if c in there) for function, of_function in callers.items()}
    returns = {**(before.returns if before else {}), **own.returns}
    return CallGraph(
        parameters, callers, returns, own.instead, own.last, {**(like.inside if like else {}), **own.inside}
    )


@cache
def lasts(release: str, function: str) -> bool:
    """Whether a function goes on over several tensors: no parameter of it says which."""
    of = calls_of(release).parameters.get(function)
    return of is not None and _LASTING.issuperset(of)


@cache
def own_function(profile: str, release: str, function: str) -> str | None:
    """What a backend calls a function of its tables, such as ggml_backend_i.graph_compute; None if it has none, or
    nothing is known of it."""
    kind, _, field = function.partition(".")
    for table in tables_of(profile, release) or ():
        if table.kind == kind:
            return next((f.function for f in table.functions if f.field == field), None)
    return None
