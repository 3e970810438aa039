"""The questions that people bring, asked as they would ask them, and found answered in what the command prints."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import SAMPLES, Call
from tests.sources.library import HAS_LIBRARY, needs_library
from tests.sources.models import cached
from tests.sources.real_models import real

pytestmark = pytest.mark.usefixtures("warmed")

QUESTIONS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("users.yaml").read_text("utf-8"))
MODELS = {"MODEL": cached, "REAL": real}


def given(asked: dict[str, Any]) -> bytes:
    """What a command has on standard input."""
    if "of" not in asked:
        return str(asked.get("in", "")).encode()
    text = (SAMPLES / f"{asked['of']}.yaml").read_text("utf-8")
    for old, new in asked["with"].items():
        assert old in text
        text = text.replace(old, new)
    return text.encode()


def words(line: str) -> list[object]:
    named = [word.partition(":") for word in shlex.split(line)]
    return [MODELS[kind](name) if kind in MODELS else f"{kind}{colon}{name}" for kind, colon, name in named]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda row: row["question"])
def test_a_question_is_answered(call: Call, question: dict[str, Any]) -> None:
    if "needs" in question and not HAS_LIBRARY:
        pytest.skip("needs llama.cpp: the package xllamacpp, of the extra test")
    for name, text in question.get("files", {}).items():
        Path(name).write_text(text, "utf-8")
    for asked in question["asks"]:
        result = call(*words(asked["run"]), stdin=given(asked), columns=asked.get("columns", 110))
        assert result.status == asked.get("status", 0), (asked, result)
        told = " ".join((result.out + result.err).split())
        assert not [part for part in asked.get("says", ()) if part.strip() not in told], told
        assert not [part for part in asked.get("matches", ()) if not re.search(part, told)], told
        assert not [part for part in asked.get("lacks", ()) if part in told], told


ATTENTION = """ggmltool: 1
backends: [{{name: CUDA0, supports: {supports}}}, CPU]
contexts:
  weights: {{buft: CUDA0, usage: weights, tensors: {{w: 'f32[64, 64]'}}}}
  inputs: {{tensors: {{x: {{type: f32, ne: [64, 8], flags: [input]}}}}}}
graphs: {{main: {{nodes: {{q: 'mul_mat(w, x)', kq: 'soft_max(q)', out: 'mul_mat(w, kq)'}}}}}}
"""
RESERVING = "graph_reserve: reserving a graph for ubatch with n_tokens = {:4}, n_seqs =  1, n_outputs = {:4}\n"
REALLOC = """ggml_gallocr_needs_realloc: src 0 (cache_k_l{0}) of node kq-{0} is not valid
ggml_gallocr_reserve_n_impl: reallocating CUDA0 buffer from size {1}.00 MiB to {2}.00 MiB
"""


def test_which_ops_fell_back_to_the_cpu_and_when(call: Call) -> None:
    """llama.cpp 26399: from a log, instead of counting by hand; when, by the nodes of each graph on each backend."""
    log = ""
    for n, supports in ((1, "{except: []}"), (8, "{except: []}"), (512, "{except: [soft_max]}")):
        printed = call("splits", "--no-causes", "-", stdin=ATTENTION.format(supports=supports).encode()).out
        log += RESERVING.format(n, n) + printed
    rows = [" ".join(line.split()) for line in call("import", "-", stdin=log.encode(), columns=110).out.splitlines()]
    assert "1 3 n_tokens = 1, n_seqs = 1, n_outputs = 1 3 – 1 1 2–3 KiB" in rows
    assert "3 15 n_tokens = 512, n_seqs = 1, n_outputs = 512 2 1 3 3 6–9 KiB" in rows
    by = call("splits", "--by", "op,backend", "--graph", "n_tokens = 512", "-", stdin=log.encode(), columns=110).out
    counts = [line.split() for line in by.splitlines()]
    assert ["SOFT_MAX", "–", "1", "1"] in counts
    assert ["MUL_MAT", "2", "–", "2"] in counts


def test_how_often_was_a_graph_reallocated_and_why(call: Call) -> None:
    """llama.cpp 28753, 17617: the lines of a log grouped, the layers of one kind as one."""
    log = "## SPLIT #0: CPU # 0 inputs\n" + "".join(REALLOC.format(i % 4, 10 + i, 11 + i) for i in range(12))
    out = " ".join(call("import", "-", stdin=log.encode(), columns=110).out.split())
    assert "12 2 1 ggml_gallocr_needs_realloc: src 0 (cache_k_l*) of node kq-* is not valid" in out
    assert "CUDA0 12 10.00 MiB 22.00 MiB 22.00 MiB" in out


@needs_library
def test_does_the_compute_buffer_grow_with_the_layers_on_the_gpu(call: Call) -> None:
    """llama.cpp 27953: a column for the compute buffer of each placement."""
    result = call("sweep", cached("llama"), "-c", "2048", "-ngl", "3..6", "--device", "CUDA0:2GiB", "-f", "csv")
    head, *rows = (line.split(",") for line in result.out.splitlines())
    at = head.index("parts.CUDA0.compute")
    assert len(rows) == 4
    assert len({row[at] for row in rows}) == 1


@needs_library
def test_a_split_more_where_the_recurrent_state_and_its_layer_part(call: Call) -> None:
    """llama.cpp 19864: the tensor in the other card's memory that begins the split."""
    options = ("-ngl", "all", "-ts", "1,1", "--device", "CUDA0:1GiB,CUDA1:1GiB", "--margin", "0")
    assert call("place", cached("mamba2"), "-c", "512", *options, "-o", "placed.json").status == 0
    rows = [line.split() for line in call("splits", "--format", "table", "placed.json", columns=160).out.splitlines()]
    (number,) = [row[0][1:] for row in rows if row[1:2] == ["CUDA1"]][:1]
    out = call("explain", "split", number, "placed.json", columns=110).out
    assert re.search(r"(its weight|its memory|cache_r_l\d|blk\.\d)", out.split("\n\n")[1])
    assert "is in CUDA1" in out


@needs_library
def test_the_least_n_cpu_moe_for_a_card_of_6_gb(call: Call) -> None:
    """llama.cpp 27501, ik_llama.cpp 1302: before the model is loaded, for this card, and the line to paste.

    The experts of 39 layers are the least; a part of one more costs less than 1 %, and leaves more room.
    """
    model, *options = (str(real("qwen3-30b-a3b")), "-c", "8192", "-ub", "512", "-ngl", "all", "--device", "CUDA0:6GiB")
    found = json.loads(call("fit", model, *options, "-j", "1", "--json").out)
    (best,) = found["candidates"]
    rules = best["options"]["-ot"].split(",")
    layers = "|".join(map(str, range(39)))
    assert rules == [
        r"blk\.39\.ffn_down_(ch|)exps=CPU", rf"blk\.({layers})\.ffn_(down|gate|gate_up|up)_(ch|)exps=CPU",
    ]  # fmt: skip
    assert best["devices"][0]["left"] >= 1 << 30
    words = shlex.split(found["lines"]["llama-server"])
    assert words[words.index("-ot") + 1] == ",".join(rules)
    assert [call("place", model, *options, "-ncmoe", n).status for n in ("38", "39")] == [1, 0]
