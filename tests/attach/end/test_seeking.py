"""Schedulers and graphs are found in core dumps, and what the devices of a dead program would say is read."""

from __future__ import annotations

import pytest

from ggmltool.ask.attach.verified import verify_written
from ggmltool.attach.end.abort import read_death
from ggmltool.attach.end.ending import ended
from ggmltool.attach.end.found import graph_of, schedulers_dumped, schedulers_held
from ggmltool.attach.files.corefile import read_core
from ggmltool.attach.reading import ProcessReader, read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Snapshot
from tests.attach.programs import core_by_gdb, core_of
from tests.needs import compiled, needs_gcc, needs_gdb

pytestmark = [needs_gcc, needs_gdb]
COMPUTE = "ggml_backend_sched_graph_compute_async"
RELEASES = pytest.mark.parametrize("release", ["0.20.2", "0.26"])


def snapshot(session: AttachSession, sched: int, graph: int) -> Snapshot:
    return read_snapshot(session, sched, graph, None, "within")


@RELEASES
def test_what_is_read_of_a_dead_program_is_what_a_live_one_says(release: str) -> None:
    dumped = core_by_gdb([compiled(release)], COMPUTE)
    with AttachSession.core(str(dumped), str(compiled(release))) as session:
        death = read_death(session.link, read_core(dumped).signal)
        assert death.calls[0] == COMPUTE
        reader = ProcessReader(session)
        sched, graph = session.link.arguments()[:2]
        held = schedulers_held(session.link, reader, death.frames)
        assert [s.address for s in held] == [s.address for s in schedulers_dumped(reader, read_core(dumped))] == [sched]
        assert graph_of(session.link, reader, held[0], death.frames).address == graph
        assert graph_of(session.link, reader, held[0]).address == graph
        dead = snapshot(session, sched, graph)
        end = ended(session)
    assert (len(dead.graph.nodes), len(dead.sched.splits)) == (24, 14)
    assert all(dead.tensors[node].data for node in dead.graph.nodes)
    assert end.written is not None
    assert end.decided is not None
    found = verify_written(end.written, end.decided)
    assert found.first is None
    assert found.fields > 500
    with AttachSession.launch([str(compiled(release))]) as session:
        session.stop_at([COMPUTE])
        live = snapshot(session, *session.link.arguments()[:2])
    session.wait()
    assert [b.name for b in dead.backends] == [b.name for b in live.backends]
    for one, other in zip(dead.devices.values(), live.devices.values(), strict=True):
        assert (one.name, one.description, one.type, one.events) == (
            other.name,
            other.description,
            other.type,
            other.events,
        )
    asked = [[(b.name, b.alignment, b.max_size, b.host) for b in s.bufts.values()] for s in (dead, live)]
    assert asked[0] == asked[1]
    assert all(buffer.base for buffer in dead.buffers.values())
    assert dead.op_names == live.op_names
    assert dead.type_names == live.type_names
    assert dead.unread == ()


def test_an_abort_is_read_from_the_stack_of_a_core_dump() -> None:
    dumped = core_of([compiled("0.20.2"), "--abort", "preallocated"])
    if dumped is None:
        pytest.skip("this system writes core dumps elsewhere: /proc/sys/kernel/core_pattern")
    with AttachSession.core(str(dumped), str(compiled("0.20.2"))) as session:
        death = read_death(session.link, read_core(dumped).signal)
        assert death.signal == "SIGABRT"
        assert death.file.endswith("ggml-backend.cpp")
        assert death.message.endswith("in a buffer (GPU0) that cannot run the operation (UNARY)")
        reader = ProcessReader(session)
        (sched,) = schedulers_held(session.link, reader, death.frames)
        assert len(graph_of(session.link, reader, sched, death.frames).nodes) > 20
