"""Memory that is damaged, or made to hurt: what is read of it is bounded, and refused in one clear way."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterable

import pytest

from ggmltool.attach.reading import ProcessReader
from ggmltool.attach.state import Snapshot
from ggmltool.state.errors import AttachError, NotAsLaidOut
from ggmltool.state.memory import limits
from ggmltool.state.memory.pages import PAGE
from ggmltool.structs.layout import layout
from tests.attach.recorded import RecordedLink, RecordedSession, recorded

RELEASES = ("0.20.2", "0.26")
RECORDED = ("2025-08", "0.13.1", *RELEASES)
ALL_ONES = (1 << 64) - 1
EDGES = (0, 1, 8, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 47, (1 << 63) - 1, ALL_ONES)
MOST_BYTES = 8 << 20
MOST_SECONDS = 20


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """So much is read at most in these tests; it is the same rule with a larger number."""
    monkeypatch.setattr(limits, "BYTES", MOST_BYTES)


def field(session: RecordedSession, tag: str, path: str) -> int:
    """Where a field of a struct begins."""
    struct_, at = layout(session.instance.structs).structs[tag], 0
    *parts, last = path.split(".")
    for part in parts:
        member = (struct_.members or {})[part]
        at += member.offset
        struct_ = layout(session.instance.structs).structs[part if part != "graph" else "ggml_cgraph"]
    return at + (struct_.members or {})[last].offset


def read_or_refused(session: RecordedSession) -> Snapshot | AttachError:
    """What is read; all else than a refusal in words is a mistake of ours."""
    before = time.process_time()
    found: Snapshot | AttachError
    try:
        found = session.snapshot()
    except AttachError as error:
        found = error
    assert session.link.read <= 3 * MOST_BYTES
    assert time.process_time() - before < MOST_SECONDS
    if isinstance(found, AttachError):
        assert 0 < len(str(found)) < 1000
        assert "\n" not in str(found)
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_recorded_is_read_again(release: str) -> None:
    s = recorded(release).snapshot()
    assert [b.name for b in s.backends] == ["GPU0", "GPU1", "CPU"]
    assert s.sched.n_copies == 4
    assert {copy for _, _, _, copy in s.sched.copies()} <= set(s.tensors)
    assert s.sched.graph_size == 2048
    assert all(t.buffer in s.buffers for t in s.tensors.values() if t.buffer)
    assert all(s.op_names[t.op, t.op_params[0]] and s.type_names[t.type] for t in s.tensors.values())
    assert not s.unread


@pytest.mark.parametrize("release", RELEASES)
def test_a_struct_is_read_by_its_fields(release: str) -> None:
    session = recorded(release)
    reader = ProcessReader(session)
    graph = reader.graph(session.graph)
    assert reader.fields("ggml_backend_sched", session.sched, "n_backends") == [3]
    assert reader.fields("ggml_cgraph", session.graph, "n_nodes") == [len(graph.nodes)]
    t = reader.tensor(graph.nodes[0])
    assert reader.fields("ggml_tensor", graph.nodes[0], "ne", "op") == [t.ne, t.op]


@pytest.mark.parametrize(
    ("name", "version", "structs", "backends", "ops"),
    [
        ("2025-08", "0.0.", "2025-08", ["CPU", "CPU"], {"NONE", "MUL_MAT", "RELU", "ADD"}),
        ("0.13.1", "0.13.1", "0.10", ["GPU0", "CPU"], {"NONE", "MUL_MAT", "RMS_NORM", "MUL", "ADD", "SILU"}),
        ("0.20.2", "0.20.2", "0.20.2", ["GPU0", "GPU1", "CPU"], {"NONE", "MUL_MAT", "SILU"}),
        ("0.26", "0.26.0", "0.26", ["GPU0", "GPU1", "CPU"], {"NONE", "MUL_MAT", "SILU"}),
    ],
)
def test_the_structs_are_those_of_the_version_or_those_that_fit(
    name: str, version: str, structs: str, backends: list[str], ops: set[str]
) -> None:
    s = recorded(name).snapshot()
    assert (s.version, s.structs) == (version, structs)
    assert [b.name for b in s.backends] == backends
    assert set(s.op_names.values()) == ops
    real = [d for d in s.devices.values() if d.type == "cpu" and d.description != d.name]
    assert all(d.memory_total and not d.events for d in real)
    assert bool(real) == (name not in RELEASES)
    assert s.sched.node_backend_ids
    assert len(s.sched.galloc.node_allocs) == len(s.sched.graph.nodes)


@pytest.mark.parametrize("release", RECORDED)
@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_are_read_or_refused(release: str, seed: int) -> None:
    dice = random.Random(seed)
    spans = recorded(release).spans
    for _ in range(15):
        session = recorded(release)
        for _ in range(dice.choice((1, 1, 2, 8))):
            address, length = dice.choice(spans)
            at = address + dice.randrange(length)
            if dice.random() < 0.5:
                session.link.put(at - at % 8, struct.pack("<Q", dice.choice((*EDGES, dice.choice(spans)[0]))))
            else:
                session.link.put(at, bytes([dice.randrange(256)]))
        read_or_refused(session)


@pytest.mark.parametrize("n", [-1, 1 << 20, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("of", ["n_nodes", "n_leafs"])
def test_a_graph_with_more_nodes_than_it_has_place_for_is_none(n: int, of: str) -> None:
    session = recorded("0.26")
    session.link.put(session.graph + field(session, "ggml_cgraph", of), struct.pack("<i", n))
    error = read_or_refused(session)
    assert isinstance(error, NotAsLaidOut)
    assert f"has {n} " in str(error)


@pytest.mark.parametrize("slots", [1 << 40, 12345, 2147483659])
def test_a_hash_set_has_one_of_ggmls_sizes(slots: int) -> None:
    session = recorded("0.20.2")
    at = session.sched + field(session, "ggml_backend_sched", "hash_set")
    session.link.put(at, struct.pack("<Q", slots))
    error = read_or_refused(session)
    assert f"has {slots} slots, and that is none of ggml's sizes" in str(error)


def test_sources_that_go_round_in_a_circle_end() -> None:
    session = recorded("0.26")
    reader = ProcessReader(session)
    first, *_, last = reader.graph(session.graph).nodes
    for field_ in ("view_src", "src"):
        session.link.put(first + field(session, "ggml_tensor", field_), struct.pack("<Q", last))
        session.link.put(last + field(session, "ggml_tensor", field_), struct.pack("<Q", first))
    found = read_or_refused(session)
    assert isinstance(found, Snapshot)
    assert found.tensors[first].view_src == last
    assert found.tensors[last].src[0] == first


def test_objects_that_follow_themselves_are_no_arena() -> None:
    session = recorded("0.26")
    whole = session.snapshot()
    tensor = whole.graph.nodes[0]
    (arena,) = (context for context in whole.contexts if tensor in context)
    size = layout("0.26").structs["ggml_object"].size
    session.link.put(arena[1] - size + field(session, "ggml_object", "next"), struct.pack("<Q", arena[0] - size))
    found = read_or_refused(session)
    assert isinstance(found, Snapshot)
    assert arena not in found.contexts
    assert tensor in found.tensors


def test_a_name_without_an_end_is_as_long_as_its_field() -> None:
    session = recorded("0.26")
    node = ProcessReader(session).graph(session.graph).nodes[0]
    session.link.put(node + field(session, "ggml_tensor", "name"), b"\xff" * 64)
    found = read_or_refused(session)
    assert isinstance(found, Snapshot)
    assert found.tensors[node].name == b"\xff" * 64


def test_a_split_of_two_billion_inputs_is_refused() -> None:
    session = recorded("0.26")
    (splits,) = ProcessReader(session).fields("ggml_backend_sched", session.sched, "splits")
    session.link.put(splits + field(session, "ggml_backend_sched_split", "n_inputs"), struct.pack("<i", (1 << 31) - 1))
    assert "2147483647 inputs" in str(read_or_refused(session))


class Everywhere(RecordedLink):
    """Memory that can be read wherever one looks: where nothing was recorded, the same page over and over."""

    page = bytes(PAGE)

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Memory at several places."""
        return [self._read(*span) or self._made(*span) for span in spans]

    def _made(self, address: int, length: int) -> bytes:
        self.read += length
        return (self.page * (length // PAGE + 2))[address % PAGE :][:length]


@pytest.mark.parametrize("word", [0, 1, 0x7F00_0000_0000, 0x0000_7F12_3456_7000, ALL_ONES])
@pytest.mark.parametrize("at", ["sched", "graph", "nowhere"])
def test_memory_that_never_ends_is_read_or_refused(word: int, at: str) -> None:
    session = recorded("0.26")
    session.link = Everywhere(session.link.pages, session.link.calls, session.link.asked)
    session.link.page = struct.pack("<Q", word) * (PAGE // 8)
    if at == "sched":
        session.sched = 0x7E00_0000_0000
    elif at == "graph":
        session.graph = 0x7E00_0000_0000
    else:
        reader = ProcessReader(session)
        for node in reader.graph(session.graph).nodes:
            session.link.put(node + field(session, "ggml_tensor", "src"), struct.pack("<Q", 0x7D00_0000_0000))
    read_or_refused(session)


@pytest.mark.parametrize(
    ("structs", "said"),
    [
        ("2025-03", r"the scheduler of ggml 0\.26\.0 cannot be read with the structs of ggml 2025-03"),
        ("2024-05", "2024-05"),
    ],
)
def test_structs_that_do_not_fit_are_refused_with_what_was_found(structs: str, said: str) -> None:
    session = recorded("0.26")
    session.instance.structs = structs
    with pytest.raises(NotAsLaidOut, match=said):
        session.snapshot()


@pytest.mark.parametrize("release", RELEASES)
def test_no_function_is_called_where_none_can_be(release: str) -> None:
    session = recorded(release)
    session.link.asked['["mappings"]'] = [[1, 2, "r-xp", "elsewhere"]]
    calls, session.link.calls = session.link.calls, {}
    assert calls
    assert isinstance(read_or_refused(session), AttachError)


@pytest.mark.parametrize("release", RELEASES)
def test_of_a_dead_program_is_known_what_needs_no_call(release: str) -> None:
    session = recorded(release)
    mappings = session.link.asked['["mappings"]']
    session.link.asked['["mappings"]'] = [[first, end, "", file] for first, end, _, file in mappings]
    session.link.calls = {}
    alive, dead = recorded(release).snapshot(), session.snapshot()
    assert dead.sched == alive.sched
    assert dead.graph == alive.graph
    assert dead.tensors == alive.tensors
    assert dead.type_names == alive.type_names
    assert dead.op_names == alive.op_names
    assert not any(b.base for b in dead.buffers.values())
    assert all(b.name is b.alignment is None for b in dead.bufts.values())
    assert all(d.name is d.type is d.memory_total is None for d in dead.devices.values())
    assert len(dead.unread) == 1
    assert dead.unread[0].endswith("functions that could not be asked (nobody asked that)")
