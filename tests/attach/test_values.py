"""Values that are read of a program while it computes, compared with what the engine makes of the same inputs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ggmltool.attach.eval_callback import EvalCallback
from ggmltool.attach.reading import ProcessReader, read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.write.written import written
from ggmltool.cli.attach_values import ReadValues, ValuesAsked, read_values
from ggmltool.cli.errors import CliError
from tests import needs
from tests.attach.conftest import Attach
from tests.attach.programs import decoding, output_of
from tests.cli.conftest import Call
from tests.needs import compiled, library, needs_gcc
from tests.sources.random_weights import random_model

pytestmark = needs.program("gdb", "gdb")

COMPUTE = "ggml_backend_sched_graph_compute_async"
MOST = 1 << 30


@contextmanager
def reading(program: list[str], *nodes: str, nth: int = 1, most: int = MOST) -> Iterator[ReadValues]:
    """Values of the nth graph that a program computes; the program goes on while they are looked at, to its end."""
    session = AttachSession.launch(program)
    try:
        with session:
            for _ in range(nth):
                session.stop_at([COMPUTE])
            sched, graph = session.link.arguments()[:2]
            before = read_snapshot(session, sched, graph, COMPUTE, "before")
            asked = ValuesAsked(nodes, None, True, None, 10, most)
            with read_values(session, asked, "a program", written(before, None), sched) as values:
                assert ProcessReader(session).sched(sched).callback_eval == before.sched.callback_eval
                session.detach()
                yield values
    finally:
        assert session.wait() == 0


@needs_gcc
@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_a_wrong_kernel_is_found_and_the_program_says_what_it_says_without_us(
    release: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = [str(compiled(release)), "--wrong"]
    with reading(program, nth=2) as values:
        found = values.compared().facts
    assert [n.id for n in found.over] == ["normed-0", "normed-1", "normed-3"]
    assert {n.ran_on for n in found.over} == {"GPU0"}
    assert found.over[0].nmse == pytest.approx(0.25)
    assert capfd.readouterr().out.encode() == output_of(program)[1]


def gemma() -> list[str]:
    library("0.26")
    return decoding(random_model("gemma3"), "2,30,40", "-n", "2")


@needs_gcc
@pytest.mark.parametrize(
    "arguments", ["0.20.2 --no-alloc", "0.20.2 --parallel", "0.26 --no-alloc", "0.26 --parallel", ""]
)
def test_right_kernels_agree(arguments: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Of the program in C, and of a gemma in llama.cpp, the second graph of which computes all nodes."""
    if arguments:
        release, option = arguments.split()
        program, nth, least = [str(compiled(release)), option], 1, 24
    else:
        program, nth, least = gemma(), 2, 100
    with reading(program, nth=nth) as values:
        found = values.compared().facts
    assert len(found.nodes) >= least
    assert not found.over
    assert not found.untold
    assert capfd.readouterr().out.encode() == output_of(program)[1]


