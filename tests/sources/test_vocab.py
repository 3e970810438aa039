"""The likeliest next tokens of a captured prompt, and what text a token is."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from ggmltool.sources.llama.model_file import Vocabulary, read_vocabulary
from tests.cli.conftest import Call

TOKENS = ["<pad>", "\u2581Paris", "<0x0A>", "\u2581a\u2581b", "\x1b[2J", "last"]


@pytest.mark.parametrize(
    ("kind", "piece", "text"),
    [
        ("llama", "\u2581Paris", " Paris"),
        ("llama", "<0x0A>", "\n"),
        ("llama", "<0xE2>", "\ufffd"),
        ("gpt2", "\u0120Paris", " Paris"),
        ("gpt2", "\u00c3\u00a9\u010a", "\u00e9\n"),
        ("gpt2", "<|end|>", "<|end|>"),
        ("gpt2", "\u2581Paris", "\u2581Paris"),
        ("bert", "##ing", "##ing"),
    ],
)
def test_the_text_of_a_token(kind: str, piece: str, text: str) -> None:
    assert Vocabulary(kind, [piece]).text(0) == text
    assert Vocabulary(kind, [piece]).text(1) == ""


def model(path: Path, tokens: list[str] = TOKENS, kind: str = "llama") -> Path:
    """A GGUF file with a vocabulary and an output matrix."""
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model(kind)
    writer.add_uint32("other", 7)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_token_list(tokens)
    weights = np.zeros((len(TOKENS), 4), dtype=np.float32)
    weights[:, 0] = [0, 9, 1, 2, 8, 3]
    writer.add_tensor("output.weight", weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_vocabulary_is_read_from_the_header(tmp_path: Path) -> None:
    found = read_vocabulary(model(tmp_path / "m.gguf"))
    assert found == Vocabulary("llama", TOKENS)
    assert read_vocabulary(tmp_path / "none.gguf") is None
    content = (tmp_path / "m.gguf").read_bytes()
    for n in range(0, 400, 7):
        (tmp_path / "cut.gguf").write_bytes(content[:n])
        read_vocabulary(tmp_path / "cut.gguf")


def scenario(rows: int = 1) -> dict[str, object]:
    weight = {"type": "f32", "ne": [4, 6], "data": {"gguf": "m.gguf", "tensor": "output.weight"}}
    return {
        "ggmltool": 1,
        "meta": {"source": "llama.cpp"},
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": {"output.weight": weight}},
            "inputs": {"tensors": {"x": {"type": "f32", "ne": [4, rows], "data": {"fill": 1}}}},
        },
        "graphs": {"main": {"nodes": {"result_output": "mul_mat(output.weight, x)"}}},
    }


def test_run_says_the_likeliest_next_tokens(call: Call, tmp_path: Path) -> None:
    """U24"""
    model(tmp_path / "m.gguf")
    (tmp_path / "s.json").write_text(json.dumps(scenario()))
    result = call("run", "s.json")
    assert result.status == 0
    shown = result.out[result.out.index("next token") :].splitlines()
    assert shown[0] == "next token · by result_output"
    assert [line.split() for line in shown[3:5]] == [
        ["1", '"', 'Paris"', "9.000", "72.9%"],
        ["4", '"\\x1b[2J"', "8.000", "26.8%"],
    ]
    document = json.loads(call("run", "--json", "s.json").out)
    assert [t["token"] for t in document["next_token"]["likely"]] == [1, 4, 5, 3, 2]
    assert document["next_token"]["likely"][0]["text"] == " Paris"
    (tmp_path / "s.json").write_text(json.dumps(scenario(3)))
    assert "next token · the last of 3 rows of result_output" in call("run", "s.json").out


def test_without_a_vocabulary_of_that_size_there_are_numbers_only(call: Call, tmp_path: Path) -> None:
    model(tmp_path / "m.gguf", TOKENS[:-1])
    (tmp_path / "s.json").write_text(json.dumps(scenario()))
    document = json.loads(call("run", "--json", "s.json").out)
    assert document["next_token"]["likely"][0]["text"] is None
    other = scenario() | {"meta": {}}
    (tmp_path / "s.json").write_text(json.dumps(other))
    assert "next_token" not in json.loads(call("run", "--json", "s.json").out)
