"""Does a case in this process, and says what came of it."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import ggmltool
from ggmltool.cli import errors
from ggmltool.cli.main import cli
from tests.fuzz.case import Case

STATUSES = (0, 1, 2)
LONGEST = 5000
"""Characters of a message."""
_PACKAGE = str(Path(ggmltool.__file__).parent)
_STEERING = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\u202a-\u202e\u2066-\u2069]|\x1b(?!\\[[0-9;]*m)")
"""What must not reach a terminal; our own colours may, and on standard error what draws a bar."""
_RAW = {"man", "sample"}


class TimeUpError(BaseException):
    """The case took too long: nothing that the tool catches."""


class Outcome(NamedTuple):
    """What came of a case: `short` for the statistics; where it is wrong, `place` is what all such cases share."""

    short: str
    place: str = ""
    message: str = ""


def perform(case: Case) -> Outcome:
    """Do it in the current folder, whose files are the case's."""
    for name, content in case.files.items():
        Path(name).write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return _api(case) if case.through == "api" else _line(case)
    finally:
        for name in case.files:
            Path(name).unlink(missing_ok=True)


def place_of(error: BaseException) -> str:
    """`KeyError@scenario/run/run.py:tensor`: the innermost function of ours that the error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(_PACKAGE)]
    if not frames:
        return f"{type(error).__name__}@outside"
    frame = frames[-1]
    return f"{type(error).__name__}@{frame.filename[len(_PACKAGE) + 1 :]}:{frame.lineno}:{frame.name}"


def _wrong(error: BaseException) -> Outcome:
    return Outcome(f"wrong {type(error).__name__}", place_of(error), str(error)[:300])


def _api(case: Case) -> Outcome:
    from ggmltool import GgmlError, ScenarioError

    try:
        _do(case)
    except ScenarioError as error:
        if len(str(error)) > LONGEST:
            return Outcome("long", "a message that is too long", str(error)[:300])
        steering = _STEERING.search(str(error))
        return Outcome("steering", f"{steering[0]!r} in a message") if steering else Outcome("ScenarioError")
    except GgmlError as error:
        return Outcome(type(error).__name__)
    except (Exception, TimeUpError) as error:
        return _wrong(error)
    return Outcome("fine")


def _do(case: Case) -> None:
    """What the case does through the API. Raises what the API does."""
    source: Any = case.name if case.value is None else case.value
    match "scenario" if case.kind == "attached" else case.kind, case.call:
        case "scenario" | "record", "plan":
            ggmltool.load(source).plan().as_dict()
        case "scenario", "reserve":
            repr(ggmltool.load(source).plan(step="reserve"))
        case "scenario", "run":
            ggmltool.load(source).run()
        case "scenario", "compute":
            ggmltool.load(source).compute()
        case "scenario", "steps":  # its own, with values
            scenario = ggmltool.load(source)
            run = scenario.start(values=True)
            for step in scenario.steps():
                run.step(step)
                if run.plans and not run.plans[-1].ok:
                    break
        case "scenario", "given":  # steps that the file does not have
            scenario = ggmltool.load(source)
            name = scenario.graph_name()
            scenario.run([f"reserve {name}", "reset", f"alloc {name}", f"compute {name}", "reset", f"compute {name}"])
        case "gguf", "tensors":
            _tensors(case)
        case "gguf", "compute":
            ggmltool.load("beside.json").compute()
        case "record", "history":  # walked through both ways
            history = ggmltool.open_record(case.name)
            last = len(history.points) - 1
            cursor = history.cursor(last)
            for at in (0, last // 2, last):
                cursor.move_to(at)
                history.stack(at)
                history.changed(at)
                history.cells(at)
        case _:
            _log(case)


def _tensors(case: Case) -> None:
    from ggmltool.scenario.encoded import read_gguf_tensor
    from ggmltool.scenario.errors import Mistake, ScenarioError
    from tests.fuzz.headers import TENSORS

    for name in (*TENSORS, "x"):
        try:
            read_gguf_tensor(Path(case.name), name).values()
        except Mistake as mistake:
            error = ScenarioError(mistake.message)
    raise error


def _log(case: Case) -> None:
    from ggmltool.sources.sched_log.plan import log_plan
    from ggmltool.sources.sched_log.reader import read_all, read_graph, read_summary
    from ggmltool.sources.sched_log.stream import open_log

    with open_log(case.name, case.name) as lines:
        match case.call:
            case "summary":
                read_summary(lines)
            case "graph":
                log_plan(read_graph(lines)[0])
            case "all":
                read_all(lines, lambda graph: (log_plan(graph), None)[1])


class _Stream(io.TextIOWrapper):
    def __init__(self, data: bytes = b"", tty: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="surrogateescape", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined]


@contextmanager
def _streams(case: Case) -> Iterator[tuple[_Stream, _Stream]]:
    kept = sys.stdin, sys.stdout, sys.stderr
    out, err = _Stream(tty=case.tty), _Stream(tty=case.tty)
    sys.stdin, sys.stdout, sys.stderr = _Stream(case.stdin), out, err
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept


@contextmanager
def _described() -> Iterator[list[BaseException]]:
    """The errors that the command line puts into words."""
    seen: list[BaseException] = []
    describe = errors.describe

    def record(error: Exception) -> tuple[str, int]:
        seen.append(error)
        return describe(error)

    errors.describe = record
    try:
        yield seen
    finally:
        errors.describe = describe


def _line(case: Case) -> Outcome:
    with patch.dict(os.environ, COLUMNS="80"), _streams(case) as (out, err), _described() as seen:
        try:
            status = errors.run_and_report(cli, list(case.args))
        except (Exception, SystemExit, TimeUpError) as error:
            return _wrong(error)
    said, told = err.text(), out.text()
    if any(isinstance(error, MemoryError) for error in seen):
        return _wrong(seen[-1])
    if status not in STATUSES or "internal error" in said:
        return _wrong(seen[-1]) if seen else Outcome("status", f"exit status {status}", said[:300])
    if "Traceback" in said:
        return Outcome("traceback", "a traceback on standard error", said[:300])
    if len(said) > 20_000:
        return Outcome("long", f"{case.args[0]}: a message that is too long", said[:300])
    steering = _STEERING.search(said.replace("\r", "").replace("\x1b[K", "")) or (
        _STEERING.search(told)
        if (case.tty or case.kind == "prompt") and case.args[0] not in _RAW and "--raw" not in case.args
        else None
    )
    if steering:
        return Outcome("steering", f"{case.args[0]}: {steering[0]!r} on a terminal", "")
    return Outcome(f"status {status}")