@needs_gcc
def test_some_nodes_are_computed_by_themselves(call: Call, tmp_path: Path) -> None:
    with reading([str(compiled())], "act-*", "normed-1", "result") as values:
        assert values.captured.nodes == ["act-0", "normed-1", "act-1", "act-2", "act-3", "result"]
        assert not values.captured.own
        assert not values.compared().facts.over
        values.write(tmp_path / "x.json.gz")
        values.dump(tmp_path / "dumped", force=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dumped", "x.gguf", "x.json.gz"]
    assert np.load(tmp_path / "dumped" / "act-0.npy").shape == (1, 1, 2, 48)
    assert call("compare", "--values", "x.gguf", "x.json.gz").status == 0
    assert call("run", "x.json.gz").status == 0


@needs_gcc
def test_the_command_finds_the_kernel_and_other_commands_find_it_in_what_it_wrote(attach: Attach, call: Call) -> None:
    program = [str(compiled()), "--wrong"]
    status, out, said = attach("--compare", "-o", "x.json.gz", "--dump", "dumped", "--graph", "2", "--", *program)
    assert (status, out.encode()) == (1, output_of(program)[1])
    assert "first node whose own kernel is off: normed-0, node 1, MUL f32[32, 64], by GPU0" in said
    assert "Reading 24 nodes with what they are computed from, 280 KiB" in said
    for told in ("x.gguf", "dumped"):
        result = call("compare", "--json", "--values", told, "x.json.gz")
        document = json.loads(result.out)
        assert (result.status, document["first_bad"]) == (1, "normed-0")
        assert [n["id"] for n in document["nodes"] if not n["ok"]] == ["normed-0", "normed-1", "normed-3"]
        assert (document["untold"], document["unknown"]) == ([], [])
    assert call("run", "x.json.gz").status == 0


@needs_gcc
def test_values_are_shown_where_nobody_says_what_becomes_of_them(attach: Attach) -> None:
    status, out, said = attach("--values", "act-0", "--", compiled())
    assert (status, out.encode()) == (0, output_of([compiled()])[1])
    assert "act-0 · f32 [48, 2] · SILU(node_2 f32[48, 2]) · CPU" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--values", "all", "--at", "alloc"], "leave --at and --count out"),
        (["--values", "all", "--count", "2"], "leave --at and --count out"),
        (["--values", "all", "--json"], "--json of values is what --compare found"),
        (["--values", "all", "--tolerance", "1"], "--tolerance is for --compare"),
        (["-o", "x.gguf"], "A .gguf file holds values: say of which nodes"),
        (["--compare", "-o", "x.txt"], ".txt is not written here"),
        (["--compare", "-o", "x.gguf.gz"], "Values go to .json, .yaml, .yml, .gguf or, the scenario, .json.gz"),
        (["--compare", "--verify"], "leave --verify and --redact out"),
        (["--compare", "--max-bytes", "much"], "--max-bytes must be a size in bytes"),
        (["--compare", "--dump", "nowhere/there"], "the folder nowhere does not exist"),
    ],
)
def test_options_that_make_no_sense_start_no_program(call: Call, arguments: list[str], said: str) -> None:
    result = call("attach", *arguments, "--", "touch", "started")
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert not Path("started").exists()


@needs_gcc
@pytest.mark.parametrize(
    ("nodes", "most", "said"),
    [
        (["normd-1"], MOST, 'the graph has no node "normd-1"; did you mean "normed-1"?'),
        (["inp"], MOST, '"inp" is never computed; the inputs of the nodes that are named are written, too'),
        (
            ["all"],
            1000,
            "the values of 24 nodes take 56 KiB, 49 KiB of it for what they are computed from; at most 1 KiB",
        ),
    ],
)
def test_what_cannot_be_read_is_said_and_the_program_goes_on(
    nodes: list[str], most: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = [str(compiled())]
    with pytest.raises(CliError, match=re.escape(said)), reading(program, *nodes, most=most):
        pass
    assert capfd.readouterr().out.encode() == output_of(program)[1]


@needs_gcc
@pytest.mark.parametrize("after", [0, 3])
def test_the_old_callback_is_back_when_something_goes_wrong(after: int, capfd: pytest.CaptureFixture[str]) -> None:
    program = [str(compiled())]
    with AttachSession.launch(program) as session:
        session.stop_at([COMPUTE])
        sched, graph = session.link.arguments()[:2]
        nodes = ProcessReader(session).graph(graph).nodes
        seen: list[int] = []

        def fail(node: int = 0) -> None:
            seen.append(node)
            if len(seen) > after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            EvalCallback(session, sched).watch(nodes, fail, fail)
        assert len(seen) == after + 1
        names = ("callback_eval", "callback_eval_user_data")
        assert ProcessReader(session).fields("ggml_backend_sched", sched, *names) == [0, 0]
    assert session.wait() == 0
    assert capfd.readouterr().out.encode() == output_of(program)[1]


@pytest.mark.parametrize("release", ["0.20.2"])
def test_devices_in_python_and_a_callback_of_the_program_s_own(release: str, capfd: pytest.CaptureFixture[str]) -> None:
    library(release)
    program = [sys.executable, "-m", "tests.attach.own_callback", release, "wrong-kernel", "a*"]
    with reading(program) as values:
        captured, found = values.captured, values.compared().facts
    assert captured.own
    assert captured.nodes == captured.seen == ["act"]
    assert not found.over
    out, err = capfd.readouterr()
    assert out.encode() == output_of(program)[1]
    assert "an eval callback of its own, which asked for 1 node" in err
