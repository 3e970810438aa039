"""What ggml's messages mean: each text of its allocator and scheduler is known, and found however it comes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggmltool.cli.main import COMMANDS
from ggmltool.ggml.messages import MESSAGES, remedy
from ggmltool.ggml.messages.match import find, nearest
from ggmltool.ggml.version import VERSION

ENGINE = Path(__file__).parents[2] / "ggmltool" / "ggml"
SOURCE = json.loads((Path(__file__).parent / "messages_0_20_2.json").read_text())
TEXTS = [tuple(row) for row in SOURCE["texts"]]
"""Every GGML_ASSERT, GGML_ABORT and log call of ggml-alloc.c and ggml-backend.cpp: file, function, kind, text."""
BEFORE = [tuple(row) for row in json.loads((Path(__file__).parent / "messages_before.json").read_text())["texts"]]
"""Texts of allocator and scheduler in the ggml of January 2024 and of 2025: era, kind, text."""
WORDS = {"%s": "blk.0_x", "%zu": "4096", "%d": "7", "%5.5s": "CPU", "%8.8s": "1.dst", "%zx": "ff"}


def keys_of(text: str) -> set[str]:
    return {key for key, m in MESSAGES.items() if text in m.texts}


def printed(function: str, kind: str, text: str) -> str:
    """The text as a program of today prints it."""
    if kind == "assert":
        return f"/src/ggml/src/ggml-backend.cpp:1234: GGML_ASSERT({text}) failed"
    filled = re.sub(r"%[-0-9.]*(?:zu|zx|[sdf])", lambda m: WORDS.get(m[0], "12.00"), text.replace("%s: ", "", 1))
    head = f"{function}: " if text.startswith("%s: ") else ""
    place = "ggml-alloc.c:99: " if kind == "abort" else "0.00.123.456 W "
    return place + head + filled


def test_the_list_is_of_this_release() -> None:
    assert SOURCE["ggml"] == VERSION
    assert len(TEXTS) > 200
    assert {file for file, *_ in TEXTS} == {"ggml-alloc.c", "ggml-backend.cpp"}


@pytest.mark.parametrize("row", TEXTS, ids=lambda row: f"{row[1]}: {row[3][:40]}")
def test_every_text_of_allocator_and_backends_has_an_entry_and_is_found(row: tuple[str, str, str, str]) -> None:
    _, function, kind, text = row
    assert keys_of(text)
    if sum(c.isalnum() for c in re.sub(r"%[-0-9.]*(?:z[ux]|\w)", "", text)) < 3:
        return  # a piece of a longer print
    found = find(printed(function, kind, text))
    assert found is not None
    assert text in MESSAGES[found.key].texts


@pytest.mark.parametrize("row", BEFORE, ids=lambda row: f"{row[0]} {row[2][:40]}")
def test_texts_of_older_releases_are_found(row: tuple[str, str, str]) -> None:
    _, kind, text = row
    filled = re.sub(r"%[-0-9.]*(?:z[ux]|lu|\w)", "7", text)
    found = find(f"GGML_ASSERT: /src/ggml-backend.c:1204: {text}" if kind == "assert" else filled)
    assert found is not None
    assert found.score == 1


@pytest.mark.parametrize("key", [k for k, m in MESSAGES.items() if not m.era])
def test_functions_are_those_that_print_it(key: str) -> None:
    message = MESSAGES[key]
    theirs = {function for _, function, _, text in TEXTS if text and text in message.texts}
    if theirs and len(theirs) <= 4:
        assert theirs <= set(message.functions)


def test_no_text_means_two_things() -> None:
    texts = [text for m in MESSAGES.values() for text in m.texts]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("key", MESSAGES)
def test_every_entry_says_what_it_means_what_brings_it_about_and_what_to_do(key: str) -> None:
    m = MESSAGES[key]
    assert m.means.endswith((".", ")"))
    assert m.shapes.endswith((".", ")"))
    assert m.remedy
    assert not m.remedy.endswith(".")
    assert remedy(key) == m.remedy
    assert m.functions
    assert not m.ask or m.ask.split()[0] in COMMANDS
    assert m.era in ("", "2024", "2025")


def refusals() -> Iterator[tuple[str, str]]:
    """The conditions and messages with which the engine refuses, outside of the ops' constructors and computing."""
    for path in sorted([*ENGINE.glob("*.py"), *ENGINE.glob("sched/*.py")]):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("GgmlAssert", "GgmlAbort"):
                text = call.args[1]
                if isinstance(text, ast.JoinedStr):
                    yield path.name, "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in text.values)
                elif isinstance(text, ast.Constant):
                    yield path.name, str(text.value)


