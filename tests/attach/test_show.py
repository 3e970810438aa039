"""The live views of a program's scheduler and allocator, outside of gdb: as text, and as documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

import ggmltool
from ggmltool.ask.reference.schemas import kinds, schema_of
from ggmltool.attach.session import AttachSession
from tests.attach.conftest import Attach
from tests.attach.in_gdb import steady
from tests.attach.programs import core_by_gdb, output_of
from tests.cli.conftest import Call
from tests.cli.test_json import read
from tests.golden import check_golden
from tests.needs import compiled, needs_gcc, needs_gdb

GOLDEN = Path(__file__).parent / "golden"
PLAIN = "splits,hash,hash --sched,allocs,buffers,graph"
EVERY = ("--show", PLAIN, "--show", "tensor node_8", "--show", "lifetime normed-0")


def document(text: str) -> dict[str, object]:
    """A document that keeps to its schema."""
    read(text)
    found: dict[str, object] = json.loads(text)
    kind = str(found["kind"])
    jsonschema.validate(found, schema_of(kind, kinds()[kind]))
    return found


@needs_gdb
@needs_gcc
def test_the_views_are_those_of_gdb_before_the_call_and_after_it(attach: Attach) -> None:
    program = compiled()
    steadily = (word.replace("hash,hash --sched,", "") for word in EVERY)
    looked = attach(*steadily, "--", program)
    assert (looked.returncode, looked.stdout.encode()) == output_of([program])[:2]
    said = steady(looked.stderr)
    assert said.count("call 1: ggml_backend_sched_alloc_graph · after the call") == 1
    check_golden(GOLDEN / "show.txt", re.sub(r"\n\S* goes on; it stood still.*", "", said))
    before = attach("--before", "--at", "any", "--count", "3", "--show", "splits", "--", program)
    calls = re.findall(r"call (\d): ggml_backend_sched_(\S+) · (\w+) the call", before.stderr)
    assert calls == [("1", "reserve", "before"), ("2", "alloc_graph", "before"), ("3", "graph_compute", "before")]
    assert "The scheduler has not split a graph yet." in before.stderr
    assert "these are the splits of the graph before" in before.stderr
    assert "· 14 splits · scheduler" in before.stderr


@needs_gdb
@needs_gcc
def test_the_document_has_what_the_plan_has(attach: Attach, tmp_path: Path) -> None:
    saved = tmp_path / "x.json.gz"
    looked = attach(*EVERY, "--json", "-o", saved, "--", compiled(), "--iterations", "1")
    program, _, text = looked.stdout.partition('{"ggmltool"')
    assert program.endswith("done\n")
    found = document('{"ggmltool"' + text)
    assert isinstance(found["calls"], list)
    (call,) = found["calls"]
    plan = ggmltool.load(saved).start().alloc("main")
    assert call["state"] == "allocated"
    assert [(s["backend"], s["i_start"], s["i_end"]) for s in call["splits"]] == [
        (s.backend, s.i_start, s.i_end) for s in plan.splits
    ]
    placed = {a["tensor"]: (a["buft"], a["chunk"], a["offset"]) for a in call["allocs"]["nodes"] if a["buft"]}
    planned = {n.name: (n.buffer, n.chunk, n.offset) for n in plan.nodes if n.name in placed}
    assert len(planned) == 24
    assert planned == {name: placed[name] for name in planned}
    assert [t["name"] for t in call["graph"]["nodes"]] == [n.name for n in plan.nodes]
    assert {"node_8", "inp"} <= {slot["tensor"] for slot in call["hash"]["slots"]}
    assert {slot["tensor"]: slot["backend"] for slot in call["sched_hash"]["slots"]}["node_8"] == "GPU0"
    (tensor,) = call["tensors"]
    assert (tensor["name"], tensor["op"], tensor["copies"]) == ("node_8", "MUL_MAT", ["CPU#node_8#0"])
    (lifetime,) = call["lifetimes"]
    assert [owner["tensor"] for owner in lifetime["owners"] if owner["asked"]] == ["normed-0"]


@needs_gdb
@needs_gcc
def test_a_core_dump_has_views(call: Call) -> None:
    core = core_by_gdb([compiled()], "ggml_backend_sched_graph_compute")
    dumped = ("attach", "--core", str(core), str(compiled()))
    assert "14 splits" in call(*dumped, "--show", "splits").out
    shown = document(call(*dumped, "--show", "splits", "--json").out)
    assert isinstance(shown["calls"], list)
    assert [(one["when"], len(one["splits"])) for one in shown["calls"]] == [("within", 14)]
    wrong = call(*dumped, "--show", "tensor nodee_8")
    assert (wrong.status, wrong.err) == (2, 'Error: no tensor is called "nodee_8"; did you mean "node_8"?\n')


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--show", "splitts"], 'there is no view "splitts"; did you mean "splits"?'),
        (["--show", "hash,tensor"], 'there is no view "tensor"'),
        (["--show", "tensor"], "tensor is of a tensor: --show 'tensor NODE'"),
        (["--show", "splits", "--verify"], "leave --verify, --values and --compare out"),
        (["--show", "splits", "--values", "all"], "leave --verify, --values and --compare out"),
        (["--before"], "--before is for --show"),
    ],
)
def test_what_cannot_be_shown_is_said_before_anything_is_started(
    call: Call, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AttachSession, "launch", lambda _: pytest.fail("the program was started"))
    looked = call("attach", *arguments, "--", "true")
    assert looked.status == 2
    assert said in looked.err
