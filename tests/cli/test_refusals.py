"""What ggml refuses, at the command line: ggml's words first, then the tensor and what to change."""

from __future__ import annotations

import random

import pytest
import yaml

from ggmltool.ggml import ops
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_model
from tests.cli.conftest import Call
from tests.scenario.texts import BASE

ops.load()

HEAD = "ggmltool: 1\n"
X = "contexts: {c: {tensors: {x: 'f32[64]', i: {type: i32, ne: [2], data: [0, 9]}}}}\n"
Y = "graphs: {main: {nodes: {y: sqr(x)}}}\n"


def chain(n: int, extra: str = "") -> str:
    nodes = "".join(f"      n{k}: {{op: sqr, src: [{f'n{k - 1}' if k else 'x'}]{extra}}}\n" for k in range(n))
    return f"graphs:\n  main:\n    nodes:\n{nodes}"


REFUSALS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # what it is: the scenario, ggml's words, what the explanation has
    "two graphs at once": (
        HEAD + X + Y + "steps: [alloc main, alloc main]\n",
        "GGML_ASSERT(!sched->is_alloc) failed",
        ("ggml_backend_sched_alloc_graph", "put the step `reset` before"),
    ),
    "a graph_size that is too small": (
        HEAD + "scheduler: {graph_size: 4}\n" + X + chain(30),
        "GGML_ASSERT((int)sched->hash_set.size >= measure_graph->n_nodes + measure_graph->n_leafs) failed",
        ("30 nodes", "give a graph_size of 31"),
    ),
    "an op that nobody can run": (
        HEAD + "backends: [{name: CPU, supports: {except: [sqr]}}]\n" + X + Y,
        "GGML_ASSERT(*cur_backend_id != -1) failed",
        ("no backend can run y (SQR)", "leave the op in what one of them supports"),
    ),
    "memory where the op cannot run": (
        HEAD
        + "backends: [{name: G, supports: {only: [add]}, supports_bufts: [G]}, CPU]\n"
        + "contexts: {c: {buft: G, tensors: {kv: 'f32[64]'}}}\n"
        + "graphs: {main: {nodes: {y: 'scale_inplace(kv, s=2)'}}}\n",
        "pre-allocated tensor (y) in a buffer (G) that cannot run the operation (SCALE)",
        ("the memory of y is fixed", "G cannot run SCALE, CPU cannot use G", "keep it in memory of a backend"),
    ),
    "a last backend that is no CPU": (
        HEAD + "backends: [CPU, {name: G, profile: CUDA}]\n" + X + Y,
        (
            "GGML_ASSERT(ggml_backend_dev_type(ggml_backend_get_device(backends[n_backends - 1])) == "
            "GGML_BACKEND_DEVICE_TYPE_CPU) failed"
        ),
        ("the last backend is G", "list the CPU last"),
    ),
    "seventeen backends": (
        HEAD + f"backends: [{', '.join(f'CUDA{k}' for k in range(16))}, CPU]\n" + X + Y,
        "GGML_ASSERT(n_backends <= GGML_SCHED_MAX_BACKENDS) failed",
        ("there are 17 backends", "leave out all but 16"),
    ),
    "reading a tensor without memory": (
        HEAD + X + Y + "steps: [{get: [y]}]\n",
        'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed',
        ("ggml_backend_tensor_get", "y has no memory"),
    ),
    "writing a tensor without memory": (
        HEAD + X + Y + "steps: [{set: {x: {fill: 1}}}]\n",
        'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed',
        ("ggml_backend_tensor_set", "x has no memory"),
    ),
    "a row that is not there": (
        HEAD + X + "graphs: {main: {nodes: {y: 'get_rows(x, i)'}}}\n",
        "GGML_ASSERT(i01 >= 0 && i01 < ne01) failed",
        ("i i32[2] names row 9", "x f32[64] has rows 0 to 0"),
    ),
    "an op without a kernel": (
        HEAD + X + "graphs: {main: {nodes: {y: {op: dsv4_hc_pre, src: [x], type: f32, ne: [4]}}}}\n",
        "DSV4_HC_PRE cannot be computed here (y)",
        ("the op can be planned, not computed",),
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_ggmls_words_come_first_then_the_explanation(call: Call, kind: str) -> None:
    text, words, explanations = REFUSALS[kind]
    result = call("run", "-", stdin=text.encode())
    assert result.status == 1
    assert result.err == ""
    said, _, explanation = result.out[result.out.index(f"{words}\n") :].partition("\n")
    assert said == words
    assert explanation.startswith("  in ggml_")
    for part in explanations:
        assert part in explanation


def test_a_constructor_that_refuses_says_which_source_or_which_number() -> None:
    rng = random.Random(7)
    base = yaml.safe_load(BASE + "      zz: f32[1]\n")
    ids = list(base["contexts"]["w"]["tensors"])
    numbers = ["0", "1", "-1", "2", "4", "64", "2147483648", "1e30", "nan", "0.5", "[1, 2]", "[0, 0, 0, 0]", "f16"]
    met, unnamed = set(), []
    for constructor in list(CONSTRUCTORS.values()) * 12:
        sources = rng.choices(ids, k=len(constructor.sources))
        choices = [numbers if p.choices is None else list(p.choices) for p in constructor.params]
        params = [f"{p.name}={rng.choice(c)}" for p, c in zip(constructor.params, choices, strict=True)]
        quoted = [f'"{id}"' for id in sources]
        call = f"{constructor.name}({', '.join([*quoted, *params])})"
        try:
            load_model({**base, "graphs": {"main": {"nodes": {"h": call}}}})
        except ScenarioError:
            continue
        except GgmlError as error:
            met.add((error.function, error.condition))
            named = any(id in error.explanation for id in sources) or any(c.isdigit() for c in error.explanation)
            if not (named and error.where):
                unnamed.append((call, error.explanation))
    assert unnamed == []
    assert len(met) > 50
