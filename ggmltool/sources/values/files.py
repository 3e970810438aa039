"""Values that another backend computed: a folder of npy files, a GGUF file, what llama.cpp's eval callback prints.

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

import json
import math
import os
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ggmltool.ggml.tensor import Dims, Tensor, cut_name, op_desc
from ggmltool.scenario.data import check_npy_file, read_npy
from ggmltool.scenario.encoded import check_gguf_file, gguf_tensors
from ggmltool.scenario.errors import Mistake, ScenarioError
from ggmltool.scenario.spec import ScenarioSpec, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tensors_by_name(model: ScenarioSpec, graph: str) -> dict[str, TensorSpec]:
    """The tensors of the contexts and the nodes of a graph by every name that they go by.

    Several nodes may have one name in ggml: the first of them is `name`, the others are `name~2`, `name~3` …, as
    `capture` and `run --dump` call them. Ids go first.
    """
    specs = [*model.graphs[graph].nodes, *model.tensors()]
    out = {t.id: t for t in specs}
    seen: dict[str, int] = {}
    for t in specs:
        seen[t.name] = seen.get(t.name, 0) + 1
        out.setdefault(t.name if seen[t.name] == 1 else f"{t.name}~{seen[t.name]}", t)
    return out


def matched(names: Iterable[str], known: Mapping[str, TensorSpec]) -> tuple[dict[str, str], list[str]]:
    """The name of each tensor's values by its id, and the names that no tensor goes by."""
    found: dict[str, str] = {}
    unknown = []
    for name in names:
        t = known.get(name)
        if t is None:
            unknown.append(name)
        else:
            found.setdefault(t.id, name)
    return found, unknown


MANIFEST = "manifest.json"
"""What says which tensor a file is of, in a folder that `run --dump` wrote."""

MAX_FILES = 100_000
_LARGEST_MANIFEST = 64 << 20

Read = Callable[[], "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class TensorFiles:
    """What files tell of a graph: how to read the values of tensors, by their ids, and names that it does not have."""

    values: Mapping[str, Read]
    unknown: list[str]


def read_values(path: Path, model: ScenarioSpec, graph: str) -> TensorFiles:
    """The values of a graph's tensors in a folder of npy files or in a GGUF file; shapes are checked, nothing is read.

    Raises ScenarioError for what is neither, has no tensor of the graph, or one of another shape.
    """
    known = tensors_by_name(model, graph)
    source = str(path)
    try:
        if path.is_dir():
            files = _npy_files(path)
            found, unknown = matched(files, known)
            for id, name in found.items():
                file = files[name]
                _check_shape(file.name, id, tuple(reversed(check_npy_file(file, file.name))), known[id].ne)
            values = {id: partial(_read, partial(read_npy, files[name]), known[id].ne) for id, name in found.items()}
        else:
            check_gguf_file(path, path.name)
            tensors = gguf_tensors(path)
            found, unknown = matched(tensors, known)
            for id, name in found.items():
                _check_shape(path.name, name, tensors[name].ne, known[id].ne)
            values = {id: partial(_read, tensors[name].values, known[id].ne) for id, name in found.items()}
    except Mistake as mistake:
        raise ScenarioError(mistake.message, source, None, mistake.expected) from None
    if not any(n.id in values for n in model.graphs[graph].nodes):
        hint = "files are NAME.npy, tensors NAME, by the names of ggml's tensors: ffn_out-0, Qcur-0, Qcur-0~2 …"
        raise ScenarioError(f"there are no values of a node of graph {graph}", source, None, hint)
    return TensorFiles(values, unknown)


def _npy_files(folder: Path) -> dict[str, Path]:
    """The npy files of a folder by the names of their tensors: those of the manifest, else the files' own."""
    named = _manifest(folder)
    if named:
        return named
    files = sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".npy"))
    if len(files) > MAX_FILES:
        raise Mistake(f"{len(files)} npy files are too many; the limit is {MAX_FILES}")
    if not files:
        raise Mistake("there is no npy file in this folder", "one file a tensor, NAME.npy")
    return {unquote(Path(f).name.removesuffix(".npy"), errors="surrogateescape"): Path(f) for f in files}


