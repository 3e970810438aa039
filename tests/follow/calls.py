"""Calls of constructors: the tensors that a library makes, and whether its CPU runs them, against the engine's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.tensors import Mirror
from tests.conformance.ops.sets import SETS
from tests.conformance.ops_case import Call, Engine, Real
from tests.follow.library import each_forked
from tests.follow.tables import TableDifference

Outcome = tuple[dict[str, Any] | str, bool | None]
"""The fields of the result, or the words of a refusal, and whether the CPU runs it."""


def number_of_calls() -> int:
    """How many calls there are."""
    return sum(map(len, SETS.values()))


def calls(lib: Lib, release: Release) -> Iterator[TableDifference]:
    """What differs, once for each op and field, with the first call that shows it."""
    for op, cases in SETS.items():
        told: dict[str, str] = {}
        n: dict[str, int] = {}
        for case, there in zip(cases, _there(lib, release, cases), strict=True):
            for field, text in _differences(_here(case, release), there):
                told.setdefault(field, f"{case}: {text}")
                n[field] = n.get(field, 0) + 1
        for field, text in told.items():
            yield TableDifference(f"{op}, {field}", f"{n[field]} of {len(cases)} calls; {text}")


def _here(case: Call, release: Release) -> dict[str, Any] | str:
    try:
        return Engine(case, release).fields()
    except GgmlError as error:
        return error.message


def _there(lib: Lib, release: Release, cases: Sequence[Call]) -> list[tuple[dict[str, Any] | str, bool]]:
    """What the library makes of the calls, and whether its CPU and the engine's agree that they run the result."""
    done = each_forked(lib, partial(_made, lib, release), cases)
    return [(made.text, True) if isinstance(made, Abort) else made for made in done]


def _made(lib: Lib, release: Release, case: Call) -> tuple[dict[str, Any], bool]:
    with lib.context() as ctx:
        real = Real(lib, ctx, case)
        theirs = lib.ggml_backend_supports_op(lib.cpu_backend(), real.result)
        return real.fields(), bool(theirs) == _cpu(release).supports_op(Mirror({}).tensor(real.result))


@cache
def _cpu(release: Release) -> Device:
    profile = profiles_of(release)["CPU"]
    return make_device(profile, "CPU", make_buft(profile, "CPU", "CPU"))


def _differences(here: dict[str, Any] | str, there: tuple[dict[str, Any] | str, bool]) -> Iterator[tuple[str, str]]:
    made, cpus_agree = there
    if isinstance(here, str) or isinstance(made, str):
        if here != made:
            yield "refusals", f"{_said(made)}, not {_said(here)}"
        return
    for field, value in here.items():
        if made[field] != value:
            yield field, f"{made[field]!r}, not {value!r}"
    if not cpus_agree:
        yield "the CPU", "it runs the op, or not, otherwise than the engine says"


def _said(made: dict[str, Any] | str) -> str:
    return made if isinstance(made, str) else "a tensor"
