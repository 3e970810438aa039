"""Every JSON document against its schema, and every table of every command as CSV against the command's JSON."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggmltool
from ggmltool.ask.reference.schemas import kinds, schema_of
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.show.csv import cell, parts_of
from ggmltool.show.document import Document, ReleaseDocument, json_text
from tests.cli.conftest import Call
from tests.cli.test_every_command import EVERY, TALKING, line, options

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


def test_the_page_of_the_manual_names_every_kind() -> None:
    page = (Path(ggmltool.__file__).parent / "docs" / "json.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("## Kinds")[2].partition("## Exactness")[0]))
    assert set(KINDS) <= named


def test_a_name_that_ggml_cuts_within_a_character_comes_back(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4], "name": "é" * 40}}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
    }
    printed = call("graph", "--json", "-", stdin=json.dumps(scenario).encode()).out
    assert json.loads(printed)["leafs"][0]["name"] == "é" * 31 + "\udcc3"
    read(printed)


TABULATED = ("transformer", "preallocated", "outgrown", "chunks")


def text_of(written: str) -> str:
    """A text cell read as the manual says: without the apostrophe, then as the inside of a JSON string."""
    bare = written.removeprefix("'")
    read = json.loads('"' + bare.replace('"', '\\"') + '"')
    assert isinstance(read, str)
    return read


def same(written: str, value: Any) -> bool:
    """Whether a cell is this value."""
    if value is None or value == "":
        return written == ""
    return text_of(written) == value if isinstance(value, str) else bool(json.loads(written) == value)


def leaves(row: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """What a JSON row says, each with its keys; not its lists of objects."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{before}{key}.")
        elif not (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield before + key, value


def rows_of(around: dict[str, Any], path: list[str], by_key: bool) -> list[dict[str, Any]]:
    """The rows of a table of a document, without what is said of the rows around them; `by_key` for an object whose
    values are the rows."""
    key, *rest = path
    found = around.get(key)
    if found is None:
        return []
    if isinstance(found, dict) and by_key:
        found = [{"key": k, **v} if isinstance(v, dict) else {"key": k, "value": v} for k, v in found.items()]
    items = found if isinstance(found, list) else [found]
    return [row for item in items for row in rows_of(item, rest, by_key)] if rest else items


def check(call: Call, *words: object) -> int:
    """Every table of a command; how many there are."""
    printed = call(*words, "--json")
    if not printed.out or "--csv" not in {opt for option in options(str(words[0])) for opt in option.opts}:
        return 0
    document = json.loads(printed.out)
    forms = [parts_of(form) for form in KINDS[document["kind"]]]
    names = {name for parts in forms for name, part in parts.items() if part.is_table}
    there = [name for name in sorted(names) if name.partition(".")[0] in document]
    for name in there:
        result = call(*words, "--csv", "--rows", name)
        assert (result.status, result.err) == (printed.status, printed.err)
        mapping = any(parts[name].is_mapping for parts in forms if name in parts)
        check_table(result.out, rows_of(document, name.split("."), mapping))
    main = call(*words, "--csv")
    assert (main.status, main.err) == (printed.status, printed.err)
    assert main.out.endswith("\r\n")
    return len(there)


def check_table(out: str, rows: list[dict[str, Any]]) -> None:
    head, *written = csv.reader(io.StringIO(out, newline=""), strict=True)
    assert len(set(head)) == len(head)
    assert out.count("\r\n") == len(written) + 1 == len(rows) + 1
    assert not re.search("[^\r\n\x20-\x7e\xa0-\U0010ffff]", out)
    for cells, row in zip(written, rows, strict=True):
        by_column = dict(zip(head, cells, strict=True))
        told = dict(leaves(row))
        for key, value in told.items():
            if key in by_column:
                assert same(by_column[key], value), (key, by_column[key], value)
            else:
                assert value in (None, []), (key, value)
        around = {column.rpartition(".")[0] for column in head} if len(told) < len(head) else set()
        for column, written_cell in by_column.items():
            outer = any(column.startswith(f"{name}.") for name in around)
            assert column in told or outer or not written_cell, column


@pytest.mark.parametrize("scenario", TABULATED)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_has_the_rows_and_numbers_of_the_json(call: Call, command: str, scenario: str) -> None:
    check(call, *command.split(), scenario)


@pytest.mark.parametrize("command", [c for c in OTHERS if "page" not in c])
def test_every_other_command_has_the_rows_of_its_json_too(call: Call, command: str) -> None:
    check(call, *command.split())


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_what_is_known_of_a_log_is_a_table(call: Call, log: Path) -> None:
    assert check(call, "import", log)
    check(call, "plan", log)


@EVERY
def test_a_csv_file_is_one_in_every_command(call: Call, name: str) -> None:
    formats = {choice for o in options(name) if o.name == "format" for choice in o.type.to_info_dict()["choices"]}
    if "csv" not in formats:
        assert name in TALKING or not formats & {"text", "table"}, "it prints tables"
        if any("--output" in option.opts for option in options(name)):
            result = call(*line(name), "-o", "out.csv")
            assert (result.status, ".csv is not written here" in result.err) == (2, True)
        return
    wanted = call(*line(name), "--csv").out
    assert next(csv.reader(io.StringIO(wanted)))
    assert call(*line(name), "-f", "csv").out == wanted
    assert call(*line(name), "-o", "out.csv").err == "Wrote out.csv\n"
    assert Path("out.csv").read_bytes().decode() == wanted
    call(*line(name), "-o", "out.csv.gz")
    assert gzip.decompress(Path("out.csv.gz").read_bytes()).decode() == wanted


def test_the_table_of_splits_has_what_the_text_has(call: Call) -> None:
    """N15."""
    head, *rows = list(csv.reader(io.StringIO(call("splits", "--csv", "transformer").out)))
    assert head == ["id", "backend", "i_start", "i_end", "last", "count", "nbytes", "copied", "ops"]
    assert rows[1] == ["1", "CPU", "23", "28", "27", "5", "2048", '["norm2"]', '["3 MUL_MAT","1 MUL","1 SWIGLU"]']


def test_a_table_is_exact_and_never_cut(call: Call) -> None:
    narrow = call("plan", "--csv", "transformer", columns=20, tty=True).out
    assert narrow == call("plan", "--csv", "transformer").out.replace("\r\n", "\n")
    assert 'norm,norm,RMS_NORM,RMS_NORM,f32,"[64,8,1,1]"' in narrow
    assert "\x1b" not in call("plan", "--csv", "--color", "always", "transformer", tty=True).out


def test_the_header_is_there_without_rows(call: Call) -> None:
    assert call("splits", "--bytes", "--csv", "matmul").out == "split,id,what,from,to,nbytes,nbytes_max\r\n"
    inputs = call("splits", "--csv", "--rows", "splits.inputs", "matmul").out
    assert inputs.endswith("splits.last,splits.count,splits.nbytes,id,nbytes,nbytes_max\r\n")


HOSTILE = (
    '=HYPERLINK("http://x","y")',
    "+1",
    "-1+1",
    "@SUM(A1)",
    " =1",
    "'quoted",
    'q"u,o',
    "\\n",
)


def test_a_name_is_no_formula_and_comes_back(call: Call) -> None:
    nodes = {name: {"op": "sqr", "src": ["x"]} for name in HOSTILE}
    scenario = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4]}}}},
        "graphs": {"main": {"nodes": nodes}},
    }
    data = json.dumps(scenario).encode()
    ids = [row["id"] for row in json.loads(call("plan", "--json", "-", stdin=data).out)["nodes"]]
    assert set(ids) == set(HOSTILE)
    out = call("plan", "--csv", "-", stdin=data).out
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert [text_of(row["id"]) for row in rows] == ids
    assert not any(value.lstrip().startswith(("=", "+", "-1+", "@")) for row in rows for value in row.values())
    assert len(out.split("\r\n")) == len(HOSTILE) + 2


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    written = cell(text)
    assert text_of(written) == text
    assert written.isprintable() or not written
    assert not written.lstrip(" ").startswith(("=", "+", "@"))
