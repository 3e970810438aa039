"""What llama.cpp's eval callback prints: every node with its first and last elements, and the sum of all.

    ggml_debug:                   norm-0 = (f32)       NORM(inp_embd{2560, 1, 1, 1}, }) = {2560, 1, 1, 1}
    [
      [
       [     -0.0181,       0.0272,       0.0272, ...,      -0.0301,       0.0100,      -0.0043],
      ],
    ]
    sum = 8.113212

`llama-eval-callback` printed it as `ggml_debug` from April 2024 on; today it is `common_debug_cb_eval`, also in
`llama-debug`. At first only the first elements were printed, without a sum, then a sum of those that are printed, today
one of all.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.tensor import Dims, Tensor, cut_name, op_desc
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.spec import ScenarioSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ENTRIES = 200_000
MAX_ELEMENTS = 1 << 22
"""Printed elements that are kept of a log, at most."""

_LONGEST_LINE = 1 << 20
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HEAD = re.compile(
    r"\w: {1,80}((?:(?!: ).){0,80}?) = \((\w{1,16})\) {1,40}([A-Z][A-Z0-9_]{1,40})\((.{0,260}?)\}\) = "
    r"\{(\d{1,15}), (\d{1,15}), (\d{1,15}), (\d{1,15})\}"
)
_SUM = re.compile(r"sum = (-?\d{1,60}(?:\.\d{1,20})?|-?nan|-?inf)$", re.IGNORECASE)
_BODY = " \t0123456789[],.eE+-naif"
"""What the lines of elements consist of, behind whatever a program puts before them."""

_BEGIN = re.compile(r"[\[\]]|\.\.\.")
_TOKEN = re.compile(r"\[|\]|\.\.\.|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|-?nan|-?inf", re.IGNORECASE)
_LEFT_OUT = "..."


@dataclass(slots=True)
class EvalEntry:
    """A node of the log: its name, type, op and extents, and the elements that are printed.

    `points` are pairs of an element's number (ne[0] fastest) and its value, rounded to `rounding`; `total` is the sum
    that is printed (None: none), of all elements or, as older programs print it, of the printed ones. `line` is its
    line in the log.
    """

    name: str
    type: str
    op: str
    ne: Dims
    line: int
    points: list[tuple[int, float]] = field(default_factory=list)
    rounding: float = 5e-5
    total: float | None = None

    @property
    def sum_is_of_points(self) -> bool:
        """Whether the sum can be that of the printed elements alone, each of which is rounded."""
        if self.total is None or not self.points or len(self.points) == math.prod(self.ne):
            return False
        slack = self.rounding * len(self.points) + 1e-6 * abs(self.total) + 1e-6
        return abs(sum(value for _, value in self.points) - self.total) <= slack


@dataclass(frozen=True, slots=True)
class EvalLog:
    """The nodes of a log, in its order. `totals_of_points` says that its sums are of the printed elements only.

    `left_out` says that the log has more than is read.
    """

    entries: list[EvalEntry]
    totals_of_points: bool
    left_out: bool


def read_eval_log(path: Path, progress: Callable[[int], None] | None = None) -> EvalLog:
    """Read a log; `progress` hears of the bytes of every line. Raises ScenarioError if no node is in it, OSError."""
    with path.open("rb") as stream:
        log = parse_eval_log(_lines(stream, progress))
    if not log.entries:
        hint = (
            "llama-eval-callback prints it: `ggml_debug: norm-0 = (f32) NORM(…) = {…}` and the first and last elements"
        )
        raise ScenarioError("there is no node in this log", str(path), None, hint)
    return log


def _lines(stream: Iterable[bytes], progress: Callable[[int], None] | None) -> Iterator[str]:
    for raw in stream:
        if progress is not None:
            progress(len(raw))
        yield raw[:_LONGEST_LINE].decode("utf-8", "replace")


def parse_eval_log(lines: Iterable[str]) -> EvalLog:
    """The nodes in the lines of a log; whatever else stands there, or before them in a line, is passed over."""
    entries: list[EvalEntry] = []
    left = MAX_ELEMENTS
    left_out = False
    body = _Body()
    for number, raw in enumerate(lines, 1):
        line = _ANSI.sub("", raw).rstrip()
        head = _HEAD.search(line)
        if head is not None:
            body = _Body()
            left_out = left_out or len(entries) >= MAX_ENTRIES
            if left_out:
                break
            name, type, op, _, *ne = head.groups()
            body = _Body(EvalEntry(name.strip(), type, op, (int(ne[0]), int(ne[1]), int(ne[2]), int(ne[3])), number))
            entries.append(body.entry)
            continue
        if not entries:
            continue
        total = _SUM.search(line)
        if total is not None:
            body.entry.total = float(total[1])
            continue
        elements = line[len(line.rstrip(_BODY)) :]
        begin = _BEGIN.search(elements)
        if begin is not None and left > 0:
            before = len(body.entry.points)
            body.add(elements[begin.start() :])
            left -= len(body.entry.points) - before
            left_out = left_out or left <= 0
    of_points = [e.sum_is_of_points for e in entries if e.total is not None and len(e.points) < math.prod(e.ne)]
    return EvalLog(entries, bool(of_points) and all(of_points), left_out)


class _Body:
    """The brackets below a node's line as they come: i3, i2, i1, and a row of elements in the innermost.

    Elements behind `...` are counted from the end, so a row or a level is placed when it is closed.
    """

    def __init__(self, entry: EvalEntry | None = None) -> None:
        self.entry = entry or EvalEntry("", "", "", (0, 0, 0, 0), 0)
        self._levels: list[list[object]] = []
        self._i3 = 0

    def add(self, text: str) -> None:
        """Take a line's brackets and numbers."""
        levels = self._levels
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token == "[":
                levels.append([])
                if len(levels) > len(self.entry.ne) - 1:
                    levels.clear()
            elif token == "]":
                self._close()
            elif levels and (token == _LEFT_OUT or len(levels) == len(self.entry.ne) - 1):
                levels[-1].append(token)

    def _close(self) -> None:
        if not self._levels:
            return
        done = self._levels.pop()
        if self._levels:
            self._levels[-1].append(done)
        elif self._i3 < self.entry.ne[3]:
            self._place(done)
            self._i3 += 1

    def _place(self, planes: list[object]) -> None:
        ne = self.entry.ne
        for i2, rows in _numbered(planes, ne[2]):
            for i1, row in _numbered(rows, ne[1]):
                start = ((self._i3 * ne[2] + i2) * ne[1] + i1) * ne[0]
                for i0, value in _numbered(row, ne[0]):
                    if isinstance(value, str):
                        self.entry.points.append((start + i0, float(value)))
                        self._see(value)

    def _see(self, value: str) -> None:
        """How many digits behind the point are printed."""
        digits = len(value.partition(".")[2])
        if digits and "n" not in value.lower():
            self.entry.rounding = 0.5 * 10.0**-digits


