"""Lanes in Chrome's Trace Event format, which ui.perfetto.dev opens: a JSON object with one event per line.

Of the two formats that Perfetto reads it is the one that a person and any program can read, too, and chrome://tracing
and speedscope open. Times are microseconds, here with three places: whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ggmltool.inspect.lanes import CALLS, HOST, Lane, Lanes
from ggmltool.show.document import dumped

Event = dict[str, Any]

_PLACES = 1_000
_BEHIND = 1_000
"""A depth that no slice has: what has none comes behind the slices that begin then."""


def perfetto_text(lanes: Lanes) -> str:
    """The drawing as a file for Perfetto."""
    events = ",\n".join(map(dumped, perfetto_events(lanes)))
    about = dumped(_about(lanes))
    return f'{{"displayTimeUnit": "ns",\n"otherData": {about},\n"traceEvents": [\n{events}\n]}}\n'


def _about(lanes: Lanes) -> Event:
    return {
        "ggmltool": 1,
        "kind": "perfetto",
        "scenario": lanes.title,
        "ggml": lanes.ggml,
        "durations": lanes.clock.value,
        "about": lanes.about,
        "graphs_no_step_computes": lanes.planned,
        "error": None if lanes.error is None else dict(lanes.error),
    }


def perfetto_events(lanes: Lanes) -> Iterator[Event]:
    """The events: names of processes and threads first, then everything by its time, what is around before what is
    within."""
    pids = {name: i for i, name in enumerate((HOST, *lanes.backends), 1)}
    tids = _threads(lanes, pids)
    yield from _names(lanes, pids, tids)
    timed = [*_slices(lanes), *_marks(lanes), *_levels(lanes)]
    for *_, lane, event in sorted(timed, key=lambda found: found[:4]):
        yield event | {"pid": pids[lane.process]} | ({"tid": tids[lane]} if lane in tids else {})


def _threads(lanes: Lanes, pids: dict[str, int]) -> dict[Lane, int]:
    """The number of each lane, no two the same: of a process first what is computed, then the copies."""
    found = {s.lane for s in lanes.slices} | {Lane(HOST, CALLS)}
    out: dict[Lane, int] = {}
    for process in (HOST, *lanes.backends):
        threads = sorted((lane for lane in found if lane.process == process), key=lambda lane: _order(lane.thread))
        out.update({lane: tid for tid, lane in enumerate(threads, 1000 * pids[process] + 1)})
    return out


def _order(thread: str) -> tuple[int, int, str]:
    name, _, number = thread.rpartition(" ")
    return (0 if thread == "compute" else 1, int(number), name) if number.isdecimal() else (0, 0, thread)


def _names(lanes: Lanes, pids: dict[str, int], tids: dict[Lane, int]) -> Iterator[Event]:
    for name, pid in pids.items():
        yield _named("process_name", pid, 0, name=name)
        yield _named("process_sort_index", pid, 0, sort_index=pid)
    yield _named("process_labels", pids[HOST], 0, labels=lanes.about)
    for lane, tid in tids.items():
        yield _named("thread_name", pids[lane.process], tid, name=lane.thread)
        yield _named("thread_sort_index", pids[lane.process], tid, sort_index=tid)


def _named(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


_Timed = tuple[int, int, int, int, Lane, Event]
"""When, within how many others, which of them, what comes first of it, where, and the event."""


def _slices(lanes: Lanes) -> Iterator[_Timed]:
    """The slices, right behind each the arrows that touch it: they are its own because it is the innermost then."""
    arrows: dict[int, list[Event]] = {}
    for number, arrow in enumerate(lanes.arrows, 1):
        last = len(arrow.stops) - 1
        for i, stop in enumerate(arrow.stops):
            ph = "s" if i == 0 else "f" if i == last else "t"
            event: Event = {"ph": ph, "name": arrow.name, "cat": "copy", "id": number, "ts": stop.start / _PLACES}
            arrows.setdefault(id(stop), []).append(event | ({"bp": "e"} if i else {}))
    for i, s in enumerate(lanes.slices):
        args = {key: value for key, value in s.args.items() if value is not None}
        event = {"ph": "X", "name": s.name, "cat": s.category, "ts": s.start / _PLACES}
        yield s.start, s.depth, i, 0, s.lane, event | {"dur": (s.end - s.start) / _PLACES, "args": args}
        for k, arrow_event in enumerate(arrows.get(id(s), ()), 1):
            yield s.start, s.depth, i, k, s.lane, arrow_event


def _marks(lanes: Lanes) -> Iterator[_Timed]:
    for i, m in enumerate(lanes.marks):
        args = {key: value for key, value in m.args.items() if value is not None}
        event = {"ph": "i", "s": "t", "name": m.name, "cat": "mark", "ts": m.at / _PLACES, "args": args}
        yield m.at, _BEHIND, i, 0, m.lane, event


def _levels(lanes: Lanes) -> Iterator[_Timed]:
    for i, level in enumerate(lanes.levels):
        event = {"ph": "C", "name": level.name, "ts": level.at / _PLACES, "args": dict(level.values)}
        yield level.at, _BEHIND, i, 1, Lane(level.process, ""), event