def test_every_refusal_of_the_engine_is_known() -> None:
    there = list(refusals())
    assert len(there) > 20
    texts = [re.sub(r"%[-0-9.]*(?:z[ux]|\w)", "…", text) for m in MESSAGES.values() for text in m.texts]

    def known(text: str) -> bool:
        pattern = re.compile(".*".join(map(re.escape, text.split("…"))))
        return any(pattern.fullmatch(t) for t in texts)

    # The one that is ours: ggml would follow a pointer that is NULL.
    assert [text for _, text in there if not known(text)] == ["no copy of … for backend …"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("pre-allocated tensor (cache_k_l0 (view)) in a buffer (Vulkan0) that cannot run the operation (SET_ROWS)",
         "preallocated"),
        ("pre-allocated tensor in a buffer that cannot run the operation", "preallocated"),
        ("cannot run the operation", "preallocated"),
        ("tensor buffer not set", "buffer_not_set"),
        ("GGML_ASSERT: ggml-backend.c:204: buf != NULL && \"tensor buffer not set\"", "buffer_not_set"),
        ("tensor bufer not set", "buffer_not_set"),
        ("tensor not allocated", "not_allocated"),
        ("unexpected graph reallocation", "unexpected_realloc"),
        ("0.01.123.4 D ggml_gallocr_needs_realloc: src 1 (KQ_mask) of node KQ (view) is not valid", "not_valid"),
        ("GGML_ASSERT(cgraph->n_nodes < cgraph->size) failed", "cgraph_full"),
        ("ggml.c:6210: GGML_ASSERT(sched->hash_set.size >= graph->n_nodes + graph->n_leafs)", "hash_too_small"),
        ("hash_set.size >= graph->n_nodes", "hash_too_small"),
        ("out of free blocks", "free_blocks"),
        ("GGML_ASSERT: ggml-alloc.c:114: !\"not enough space in the buffer\"", "old_not_enough_space"),
        ("ggml_tallocr_alloc: not enough space in the buffer (needed 2048, largest block available 512)",
         "old_not_enough_space"),
        ("ggml_tallocr_alloc: not enough space in the buffer to allocate w (needed 512, available 0)", "tallocr_full"),
        ("GGML_ASSERT(n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS) failed", "old_graph_inputs"),
        ("ggml_gallocr_reserve_n: reallocating CUDA0 buffer from size 0.00 MiB to 12.00 MiB", "realloc_buffer"),
        ("allocating 14000.00 MiB on device 0: cudaMalloc failed: out of memory", "cuda_out_of_memory"),
        ("cudaMalloc failed: out of memory", "cuda_out_of_memory"),
        ("!!!!!!! n136 has backend CUDA0, view_src n100 has backend CUDA1", "old_checks"),
        ("fatal error", "hash_full"),
        ("node #  1 (       ADD):                 sum1 (   0K) [  CPU         ] use=1,c=1:", "debug_print"),
    ],
)  # fmt: skip
def test_a_text_is_found_with_its_prefix_its_names_and_its_slips(text: str, key: str) -> None:
    found = find(text)
    assert found is not None
    assert found.key == key


def test_of_a_whole_log_the_line_that_says_most_is_found() -> None:
    log = (
        "llama_context: constructing\nmain: hello\nggml-backend.cpp:931: pre-allocated tensor (a) in a buffer (G) that "
    )
    log += "cannot run the operation (CPY)\nAborted (core dumped)\n"
    found = find(log)
    assert found is not None
    assert found.key == "preallocated"


@pytest.mark.parametrize(
    "text", ["hello world", "segmentation fault", "GGML_ASSERT(n_expert_used > 0) failed", "x" * 9999, "?"]
)
def test_what_is_like_nothing_is_not_found_and_three_are_named(text: str) -> None:
    assert find(text) is None
    assert len({m.key for m in nearest(text)}) == 3


def test_a_long_log_is_read_in_no_time() -> None:
    import time

    log = "\n".join(f"node #{i:3} (   MUL_MAT):  kq-{i} (   1K) [CUDA0] use=1: word {i}" for i in range(100_000))
    started = time.perf_counter()
    find(log)
    assert time.perf_counter() - started < 10
