"""`ggml …` in a gdb of a user's, on real programs, with and without debug information."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import ggmltool
from tests.attach.in_gdb import SECONDS, session, sourced, transcript
from tests.attach.programs import NoProgram, c_program, environment, python_program
from tests.attach.types_with_debug_information import types
from tests.golden import check_golden
from tests.needs import library, made, program

pytestmark = program("gdb", "gdb")
GOLDEN = Path(__file__).parent / "golden"
GGMLTOOL = (sys.executable, "-m", "ggmltool", "attach")
_SLOT = re.compile(r"( +)\d+(  \S.*)")
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
        "ggml help use",
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


def without_slots(said: str) -> str:
    """The session with the rows of hash sets in the order of their words: slots follow from addresses."""
    out: list[str] = []
    rows: list[str] = []
    for line in said.split("\n"):
        row = _SLOT.fullmatch(line) if rows or (out and out[-1].startswith("  slot  ")) else None
        if row is not None:
            rows.append("     #" + row[2])
            continue
        out += sorted(rows)
        rows = []
        out.append(line)
    return "\n".join(out + sorted(rows))


def test_views_of_the_scheduler_and_its_allocator_are_live() -> None:
    said = transcript(
        [compiled(stripped=True)],
        "break ggml_backend_sched_alloc_graph",
        "run",
        "ggml splits",
        "delete",
        *AT_COMPUTE[:1],
        "continue",
        "ggml splits",
        "ggml hash",
        "ggml hash --sched",
        "ggml allocs",
        "ggml buffers",
        "ggml graph",
        "ggml tensor node_8",
        "ggml tensor sched->splits[1].inputs[0]",
        "ggml tensor 8",
        "ggml tensor sched",
        "ggml tensor nix",
        "ggml lifetime normed-0",
        "ggml splits 1",
    )  # fmt: skip
    check_golden(GOLDEN / "in-gdb-views.txt", without_slots(said))


def test_of_two_ggmls_in_a_process_that_one_is_meant_which_the_program_is_in() -> None:
    library("0.26")
    said = transcript(
        python_program("--values", "moe", release="0.26"),
        "break ggml_backend_sched_graph_compute_async",
        "run",
        "ggml use",
        "ggml splits",
    )
    assert "ggml      0.26.0, structs of 0.26 in " in said
    assert "x              512 B" in said


def test_structs_with_debug_information_are_printed_readably() -> None:
    said = transcript(
        [compiled(stripped=True)],
        "break ggml_backend_sched_graph_compute",
        "run",
        f"add-symbol-file {types('0.20.2')} 0x1000000 -s .bss 0x2000000",
        "set $sched = (struct ggml_backend_sched *) $rdi",
        "set $graph = (struct ggml_cgraph *) $rsi",
        "p *$graph->nodes[2]",
        "p $graph->nodes[2]",
        "p *$graph",
        "p $sched->splits[3]",
        "set print pretty on",
        "p *$sched",
        "p *$sched->galloc",
        "p *$graph->nodes[2]->buffer",
        "p *$graph->nodes[0]->view_src",
        "p *(struct ggml_tensor *) $sched",
        "p *(struct ggml_backend_sched *) $graph",
        "p *(struct ggml_cgraph *) $sched",
        "p *(struct ggml_gallocr *) $graph",
        "p *(struct ggml_backend_sched_split *) $graph",
        "p *(struct ggml_backend_buffer *) $graph",
        "p *(struct ggml_cgraph *) 16",
    )
    known, _, garbage = said.partition("(gdb) p *(struct ggml_tensor *) $sched")
    check_golden(GOLDEN / "in-gdb-printers.txt", known)
    assert "Python Exception" not in garbage
    assert garbage.count("\n$") == 6
    assert len(garbage) < 12_000
    assert garbage.rstrip().endswith("Cannot access memory at address 0x10")


def test_front_ends_show_what_structs_are() -> None:
    program = made(partial(c_program, source="contexts", debug=True))
    console = ["set debuginfod enabled off", f"source {sourced()}", "break in_buffer", "run"]
    asked = ["-enable-pretty-printing", "-var-create t * *tensor", "-var-list-children --all-values t", "-gdb-exit"]
    ran = subprocess.run(
        ["gdb", "-nx", "-q", "-i=mi", *(word for c in console for word in ("-ex", c)), program],
        input="\n".join(asked), env=environment(), capture_output=True, check=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert 'exp="is",numchild="0",value="x f32[10]"' in ran.stdout
    assert 'exp="view_offs",numchild="0",value="0"' in ran.stdout


def test_the_graph_is_saved_explained_and_verified(tmp_path: Path) -> None:
    entered, allocated = tmp_path / "entered.json.gz", tmp_path / "allocated.json.gz"
    said = transcript(
        [compiled(stripped=True)],
        "break ggml_backend_sched_alloc_graph",
        "run",
        "ggml verify",
        f"ggml save {entered}",
        "ggml save",
        f"ggml save {tmp_path}/nowhere/graph.json.gz",
        f"ggml save {tmp_path}/graph.txt",
        "delete",
        "break ggml_backend_tensor_copy",
        "continue",
        "ggml verify",
        "ggml why node_8",
        "ggml why nix",
        f"ggml save {allocated} --redact",
    )
    check_golden(GOLDEN / "in-gdb-plans.txt", said.replace(str(tmp_path), "FOLDER"))
    plans = [ggmltool.load(file).start().alloc("main") for file in (entered, allocated)]
    assert [len(plan.splits) for plan in plans] == [14, 14]
    assert plans[0].nodes[8].name == "node_8"
    assert plans[1].nodes[8].name != "node_8"


OTHER_THREAD = 'python gdb.execute("thread %d" % (3 - gdb.selected_thread().num))'


def test_threads_and_a_core_dump_are_looked_at_in_gdb(tmp_path: Path) -> None:
    said = session(
        [compiled(), "--threads", "2"],
        *AT_COMPUTE,
        "ggml use",
        "set scheduler-locking on",
        OTHER_THREAD,
        "continue",
        "ggml use",
        OTHER_THREAD,
        "ggml use",
        f"generate-core-file {tmp_path / 'core'}",
        "kill",
        f"core-file {tmp_path / 'core'}",
        "ggml splits",
        "ggml p sched->n_splits",
        "ggml tensor node_8",
        "ggml break node_8",
    )
    one, other, again = re.findall(r"^scheduler (0x\w+)$", said, re.MULTILINE)
    assert one == again != other
    assert "14 splits" in said
    assert "\n14\n" in said
    assert "MUL_MAT" in said
    assert "A core dump does not run." in said


def test_the_line_to_source(tmp_path: Path) -> None:
    env = environment(XDG_CACHE_HOME=str(tmp_path))
    line = subprocess.run([*GGMLTOOL, "--gdb"], env=env, capture_output=True, check=True, text=True).stdout
    (file,) = (tmp_path / "ggmltool").iterdir()
    assert line == f"source {file}\n"
