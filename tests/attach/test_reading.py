"""What is read of a program's memory is what the program itself finds there."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from ggmltool.attach.reading import corrected, read_snapshot
from ggmltool.attach.session import AttachError, AttachSession
from ggmltool.attach.state import Snapshot
from ggmltool.state.memory.tensors import TensorStruct
from ggmltool.structs.layout import layout
from ggmltool.structs.types import Struct
from tests import needs
from tests.attach.recorded import RecordedSession, recorded

pytestmark = needs.program("gdb", "gdb")

FUNCTIONS = ("ggml_backend_sched_reserve", "ggml_backend_sched_alloc_graph")
SAMPLES = ("transformer", "moe", "pipeline", "chunks", "offload")


def snapshots(session: AttachSession) -> Iterator[Snapshot]:
    """The program after each graph that it reserves or allocates."""
    while True:
        try:
            session.stop_at(FUNCTIONS)
        except AttachError:
            return
        function, (sched, graph) = session.function(), session.link.arguments()[:2]
        session.finish()
        yield read_snapshot(session, sched, graph, function, "after")  # type: ignore[arg-type]


def place(s: Snapshot, t: TensorStruct) -> tuple[str | None, int | None, int | None]:
    """A tensor's buffer type, chunk and offset."""
    if not t.buffer:
        return None, None, None
    buffer = s.buffers[t.buffer]
    chunks = {buffer: i for of in s.sched.galloc.buffers for i, buffer in enumerate(of)}
    assert buffer.base is not None
    return s.bufts[buffer.buft].name, chunks.get(t.buffer), t.data - buffer.base


def found(s: Snapshot) -> dict[str, Any]:
    """What was read, as the oracle tells it of its own memory."""
    of_nodes = set(s.graph.nodes)
    backends = [b.name for b in s.backends]
    own = [i for i, node in enumerate(s.sched.graph.nodes) if node in of_nodes]
    nodes = []
    for i, address in enumerate(s.graph.nodes):
        t = s.tensors[address]
        nodes.append(
            {
                "name": t.name.decode("utf-8", "surrogateescape"),
                "op_desc": s.op_names[t.op, t.op_params[0]],
                "type": s.type_names[t.type],
                "ne": list(t.ne),
                "nb": list(t.nb),
                "backend": backends[s.sched.node_backend_ids[own[i]]],
                "use_count": s.graph.use_counts[address],
                "place": place(s, t)[::2],
            }
        )
    splits = [
        {"backend": backends[x.backend_id], "i_start": x.i_start, "i_end": x.i_end, "inputs": len(x.inputs)}
        for x in s.sched.splits
    ]
    return {"nodes": nodes, "splits": splits, "leafs": [place(s, s.tensors[a])[::2] for a in s.graph.leafs]}


def told(plan: dict[str, Any]) -> dict[str, Any]:
    """The same of a plan that the oracle has printed."""
    keys = ("name", "op_desc", "type", "ne", "nb", "backend", "use_count")
    return {
        "nodes": [{k: n[k] for k in keys} | {"place": (n["buffer"], n["offset"])} for n in plan["nodes"]],
        "splits": [
            {k: s[k] for k in ("backend", "i_start", "i_end")} | {"inputs": len(s["inputs"])} for s in plan["splits"]
        ],
        "leafs": [(leaf["buffer"], leaf["offset"]) for leaf in plan["leafs"]],
    }


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_a_snapshot_has_what_the_program_reads_of_itself(release: str, capfd: pytest.CaptureFixture[str]) -> None:
    needs.library(release)
    program = [sys.executable, "-m", "tests.attach.on_library", "--ggml", release, *SAMPLES]
    with AttachSession.launch(program) as session:
        read = list(snapshots(session))
    assert session.wait() == os.EX_OK
    plans = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert len(plans) >= len(read) >= 8
    for snapshot, plan in zip(read, plans[-len(read) :], strict=True):
        assert found(snapshot) == told(plan)
        assert not snapshot.unread


ELSEWHERE = 0x7E00_0000_0000
ADDED = 24
"""Bytes that somebody's own ggml has more in its scheduler, behind n_backends."""


def know(session: RecordedSession, struct_: Struct, added: int = 0, after: str = "") -> None:
    """Let gdb know a struct, with more bytes behind a field than the table has."""
    asked, name = session.link.asked, struct_.name
    asked[json.dumps(["evaluate", f"sizeof(struct {name})"])] = struct_.size + added
    behind = False
    for field, member in (struct_.members or {}).items():
        offset = member.offset + (added if behind else 0)
        asked[json.dumps(["evaluate", f"(unsigned long)&((struct {name} *)0)->{field}"])] = offset
        behind = behind or field == after


def changed() -> RecordedSession:
    """A program whose scheduler has a field more, as its debug information says."""
    session = recorded("0.26")
    types = layout("0.26").structs
    sched = types["ggml_backend_sched"]
    know(session, types["ggml_tensor"])
    know(session, sched, ADDED, after="n_backends")
    data = session.link.read_many([(session.sched, sched.size)])[0]
    cut = (sched.members or {})["backends"].offset
    session.link.put(ELSEWHERE, data[:cut] + struct.pack("<3Q", 1, 2, 3) + data[cut:])
    session.sched = ELSEWHERE
    return session


def test_a_program_without_debug_information_has_no_other_layout() -> None:
    session = recorded("0.20.2")
    session.link.asked = {key: value for key, value in session.link.asked.items() if "sizeof" not in key}
    assert corrected(session.link, "0.20.2") == (None, ())


def test_what_it_tells_as_the_table_does_changes_nothing() -> None:
    session = recorded("0.26")
    for struct_ in layout("0.26").structs.values():
        know(session, struct_)
    types, differ = corrected(session.link, "0.26")
    assert types is not None
    assert not differ


def test_what_tells_of_other_structs_alone_is_not_asked() -> None:
    session = recorded("0.26")
    know(session, layout("0.26").structs["ggml_tensor"], 8)
    assert corrected(session.link, "0.26") == (None, ())


def test_a_struct_that_somebody_changed_is_read_as_it_is() -> None:
    types, differ = corrected(changed().link, "0.26")
    assert types is not None
    assert differ == ("ggml_backend_sched",)
    assert types.structs["ggml_backend_sched"].size == layout("0.26").structs["ggml_backend_sched"].size + ADDED
    known, found = recorded("0.26").snapshot().sched, changed().snapshot().sched
    assert structs.replace(found.graph, address=0) == structs.replace(known.graph, address=0)
    moved = structs.replace(found, address=0, graph=known.graph, split_graphs=())
    assert moved == structs.replace(known, address=0, split_graphs=())
