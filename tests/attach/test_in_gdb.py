"""`ggml …` in a gdb of a user's, on real programs, with and without debug information."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attach.in_gdb import transcript
from tests.attach.programs import NoProgram, c_program
from tests.golden import check_golden
from tests.needs import program

pytestmark = program("gdb", "gdb")
GOLDEN = Path(__file__).parent / "golden"
AT_COMPUTE = ("break ggml_backend_sched_graph_compute", "run")


def compiled(release: str = "0.20.2", **how: bool) -> Path:
    """The program of the tests, where there is a compiler and a library."""
    try:
        return c_program(release, **how)
    except NoProgram as missing:
        pytest.skip(str(missing))


def test_structs_are_printed_without_debug_information_and_breakpoints_are_at_nodes() -> None:
    said = transcript(
        [compiled(stripped=True)],
        *AT_COMPUTE,
        "ggml use",
        "ggml print sched->n_splits",
        "ggml p *sched->splits[1].inputs[0]",
        "ggml print ggml_nbytes(graph->nodes[1])",
        "ggml print ggml_backend_name(sched->backends[1])",
        "ggml ptype struct ggml_backend_sched_split",
        "ggml x/4fw graph->nodes[0]",
        "ggml print nix",
        "ggml print *(struct ggml_tensor *) 8",
        "ggml nix",
        "ggml break nix",
        "ggml break node_8",
        "ggml break --alloc normed-0",
        "ggml watch",
        "delete 1",
        "continue",
        "ggml p tensor(\"node_8\")->op",
        "continue",
        "continue",
        "ggml use",
        "kill",
        "ggml use",
    )  # fmt: skip
    check_golden(GOLDEN / "in-gdb.txt", said)
