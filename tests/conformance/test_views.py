"""What the views show and the real library has too: its structs, its own graph and table, its buffers, its calls."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ggmltool
from ggmltool import oracle
from ggmltool.ask.tensor.gdb import struct_text
from ggmltool.ask.tensor.record import GdbFacts
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import signed
from ggmltool.oracle import run_on
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import Tensor
from ggmltool.oracle.tensors import Builder
from ggmltool.scenario.samples import sample_name
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.cli.conftest import Call
from tests.conformance.releases import release_of

REFUSED = "preallocated"
SIMULATED = ["missing-op", "pipeline", "chunks", "outgrown", "allocator", "views", "inplace"]
"""Samples on devices that the library's stand-in plays as the engine does."""


def structs(lib: Lib, model: ScenarioSpec, graph: str) -> dict[str, tuple[Any, ...]]:
    """The fields of every tensor's struct before anything is allocated, sources as ids."""
    builder = Builder(lib)
    known: dict[str, int] = {}
    tensors = [*model.tensors(), *model.graphs[graph].nodes]
    made = builder.context(len(tensors), len(tensors) + 1)
    builder.tensors(made, tensors, known)
    builder.graph(made, model.graphs[graph], known, len(tensors) + 1)
    found = {}
    for id, address in known.items():
        t = Tensor.from_address(address)
        src = [builder.ids.get(p, "") for p in t.src]
        root = builder.ids.get(t.view_src, "")
        found[id] = (
            t.type, (*t.ne,), (*t.nb,), t.op, (*t.op_params,), t.flags, src, root, t.view_offs,
            ctypes.string_at(address + Tensor.name.offset, Tensor.name.size),
        )  # fmt: skip
    return found


def of_gdb(text: str, ids: list[str]) -> tuple[Any, ...]:
    """The same fields out of gdb's text, where an address is 1 and a tensor's number in `ids`."""

    def array(name: str) -> list[str]:
        inside = re.search(rf"\b{name} = {{(.*?)}}", text)
        assert inside is not None
        values = []
        for item in inside[1].split(", "):
            value, *more = item.split(" ", 1)
            values += [value] * (int(re.findall(r"\d+", more[0])[0]) if more else 1)
        return values

    def one(name: str) -> str:
        found = re.search(rf"\b{name} = ([^,}}]*)", text)
        assert found is not None
        return found[1]

    def id_of(pointer: str) -> str:
        return ids[int(pointer, 16) - 1] if int(pointer, 16) else ""

    name = re.search(r"name = (.*), extra", text)
    assert name is not None
    zeros = sum(map(int, re.findall(r"'\\000' <repeats (\d+) times>", name[1])))
    quoted = re.search(r'"((?:[^"\\]|\\.)*)"', name[1])
    chars = re.sub(
        rb"\\(\d{3}|.)",
        lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else m[1],
        quoted[1].encode() if quoted else b"",
    )
    return (
        TYPES[one("type").removeprefix("GGML_TYPE_").lower().replace("_k", "_K")].id,
        tuple(map(int, array("ne"))),
        tuple(map(int, array("nb"))),
        Op[one("op").removeprefix("GGML_OP_")].value,
        tuple(map(int, array("op_params"))),
        int(one("flags")),
        [id_of(p) for p in array("src")],
        id_of(one("view_src")),
        int(one("view_offs")),
        chars + b"\0" * (zeros + 1 if zeros else 64 - len(chars)),
    )


def test_a_tensor_in_gdbs_layout_has_the_fields_of_the_librarys_struct(sample: Path, lib: Lib) -> None:
    loaded = ggmltool.load(sample, ggml=release_of(lib).name)
    graph = loaded.graph_name()
    theirs = lib.run_forked(lambda: structs(lib, loaded.model, graph))
    assert not isinstance(theirs, Abort), theirs
    run = loaded.start()
    run.build(graph)
    table = {t.id: t for t in run.newest[graph][1]}
    ids = list(table)
    assert set(theirs) == set(ids)
    for id, t in table.items():
        src = tuple(0 if x is None else ids.index(x.id) + 1 for x in t.src)
        viewed = 0 if t.view_src is None else ids.index(t.view_src.id) + 1
        facts = GdbFacts(release_of(lib).struct_fields("ggml_tensor"), src, viewed, 0, t.flags, False, 0)
        row = SimpleNamespace(
            **{name: getattr(t, name) for name in ("name", "ne", "nb", "view_offs", "data")},
            type=t.type.name, op=Op(t.op).name, op_params=[signed(word) for word in t.op_params],
        )  # fmt: skip
        text = struct_text(row, facts, 100).replace("\n ", "")  # type: ignore[arg-type]
        assert of_gdb(text, ids) == theirs[id], id


def test_the_schedulers_graph_and_table_are_those_of_the_library(call: Call, sample: Path, lib: Lib) -> None:
    if sample_name(sample) == REFUSED:
        pytest.skip("the scenario is one on which ggml fails")
    release = release_of(lib).name
    loaded = ggmltool.load(sample, ggml=release)
    model = loaded.model
    model.steps[:] = [Step("alloc", loaded.graph_name())]
    (real,) = run_on(lib, [model], debug=0, values=False, states=True)
    (state,) = real.states
    assert state.sched is not None
    graph = json.loads(call("graph", "--sched", "--json", "--ggml", release, sample).out)
    for name in ("nodes", "leafs"):
        theirs = [state.tensors[t] for t in getattr(state.sched.graph, name)]
        assert [(t["name"], t["op"], t["ne"]) for t in graph[name]] == [(t.name, t.op, list(t.ne)) for t in theirs]
    shown = json.loads(call("hash", "--sched", "--json", "--ggml", release, sample).out)
    assert shown["size"] == state.sched.hash_set.size
    ours = {t["tensor"]: t["backend"] for t in shown["tensors"]}
    names = [b.name for b in model.backends]
    ids, table = state.sched.tensor_backend_ids, state.sched.hash_set.keys & state.tensors.keys()
    backends = {state.tensors[t].id: names[ids[t]] if t in ids else None for t in table if state.tensors[t].id}
    assert {id: ours[id] for id in backends} == backends


@pytest.mark.parametrize("name", SIMULATED)
def test_chunks_and_calls_are_those_that_the_library_asks_its_devices_for(call: Call, name: str, release: str) -> None:
    model = ggmltool.load(name, ggml=release).model
    real = oracle.run(model)
    lines = call("trace", "--ggml", release, name).out.splitlines()
    found = [re.search(r"ggml_backend_(synchronize|graph_compute)(?:_async)?\((\w+)\)", line) for line in lines]
    shown = [f"{match[1]} {match[2]}" for match in found if match]
    asked = [line.split(" [")[0] for line in real.trace if line.startswith(("synchronize", "graph_compute"))]
    assert shown == asked
    assert any(line.startswith("graph_compute") for line in shown)
    made = [int(line.split()[2]) for line in real.trace if line.startswith("alloc_buffer GPU0")]
    chunks = json.loads(call("buffers", "--chunks", "--json", "--ggml", release, name).out)["chunks"]
    sizes = [chunk["size"] for chunk in chunks if chunk["backend"] == "GPU0"]
    assert "".join(f" {n}" for n in sizes) in "".join(f" {n}" for n in made)
    assert bool(sizes) == bool(made)
