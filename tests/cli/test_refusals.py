"""What ggml refuses, at the command line: ggml's words first, then the tensor and what to change."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

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

HEAD = "ggmltool: 1\n"
X = "contexts: {c: {tensors: {x: 'f32[64]', i: {type: i32, ne: [2], data: [0, 9]}}}}\n"
KINDS = (
    "contexts: {c: {tensors: {x: 'f32[64, 4]', h: 'f16[64, 4]', i: 'i32[64, 4]', q: 'q4_0[64, 4]', "
    "t: {type: f32, ne: [4, 64], nb: [256, 4, 1024]}}}}\n"
)
Y = "graphs: {main: {nodes: {y: sqr(x)}}}\n"


def chain(n: int, extra: str = "") -> str:
    nodes = "".join(f"      n{k}: {{op: sqr, src: [{f'n{k - 1}' if k else 'x'}]{extra}}}\n" for k in range(n))
    return f"graphs:\n  main:\n    nodes:\n{nodes}"


def one_more(limit: str) -> str:
    """The scenario that is one beyond this limit."""
    return json.dumps(AT[limit][1])


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
        ("no backend supports y (SQR)", "keep the op within what one of them supports"),
    ),
    "memory where the op cannot run": (
        HEAD
        + "backends: [{name: G, supports: {only: [add]}, supports_bufts: [G]}, CPU]\n"
        + "contexts: {c: {buft: G, tensors: {kv: 'f32[64]'}}}\n"
        + "graphs: {main: {nodes: {y: 'scale_inplace(kv, s=2)'}}}\n",
        "pre-allocated tensor (y) in a buffer (G) that cannot run the operation (SCALE)",
        ("y is pre-allocated", "G does not support SCALE, CPU cannot use G", "keep it in memory of a backend"),
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
        HEAD + X + "graphs: {main: {nodes: {y: {op: flash_attn_back, src: [x], type: f32, ne: [4]}}}}\n",
        "FLASH_ATTN_BACK cannot be computed here (y)",
        ("the op can be planned, not computed",),
    ),
    "more slots than the scheduler's hash set has": (
        one_more("sched_slots"),
        "fatal error",
        ("the scheduler's hash set has 5 slots and would need 6", "a graph_size above 5"),
    ),
    "more slots than the allocator's hash set has": (
        one_more("gallocr_slots"),
        "fatal error",
        ("the allocator's hash set has 3 slots", "would need 4", "One of them is r: make it a source"),
    ),
    "more memory than sixteen chunks have": (
        one_more("chunks"),
        "graph allocation: failed to reserve memory",
        ("no free block of 4611686018427387904 bytes", "16 chunks", "when t1 was to be placed in G0"),
    ),
    "a chunk in more pieces than it may have": (
        one_more("free_blocks"),
        'GGML_ASSERT(chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks") failed',
        ("more than 256 free blocks", "when l255 was given back to CPU", "keep fewer tensors alive for long"),
    ),
    "more copies than the scheduler's context holds": (
        one_more("sched_context"),
        "GGML_ASSERT(obj_new) failed",
        ("room for 988 copies and dependencies", "n22 is one more", "a larger graph_size", "no pipeline copies"),
    ),
    "a view in a context whose root has no memory": (
        HEAD
        + "contexts: {loose: {tensors: {r: 'f32[64]'}}, w: {buft: CPU, tensors: {z: 'f32[4]', "
        + "v: {type: f32, ne: [64], view_src: r}}}}\n"
        + "graphs: {main: {nodes: {y: sqr(v)}}}\n",
        "GGML_ASSERT(tensor->view_src->buffer != NULL) failed",
        ("ggml_backend_view_init", "v is a view of r, which has no memory", "give its context a buft"),
    ),
    "a view alone in a context, of a root without memory": (
        HEAD
        + "contexts: {loose: {tensors: {r: 'f32[64]'}}, "
        + "w: {buft: CPU, tensors: {v: {type: f32, ne: [64], view_src: r}}}}\n"
        + "graphs: {main: {nodes: {y: sqr(v)}}}\n",
        "GGML_ASSERT(src_backend_id != -1) failed",
        (
            "v, a source of y, has no backend",
            "it is a view of r, which has no memory",
            "put the view into the same context",
        ),
    ),
    "a type that the CPU's kernel has not": (
        HEAD + KINDS + "graphs: {main: {nodes: {y: sqr(i)}}}\n",
        "fatal error",
        ("no such kernel for i i32[64, 4], only for bf16, f16, f32", "y (SQR)", "`cast` another type"),
    ),
    "an addition of types that do not go together": (
        HEAD + KINDS + "graphs: {main: {nodes: {y: 'add(x, h)'}}}\n",
        "binary_op: unsupported types: dst: f32, src0: f32, src1: f16",
        ("x f32[64, 4] and h f16[64, 4]", "y (ADD)", "`cast`"),
    ),
    "a second operand that the CPU's kernel has not": (
        HEAD + KINDS + "graphs: {main: {nodes: {y: 'add(q, h)'}}}\n",
        "GGML_ASSERT(nb10 == sizeof(float)) failed",
        ("ggml_compute_forward_add_q_f32", "h f16[64, 4] (nb [2, 128, 512, 512])", "y (ADD)"),
    ),
    "a layout that the CPU's kernel has not": (
        HEAD + KINDS + "graphs: {main: {nodes: {y: {op: sum_rows, src: [t]}}}}\n",
        "GGML_ASSERT(src0->nb[0] == sizeof(float)) failed",
        ("t f32[4, 64] (nb [256, 4, 1024", "y (SUM_ROWS)", "`cont` gives a source a plain layout"),
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_ggmls_words_come_first_then_the_explanation(call: Call, kind: str) -> None:
    text, words, explanations = REFUSALS[kind]
    result = call("run", "-", stdin=text.encode())
    assert result.status == 1
    assert all(line.startswith("no data, so zero: ") for line in result.err.splitlines())
    said, _, explanation = result.out[result.out.index(f"{words}\n") :].partition("\n")
    assert said == words
    assert explanation.startswith("  in ")
    for part in explanations:
        assert part in explanation


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
    for constructor in list(CONSTRUCTORS.values()) * 12:
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
            named = any(id in error.explanation for id in sources) or any(c.isdigit() for c in error.explanation)
            if not (named and error.where):
                unnamed.append((call, error.explanation))
    assert unnamed == []
    assert len(met) > 50
