"""A program that computes a build whose memory ggml has freed: `attach` and `ggml` in gdb say so."""

from __future__ import annotations

from tests.attach.conftest import Attach
from tests.attach.in_gdb import session
from tests.attach.programs import python_program
from tests.needs import library, program

library("0.26")
pytestmark = program("gdb", "gdb")

PROGRAM = python_program("--values", "use-after-free", release="0.26")
SAID = "use after free: a points outside the compute buffer that its `buffer` names, which has 4096 bytes"


def flat(text: str) -> str:
    return " ".join(text.split())


def test_attach_names_the_tensor_and_the_remedy(attach: Attach) -> None:
    ran = attach("--verify", "--at", "alloc", "--graph", "3", "--", *PROGRAM)
    said = flat(ran.stderr)
    assert ran.returncode == 2
    assert SAID in said
    assert "reserve the largest graph first" in said


def test_so_does_gdb() -> None:
    stops = ("break ggml_backend_sched_alloc_graph", "run", "continue", "continue")
    said = session(PROGRAM, *stops, "ggml verify", "kill")
    assert SAID in flat(said)