def _manifest(folder: Path) -> dict[str, Path]:
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise ValueError
        tensors = json.loads(path.read_text(encoding="utf-8"))["tensors"]
        files = {str(t["id"]): folder / Path(str(t["file"])).name for t in reversed(tensors)}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Mistake(
            f"{MANIFEST} is not one that `run --dump` writes", "remove it to go by the files' names"
        ) from None
    return {id: file for id, file in files.items() if file.is_file()}


def _read(make: Callable[[], NDArray[Any]], ne: Dims) -> NDArray[Any]:
    """The values as the engine has them: floats as float32, integers as they are."""
    import numpy as np

    values = make().reshape(ne[::-1])
    return np.array(values, dtype=np.float32) if values.dtype.kind == "f" or values.dtype.kind == "V" else values


def _check_shape(file: str, name: str, found: tuple[int, ...], ne: Dims) -> None:
    """Refuse an array that is not the tensor's: its shape is `ne` reversed, with dimensions of 1 at will, or flat."""
    total = ne[0] * ne[1] * ne[2] * ne[3]
    wide = [n for n in ne if n != 1]
    if [n for n in found if n != 1] == wide or found == (total,):
        return
    shape, expected = list(reversed(found)), [n for n in reversed(ne) if n != 1] or [1]
    hint = f"the shape is ne reversed: {expected}"
    if sorted(n for n in found if n != 1) == sorted(wide):
        hint += "; transpose it"
    raise Mistake(f"{file}: the values of {name} have the shape {shape}", hint)


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

    def lines(stream: Iterable[bytes]) -> Iterator[str]:
        for raw in stream:
            if progress is not None:
                progress(len(raw))
            yield raw[:_LONGEST_LINE].decode("utf-8", "replace")

    with path.open("rb") as stream:
        log = parse_eval_log(lines(stream))
    if not log.entries:
        hint = (
            "llama-eval-callback prints it: `ggml_debug: norm-0 = (f32) NORM(…) = {…}` and the first and last elements"
        )
        raise ScenarioError("there is no node in this log", str(path), None, hint)
    return log


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
                if levels:
                    done = levels.pop()
                    if levels:
                        levels[-1].append(done)
                    elif self._i3 < self.entry.ne[3]:
                        self._place(done)
                        self._i3 += 1
            elif levels and (token == _LEFT_OUT or len(levels) == len(self.entry.ne) - 1):
                levels[-1].append(token)

    def _place(self, planes: list[object]) -> None:
        ne = self.entry.ne
        for i2, rows in _numbered(planes, ne[2]):
            for i1, row in _numbered(rows, ne[1]):
                start = ((self._i3 * ne[2] + i2) * ne[1] + i1) * ne[0]
                for i0, value in _numbered(row, ne[0]):
                    if isinstance(value, str):
                        self.entry.points.append((start + i0, float(value)))
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
        why = f"the log begins with {next(iter(unknown), '')}; is it of another model?"
        found = next(((name, ne) for name, ne in unknown.values() if name in shapes), None)
        if found is not None:
            name, ne = found
            why = (
                f"{name} has ne {list(ne)} in the log and {list(shapes[name])} in the graph: capture the graph of the "
                "same prompt and context (`capture --prompt`, -c, -fa)"
            )
        raise ScenarioError(f"no node of this log is in graph {graph}", source, None, why)
    return LogNodes(samples, list(unknown))


@dataclass(frozen=True, slots=True)
class Sample:
    """Some elements of a tensor as they were printed: `at` their numbers (ne[0] fastest) and `values`, each rounded by
    `rounding` at most. `total` is the sum of all elements, added in float32 one after the other (None: not known).
    """

    at: NDArray[Any]
    values: NDArray[Any]
    rounding: float
    total: float | None = None
