"""What ggml refuses, at the command line: ggml's words first, then the tensor and what to change."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ggmltool.ggml import ops
from ggmltool.ggml.alloc.tallocr import Tallocr
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.show.text import ggml_error
from tests.cli.conftest import Call
from tests.limits import AT
from tests.scenario.texts import BASE

ops.load()

REFUSALS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("ggml_refusals.yaml").read_text("utf-8"))


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["what"])
def test_ggmls_words_come_first_then_the_explanation(call: Call, row: dict[str, Any]) -> None:
    text = row["scenario"] if "scenario" in row else json.dumps(AT[row["beyond"]][1])
    result = call("run", "-", stdin=text.encode())
    assert result.status == 1
    assert all(line.startswith("no data, so zero: ") for line in result.err.splitlines())
    said, _, explanation = result.out[result.out.index(f"{row['words']}\n") :].partition("\n")
    assert said == row["words"]
    assert explanation.startswith("  in ")
    assert not [part for part in row["says"] if part not in explanation]


def squares(n: int) -> tuple[Context, Tensor]:
    """`x`, and `n` nodes `y1` … in a context of their own; the last one."""
    ctx = Context()
    t = ctx.new_tensor(F32, [64], name="x")
    for k in range(n):
        source, t = t, ctx.new_tensor(F32, [64], name=f"y{k + 1}")
        t.set_op(Op.SQR, (), source)
    return ctx, t


def fill_a_context(n: int) -> None:
    ctx = Context(mem_size=400)
    for k in range(n):
        ctx.new_tensor(F32, [64], name=f"x{k}")


def allocate(buffer_size: int) -> None:
    Tallocr(Buffer(BufferType("CPU", "CPU"), buffer_size, AddressSpace())).alloc(squares(0)[1])


PROGRAMS: dict[str, tuple[Callable[[int], None], int, str, str, str]] = {
    # what is too small: what a program does, with which number, ggml's words, its function, the explanation
    "a graph's nodes": (
        lambda n: CGraph(2).build_forward_expand(squares(n)[1]),
        3,
        "GGML_ASSERT(cgraph->n_nodes < cgraph->size) failed",
        "ggml_visit_parents_graph",
        "the graph was made for 2 nodes, and y3 is one more; give ggml_new_graph_custom a larger size",
    ),
    "a graph's hash set": (
        lambda n: CGraph(2).build_forward_expand(squares(n)[1]),
        9,
        "GGML_ASSERT(node_hash_pos != GGML_HASHSET_FULL) failed",
        "ggml_visit_parents_graph",
        "its hash set has 5 slots, and y4 is one more; give ggml_new_graph_custom a larger size",
    ),
    "a buffer": (
        allocate,
        128,
        "not enough space in the buffer",
        "ggml_tallocr_alloc",
        "x needs 256 bytes, 128 are left; make the buffer 128 bytes larger, or allocate the whole context at once",
    ),
    "a context's pool": (
        fill_a_context,
        2,
        "GGML_ASSERT(obj_new) failed",
        "ggml_new_tensor_impl",
        "400 bytes is too small for one more tensor: x1 needs 368, 32 are left; give ggml_init a larger mem_size",
    ),
}
"""A scenario's contexts, graphs and buffers are made as large as is needed; a program may make them smaller."""


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_only_a_program_can_reach_is_explained_in_the_same_way(kind: str) -> None:
    act, n, words, function, explanation = PROGRAMS[kind]
    with pytest.raises(GgmlError) as error:
        act(n)
    lines = ggml_error(error.value.as_dict()).splitlines()
    assert lines[:2] == [words, f"  in {function}"]
    assert explanation in lines[2]


def test_a_constructor_that_refuses_says_which_source_or_which_number() -> None:
    rng = random.Random(7)
    base = yaml.safe_load(BASE + "      zz: f32[1]\n")
    ids = list(base["contexts"]["w"]["tensors"])
    numbers = ["0", "1", "-1", "2", "4", "64", "2147483648", "1e30", "nan", "0.5", "[1, 2]", "[0, 0, 0, 0]", "f16"]
    met, unnamed = set(), []
    for _, constructor in sorted(CONSTRUCTORS.items()) * 12:
        sources = rng.choices(ids, k=len(constructor.sources))
        choices = [numbers if p.choices is None else list(p.choices) for p in constructor.params]
        params = [f"{p.name}={rng.choice(c)}" for p, c in zip(constructor.params, choices, strict=True)]
        quoted = [f'"{id}"' for id in sources]
        call = f"{constructor.name}({', '.join([*quoted, *params])})"
        try:
            load_spec({**base, "graphs": {"main": {"nodes": {"h": call}}}})
        except ScenarioError:
            continue
        except GgmlError as error:
            met.add((error.function, error.condition))
            named = any(id in error.explanation for id in sources) or re.search(r"\d|\bnan\b", error.explanation)
            if not (named and error.where):
                unnamed.append((call, error.explanation))
    assert unnamed == []
    assert len(met) > 50
