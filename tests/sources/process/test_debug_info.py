"""Structs are those that the program's own debug information tells, where it differs from the table."""

from __future__ import annotations

import json
import struct

from msgspec import structs

from ggmltool.attach.stopped import corrected
from ggmltool.structs.layout import layout
from ggmltool.structs.types import Struct
from tests.sources.process.recorded import RecordedSession, recorded

ELSEWHERE = 0x7E00_0000_0000
ADDED = 24
"""Bytes that somebody's own ggml has more in its scheduler, behind n_backends."""


def told(session: RecordedSession, struct_: Struct, added: int = 0, after: str = "") -> None:
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
    told(session, types["ggml_tensor"])
    told(session, sched, ADDED, after="n_backends")
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
        told(session, struct_)
    types, differ = corrected(session.link, "0.26")
    assert types is not None
    assert not differ


def test_what_tells_of_other_structs_alone_is_not_asked() -> None:
    session = recorded("0.26")
    told(session, layout("0.26").structs["ggml_tensor"], 8)
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
