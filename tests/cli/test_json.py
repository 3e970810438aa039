"""Every JSON document against its schema: read as its structs and written again it is the same, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.views.document import Document, ReleaseDocument
from ggmltool.views.documents import kinds, schema_of
from ggmltool.views.json_text import json_text
from tests.cli.conftest import Call

GOLDEN = Path(__file__).parent / "golden"
VIEWS = GOLDEN.parents[1] / "views" / "golden"
KINDS = kinds()
SCENARIOS = ("matmul", "transformer", "moe", "preallocated", "outgrown", "views", "graph-twice", "chunks", "pipeline")
COMMANDS = (
    "plan", "splits", "splits --by op,backend", "splits --bytes", "splits --pass 2", "splits --pass 5", "graph",
    "graph --sched", "buffers", "buffers --chunks", "buffers --copies", "allocs", "allocs --trace", "hash",
    "hash --sched", "context", "check", "check --all", "supports", "explain split 0", "trace", "run --no-compute",
)  # fmt: skip


def documents() -> list[Path]:
    """The golden files that are documents."""
    files = (*GOLDEN.glob("*json*"), *VIEWS.glob("*json*"))
    return sorted(f for f in files if f.read_bytes().startswith(b'{"ggmltool"') and kind_of(f.read_text()) in KINDS)


def kind_of(text: str) -> str:
    return str(json.loads(text)["kind"])


def read(text: str) -> Document:
    """The document, as the form of its kind that it is written from. Fails where there is none."""
    value = json.loads(text)
    for form in KINDS[value["kind"]]:
        try:
            document = msgspec.convert(value, form, strict=True)
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


@pytest.mark.parametrize("release", RELEASES)
def test_a_document_names_its_release(call: Call, release: str) -> None:
    for command in COMMANDS:
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
