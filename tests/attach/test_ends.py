"""Programs that die are stopped before, or dumped, and what they die of is explained with the tensor that they mean."""

from __future__ import annotations

import sys

import pytest

from ggmltool.ask.attach.end import EndDocument, abort_view, explain_end
from ggmltool.ask.attach.verified import Stage, verify_written
from ggmltool.attach.end.ending import Ended, ended
from ggmltool.attach.files import emulator
from ggmltool.attach.gdb.link import Dies
from ggmltool.attach.session import AttachSession
from ggmltool.show.table import Style
from tests.attach.programs import core_by_gdb, core_of, output_of
from tests.needs import compiled, library, needs_gcc, needs_gdb

pytestmark = [needs_gcc, needs_gdb]
RELEASES = pytest.mark.parametrize("release", ["0.20.2", "0.26"])
COMPUTE = "ggml_backend_sched_graph_compute_async"


def end_of(arguments: list[str]) -> tuple[Ended, int]:
    """How a program ends, and with which status it does when it is let go before."""
    with AttachSession.launch(arguments) as session:
        session.stop_at(["ggml_abort"])
        end = ended(session)
    return end, session.wait()


def text_of(facts: EndDocument) -> str:
    return abort_view(facts, "the program", Style(160))


@RELEASES
def test_a_preallocated_tensor_ends_in_the_same_words_in_the_plan(
    release: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(compiled(release)), "--abort", "preallocated"]
    end, status = end_of(arguments)
    alone = output_of(arguments)
    seen = capfd.readouterr()
    assert (status, seen.out.encode(), seen.err.encode()) == alone
    facts = explain_end(end)
    assert facts.said in seen.err
    (tensor,) = facts.tensors
    assert (tensor.known_by, tensor.buffer, tensor.op, tensor.node) == ("message", "GPU0", "SILU", 0)
    assert [(a.op, a.memory) for a in tensor.backends] == [(False, True), (True, False)]
    assert facts.plan is not None
    assert facts.plan.same
    assert facts.plan.message == facts.message
    assert any(change.change.endswith("into CPU") for change in facts.changes)
    assert "GPU0: not the op, CPU: not its memory" in text_of(facts)


@RELEASES
def test_a_tensor_without_a_buffer_is_in_a_register_of_the_function(release: str) -> None:
    facts = explain_end(end_of([str(compiled(release)), "--abort", "buffer"])[0])
    assert "tensor buffer not set" in facts.message
    assert facts.calls == ("ggml_backend_tensor_set",)
    # What earlier calls left on the stack may come behind it.
    first = facts.tensors[0]
    assert (first.name, first.known_by, first.buffer) == ("inp", "register", None)
    assert first.holder == "ggml_backend_tensor_set"
    assert facts.meaning is not None
    assert facts.meaning.means == "A tensor without a buffer is written or read."
    assert facts.plan is None


def test_a_device_that_gives_up_is_told_with_its_words_and_the_graph_that_it_computed() -> None:
    facts = explain_end(end_of([str(compiled("0.20.2")), "--abort", "device"])[0])
    assert facts.message == "GPU error: the bus is gone in gpu_mul_mat"
    assert facts.calls[0] == "ggml_backend_sched_graph_compute_async"
    assert (facts.nodes, facts.plan) == (24, None)


def test_memory_that_a_device_did_not_give_is_told_of_the_crash_behind_it() -> None:
    with AttachSession.launch([str(compiled("0.20.2")), "--abort", "memory", "--no-reserve"]) as session:
        with pytest.raises(Dies) as death:
            session.stop_at([COMPUTE])
        facts = explain_end(ended(session, signal=death.value.signal))
    session.wait()
    assert facts.signal == "SIGSEGV"
    assert facts.calls[0] == "ggml_gallocr_alloc_graph"
    assert facts.notes[0].startswith("GPU0 has no buffer of ")
    assert "it gave no memory" in text_of(facts)


SHAPES = """
import ctypes
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import load
load(RELEASES["0.20.2"])
from tests.attach.programs import linked
g = ctypes.CDLL(str(linked("0.20.2").base))
class Init(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]
P, L = ctypes.c_void_p, ctypes.c_int64
g.ggml_init.restype, g.ggml_init.argtypes = P, [Init]
g.ggml_new_tensor_2d.restype, g.ggml_new_tensor_2d.argtypes = P, [P, ctypes.c_int, L, L]
g.ggml_set_name.argtypes = [P, ctypes.c_char_p]
g.ggml_mul_mat.restype, g.ggml_mul_mat.argtypes = P, [P, P, P]
context = g.ggml_init(Init(1 << 16, None, True))
a, b = g.ggml_new_tensor_2d(context, 0, 4, 3), g.ggml_new_tensor_2d(context, 0, 5, 2)
g.ggml_set_name(a, b"weights")
g.ggml_set_name(b, b"tokens")
g.ggml_mul_mat(context, a, b)
"""


def test_shapes_that_do_not_fit_are_told_with_the_tensors_in_hand() -> None:
    library("0.20.2")
    facts = explain_end(end_of([sys.executable, "-c", SHAPES])[0])
    assert facts.message == "GGML_ASSERT(ggml_can_mul_mat(a, b)) failed"
    assert facts.calls == ("ggml_mul_mat",)
    assert {("weights", (4, 3, 1, 1)), ("tokens", (5, 2, 1, 1))} <= {(t.name, t.ne) for t in facts.tensors}
    assert "no graph: it was in no call of a scheduler" in text_of(facts)


def test_a_core_dump_of_a_crash_tells_the_signal_and_the_graph() -> None:
    core = core_of([compiled("0.20.2"), "--crash"])
    if core is None:
        pytest.skip("this system writes core dumps elsewhere: /proc/sys/kernel/core_pattern")
    with AttachSession.core(str(core), str(compiled("0.20.2"))) as session:
        facts = explain_end(ended(session))
    assert facts.signal == "SIGSEGV"
    assert facts.calls[-1].startswith("ggml_backend_sched_graph_compute")
    assert facts.nodes > 20
    assert "It read or wrote where it has no memory." in text_of(facts)


def test_without_unicorn_the_devices_of_a_core_dump_are_deduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "find_spec", lambda _: None)
    with AttachSession.core(str(core_by_gdb([compiled("0.20.2")], COMPUTE)), str(compiled("0.20.2"))) as session:
        assert emulator.NO_UNICORN in session.remarks
        end = ended(session)
    assert end.snapshot is not None
    assert end.written is not None
    assert end.decided is not None
    assert any(
        note.startswith("what the devices are: the last of a scheduler is a CPU") for note in end.snapshot.unread
    )
    assert [backend.name for backend in end.snapshot.backends] == ["GPU0", "CPU"]
    found = verify_written(end.written, end.decided)
    assert found.first is not None
    assert found.first.stage is Stage.MEMORY, "how its memory is aligned is what nobody says now"
