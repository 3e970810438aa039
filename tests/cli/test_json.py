"""Every JSON document against its schema: read as its structs and written again it is the same, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ggmltool
from ggmltool.ask.reference.schemas import kinds, schema_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.show.document import Document, ReleaseDocument, json_text
from tests.cli.conftest import Call

GOLDEN = Path(__file__).parent / "golden"
VIEWS = GOLDEN.parents[1] / "views" / "golden"
KINDS = kinds()
OTHERS = (
    "backends", "backends --device CUDA0 --device CPU --interface", "ops", "ops soft_max", "ops silu", "types",
    "types q4_K", "types --table gelu --range -2 2 --every 0.5", "types --table exp --at -inf", "sample", "help",
    "help json", "schema", "explain error tensor buffer not set", "explain error xyzzy",
    "explain realloc small large outgrown", "diff matmul transformer", "diff --ggml 0.20.2,2024-01 outgrown",
    "place -ngl 9 gemma-3-270m", "explain kq transformer", "sweep --n-gpu-layers 0,9 gemma-3-270m",
    "lifetime kq ffn_out transformer", "tensor kq transformer", "allocs --free-blocks kq transformer",
    "hash --at kq transformer", "run --watch * matmul", "compare wrong-kernel", "backends --ggml 2024-01 matmul",
    "run --times --ggml 2024-01 matmul", "report --compare moe transformer", "report --compare-ggml 2024-01 matmul",
)  # fmt: skip
LOGS = sorted((Path(__file__).parents[1] / "sources" / "logs").glob("*.log"))
SCENARIOS = ("matmul", "transformer", "moe", "preallocated", "outgrown", "views", "graph-twice", "chunks", "pipeline")
COMMANDS = (
    "plan", "splits", "splits --by op,backend", "splits --bytes", "splits --pass 2", "splits --pass 5", "graph",
    "graph --sched", "buffers", "buffers --chunks", "buffers --copies", "allocs", "allocs --trace", "hash",
    "hash --sched", "context", "check", "check --all", "supports", "explain split 0", "trace", "run --no-compute",
    "report", "report --step reserve",
)  # fmt: skip


def documents() -> list[Path]:
    """The golden files that are documents."""
    files = (*GOLDEN.glob("*json*"), *VIEWS.glob("*json*"))
    return sorted(f for f in files if f.read_bytes().startswith(b'{"ggmltool"'))


def read(text: str) -> Document:
    """The document, as the form of its kind that it is written from. Fails where there is none."""
    value = json.loads(text)
    for form in KINDS[value["kind"]]:
        try:
            # Texts are numbers that are not finite; where they are others, the way back shows it.
            document = msgspec.convert(value, form, strict=False)
        except msgspec.ValidationError as error:
            wrong: object = error
            continue
        if json_text(document) == text:
            return document
        wrong = json_text(document)
    raise AssertionError(wrong)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_a_golden_document_is_what_its_schema_says(path: Path) -> None:
    read(path.read_text("utf-8"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_a_command_prints_is_what_its_schema_says(call: Call, scenario: str) -> None:
    for command in COMMANDS:
        result = call(*command.split(), "--json", scenario)
        if result.out:
            assert isinstance(read(result.out), ReleaseDocument), command


@pytest.mark.parametrize("command", OTHERS)
def test_what_any_command_prints_is_what_its_schema_says(call: Call, command: str) -> None:
    read(call(*command.split(), "--json").out)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_what_is_known_of_a_log_is_what_its_schema_says(call: Call, log: Path) -> None:
    read(call("import", "--json", log).out)
    for command in ("import --graph 1", "plan", "splits", "splits --by op,backend", "splits --bytes"):
        result = call(*command.split(), "--json", log)
        if result.out:
            read(result.out)


@pytest.mark.parametrize("release", RELEASES)
def test_a_document_names_its_release(call: Call, release: str) -> None:
    for command in (*COMMANDS, "explain realloc small large"):
        for scenario in ("matmul", "outgrown"):
            result = call(*command.split(), "--json", "--ggml", release, scenario)
            if result.out:
                document = read(result.out)
                assert isinstance(document, ReleaseDocument)
                assert document.ggml == release, command


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_whole(call: Call, kind: str) -> None:
    schema: dict[str, Any] = json.loads(call("schema", kind).out)
    assert schema == schema_of(kind, KINDS[kind])
    assert schema["$id"] == f"urn:ggmltool:schema:{kind}:1"
    for form in KINDS[kind]:
        part = schema["$defs"][form.__name__]
        assert part["description"]
        assert part["required"][:2] == ["ggmltool", "kind"]
        assert part["properties"]["kind"] == {"enum": [kind], "default": kind}


def test_the_schemas_are_listed(call: Call) -> None:
    listed = json.loads(call("schema", "--json").out)["schemas"]
    assert [row["name"] for row in listed] == ["scenario", *KINDS]
    assert all(row["about"] for row in listed)
    assert "did you mean" in call("schema", "plann").err


def test_the_page_of_the_manual_names_every_kind() -> None:
    page = (Path(ggmltool.__file__).parent / "docs" / "json.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("## Kinds")[2].partition("## Exactness")[0]))
    assert set(KINDS) <= named


def test_every_node_says_what_it_computes(call: Call) -> None:
    rows = json.loads(call("splits", "--json", "moe").out)["splits"]
    assert ("UNARY", "SILU") in {(node["op"], node["op_desc"]) for row in rows for node in row["nodes"]}


def test_a_name_that_ggml_cuts_within_a_character_comes_back(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4], "name": "é" * 40}}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
    }
    printed = call("graph", "--json", "-", stdin=json.dumps(scenario).encode()).out
    assert json.loads(printed)["leafs"][0]["name"] == "é" * 31 + "\udcc3"
    read(printed)