def _numbered(items: object, n: int) -> Iterator[tuple[int, object]]:
    """What is printed of `n` things, each with its number; those behind `...` are the last ones."""
    if not isinstance(items, list):
        return
    shown = [item for item in items if item != _LEFT_OUT]
    if len(shown) > n:
        return
    gap = items.index(_LEFT_OUT) if _LEFT_OUT in items else len(shown)
    for at, item in enumerate(shown):
        yield (at if at < gap else n - len(shown) + at), item


@dataclass(frozen=True, slots=True)
class LogNodes:
    """What a log tells of a graph's nodes, by their ids, and the names of its nodes that the graph does not have."""

    samples: dict[str, Sample]
    unknown: list[str]


def log_nodes(log: EvalLog, model: ScenarioSpec, graph: str, source: str) -> LogNodes:
    """Match a log's nodes with a graph's by name, op and extents; those that are alike in all of it by their order.

    Of a program that computed the graph several times, the first time counts. Raises ScenarioError if none is in the
    graph.
    """
    import numpy as np

    waiting: dict[tuple[str, str, Dims], deque[str]] = defaultdict(deque)
    shapes: dict[str, Dims] = {}
    for n in model.graphs[graph].nodes:
        t = Tensor(n.type, n.ne, n.nb, n.op, n.op_params)
        name = cut_name(n.name).strip()
        waiting[(name, op_desc(t), n.ne)].append(n.id)
        shapes.setdefault(name, n.ne)
    known = set(waiting)
    samples: dict[str, Sample] = {}
    unknown: dict[str, tuple[str, Dims]] = {}
    for entry in log.entries:
        key = (entry.name, entry.op, entry.ne)
        if key not in known:
            name = f"{entry.name} ({entry.op} {list(entry.ne)})" if entry.name in shapes else entry.name
            unknown.setdefault(name, (entry.name, entry.ne))
        elif waiting[key]:
            points = np.array(entry.points, dtype=np.float64).reshape(-1, 2)
            total = None if log.totals_of_points else entry.total
            at = points[:, 0].astype(np.int64)
            samples[waiting[key].popleft()] = Sample(at, points[:, 1], entry.rounding, total)
    if not samples:
        raise ScenarioError(f"no node of this log is in graph {graph}", source, None, _why(unknown, shapes))
    return LogNodes(samples, list(unknown))


def _why(unknown: dict[str, tuple[str, Dims]], shapes: dict[str, Dims]) -> str:
    for name, ne in unknown.values():
        if name in shapes:
            return (
                f"{name} has ne {list(ne)} in the log and {list(shapes[name])} in the graph: capture the graph of the "
                "same prompt and context (`capture --prompt`, -c, -fa)"
            )
    return f"the log begins with {next(iter(unknown), '')}; is it of another model?"


@dataclass(frozen=True, slots=True)
class Sample:
    """Some elements of a tensor as they were printed: `at` their numbers (ne[0] fastest) and `values`, each rounded by
    `rounding` at most. `total` is the sum of all elements, added in float32 one after the other (None: not known).
    """

    at: NDArray[Any]
    values: NDArray[Any]
    rounding: float
    total: float | None = None
