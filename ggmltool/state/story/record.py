"""The inside of a record: points and changes as plain rows, and back.

A row of `points` is the number of the step and, in the middle of it, what was announced: the kind of the event and its
fields in their order. A row of `changes` is an area of the state, where in it, and the new value; without a value there
is no such cell any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
from msgspec.structs import astuple

from ggmltool.ggml import events
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.op import Op
from ggmltool.ggml.state import FreeBlock, HashNodeState, SplitState, TensorState
from ggmltool.ggml.tensor import op_desc_of
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.text.record import RecordFile, damaged, is_record, packed, unpacked
from ggmltool.scenario.text.text import read_bytes
from ggmltool.state.story.history import History
from ggmltool.state.story.points import GONE, START, BackendNames, Point
from ggmltool.version import __version__

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event

BEGINS, ENDS = "begins", "ends"
"""In place of an event: a step begins, or is done."""

EVENTS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in get_args(events.Event)}

_Indices = tuple[int, ...]
_Place = tuple[int, int, int, int]
_Ranges = tuple[tuple[int, int], ...]


_TENSOR = {name: kind for name, kind in get_type_hints(TensorState).items() if name not in ("op_desc", "address")}
_TENSOR["op"] = int
"""The fields of a tensor in the file; `op` is its number in ggml."""

AREAS: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "sched": ((str,), bool | int),
    "id": ((int,), int),
    "cause": ((int,), str | None),
    "copies": ((int,), tuple[_Indices | None, ...]),
    "split": ((int,), SplitState),
    "sched_graph": ((str,), _Indices),
    "node_ids": ((int,), int),
    "leaf_ids": ((int,), int),
    "prev_node_ids": ((int,), int),
    "prev_leaf_ids": ((int,), int),
    "galloc": ((str,), int),
    "hash_node": ((int,), HashNodeState),
    "free": ((int, int), tuple[FreeBlock, ...]),
    "max_size": ((int, int), int),
    "buffer": ((int,), _Ranges | None),
    "node_alloc": ((int,), tuple[_Place, tuple[_Place, ...]]),
    "leaf_alloc": ((int,), _Place),
    "tensor": ((int,), tuple.__class_getitem__(tuple(_TENSOR.values()))),
    "cgraph": ((str, str), _Indices),
}
"""Of each area of the state what its keys are made of, and what its values are."""


class Recorded(msgspec.Struct, frozen=True):
    """What was recorded; `escaped` says that texts that are no UTF-8 are bytes."""

    backends: list[BackendNames]
    points: list[list[Any]]
    changes: list[list[list[Any]]]
    error: dict[str, str | None] | None = None
    escaped: bool = False


def record_bytes(history: History) -> bytes:
    """The file of a history."""
    model = history.scenario.model
    scenario = json.dumps({**dump(model), "ggml": model.ggml}, separators=(",", ":"))
    points: list[list[Any]] = []
    for step, event, ends in history.points:
        points.append([step, ENDS if ends else BEGINS] if event is None else [step, type(event).__name__, *event])
    changes = [[_row_of_change(key, value) for key, value in here] for here in history.changes]
    error = None if history.error is None else dict(history.error)
    recorded = Recorded(list(history.backends), points, changes, error)
    try:
        run = msgspec.msgpack.encode(recorded)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins({field: getattr(recorded, field) for field in recorded.__struct_fields__})
        run = msgspec.msgpack.encode({**_deep(plain, _as_bytes), "escaped": True})
    return packed(RecordFile(history.release, __version__, scenario, history.compute, msgspec.Raw(run)))


def _row_of_change(key: tuple[Any, ...], value: Any) -> list[Any]:
    match key[0]:
        case _ if value is GONE:
            return [*key]
        case "tensor":
            value = [Op[value.op] if name == "op" else getattr(value, name) for name in _TENSOR]
        case "node_alloc":
            value = (astuple(value[0]), [astuple(place) for place in value[1]])
        case "leaf_alloc":
            value = astuple(value)
    return [*key, value]


def open_history(path: str | Path) -> History:
    """The history in a file of a record. Raises ScenarioError for what is none, or cannot be read."""
    raw, shown = read_bytes(path)
    if not is_record(raw):
        raise ScenarioError("this is no record", shown, expected="`ggmltool record` writes one of a scenario")
    return history_of(raw, shown, Path(path))


def history_of(raw: bytes, shown: str, path: Path) -> History:
    """The history in the bytes of a file. Raises ScenarioError."""
    file = unpacked(raw, shown)
    scenario = LoadedScenario(load_spec(path))
    if scenario.model.release.name != file.release:
        raise damaged(shown, ValueError(f"the scenario is of {scenario.model.ggml}, the record of {file.release}"))
    try:
        recorded = msgspec.msgpack.decode(file.run, type=Recorded)
        if recorded.escaped:
            recorded = msgspec.convert(_deep(msgspec.msgpack.decode(file.run), _as_text), Recorded)
        n_steps = len(scenario.model.steps)
        points = [_point(row, n_steps) for row in recorded.points]
        changes = [tuple([_change(row) for row in here]) for here in recorded.changes]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, KeyError, IndexError, ValueError) as error:
        raise damaged(shown, error) from None
    if not points or len(points) != len(changes):
        raise damaged(shown, ValueError(f"{len(points)} points, {len(changes)} changes"))
    return History(scenario, points, changes, file.compute, recorded.backends, recorded.error)


def _point(row: Sequence[Any], n_steps: int) -> Point:
    step, kind, *fields = row
    if type(step) is not int or not START <= step < n_steps:
        raise ValueError(f"there is no step {step!r}")
    if not isinstance(kind, str):
        raise ValueError(f"no event is called {kind!r}")
    if kind in (BEGINS, ENDS):
        return Point(step, None, kind == ENDS)
    return Point(step, msgspec.convert(fields, EVENTS[kind]))


def _change(row: Sequence[Any]) -> tuple[Any, Any]:
    area, *rest = row
    if not isinstance(area, str):
        raise ValueError(f"no area is called {area!r}")
    kinds, value = AREAS[area]
    n = len(kinds)
    if not n <= len(rest) <= n + 1 or any(type(part) is not kind for part, kind in zip(rest, kinds, strict=False)):
        raise ValueError(f"no cell of {area}")
    key = (area, *rest[:n])
    if len(rest) == n:
        return key, GONE
    found = msgspec.convert(rest[n], value)
    match area:
        case "tensor":
            tensor = dict(zip(_TENSOR, found, strict=True))
            op = Op(tensor["op"])
            found = TensorState(**tensor | {"op": op.name, "op_desc": op_desc_of(op, tensor["op_params"])})
        case "node_alloc":
            found = (TensorAlloc(*found[0]), tuple([TensorAlloc(*place) for place in found[1]]))
        case "leaf_alloc":
            found = TensorAlloc(*found)
    return key, found


def _deep(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A value of lists and maps, with what `leaf` makes of each of its parts."""
    if isinstance(value, list | tuple):
        return [_deep(part, leaf) for part in value]
    if isinstance(value, dict):
        return {key: _deep(part, leaf) for key, part in value.items()}
    return leaf(value)


def _as_bytes(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogateescape")
    return value


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
