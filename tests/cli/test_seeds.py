"""The sessions with gdb and debug builds that this tool is to replace: what they printed comes out of one command.

Machine addresses apart (and the slots that follow from them), the figures are those of the sessions. Where today's ggml
differs, `differs` is what the sample's comment says about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden" / "seeds"


@dataclass(frozen=True)
class Session:
    """One thing that was printed: what the command shows instead, line by line in this order, spaces squeezed."""

    printed: str
    command: str
    sample: str
    shows: tuple[str, ...]
    differs: str = ""
    status: int = 0


SESSIONS = {
    "walk_a": Session(
        "p *hn of a: {n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = true}",
        "hash --at a",
        "allocator",
        ("a 0 0 0 CPU 0 0 true",),
    ),
    "walk_b": Session(
        "p *hn of b: {n_children = 0, n_views = 0, buffer_id = 0, offset = 32, allocated = true}",
        "hash --at b",
        "allocator",
        ("a 0 0 0 CPU 0 0 true", "b 0 0 0 CPU 0 32 true"),
        "a chunk stands beside each offset",
    ),
    "walk_mul": Session(
        "p_hn before the reuse: n_children = 1; allocated = false after it; mul has the offset of a",
        "hash --at mul",
        "allocator",
        ("a 1 0 0 CPU 0 0 false", "b 1 0 0 CPU 0 32 true", "mul 0 0 0 CPU 0 0 true"),
    ),
    "walk_end": Session(
        "hash_values of a, b, mul after reserve: offsets 0, 32, 0; allocated false, false, true",
        "hash",
        "allocator",
        ("a 0 0 0 CPU 0 0 false", "b 0 0 0 CPU 0 32 false", "mul 0 0 0 CPU 0 0 true"),
    ),
    "walk_sched": Session(
        "p *sched: hash_set = {size = 2053}; hv_tensor_backend_ids of a, b, mul = 0",
        "hash --sched",
        "allocator",
        ("allocator walk-through · alloc one · 2053 slots", "a CPU 1.inp", "b CPU 1.inp", "mul CPU 3.best"),
    ),
    "walk_allocs": Session(
        "node_allocs[0] = {dst = {0, 0, 4}, src = {{0, 0, 4}, {0, 32, 4}, -1 …}}; leaf_allocs: {0, 0, 4}, {0, 32, 4}",
        "allocs",
        "allocator",
        ("0 mul 0 CPU 0 0 4 a 0:0+4, b 0:32+4", "0 a 0 CPU 0 0 4", "1 b 0 CPU 0 32 4"),
        "in chunks",
    ),
    "walk_story": Session(
        "free_blocks[0] = {offset = 32, size = 2^63 - 1 - 32} after a; mul reuses a; b is freed",
        "allocs --trace",
        "allocator",
        (
            "allocate a 32 CPU 0 32–…",
            "allocate b 32 CPU 32 64–…",
            "reuse mul CPU 0 in place of a",
            "free b 32 CPU 32 32–…",
        ),
    ),
    "walk_drawn": Session(
        "the drawing of the free block: a taken up to 32, the rest free",
        "allocs --free-blocks a",
        "allocator",
        ("CPU · chunk 0 · 1 free block · max_size 32", "| a | free |", "0 32 …"),
    ),
    "walk_buffer": Session(
        "buf_tallocs[0]: max_size = 64; the buffer: size = 64",
        "buffers --chunks",
        "allocator",
        ("CPU 0 64 B none 3 a 32 B start",),
    ),
    "walk_splits": Session(
        "n_splits = 1; splits[0] = {backend_id = 0, i_start = 0, i_end = 1, n_inputs = 0}",
        "splits --format table",
        "allocator",
        ("#0 CPU 0 1 1 MUL",),
    ),
    "walk_tensor": Session(
        "p *mul: ne = {1, 1, 1, 1}, nb = {4, 4, 4, 4}, op = GGML_OP_MUL, name = mul and 60 zeros",
        "tensor --format gdb mul",
        "allocator",
        (
            "ne = {1, 1, 1, 1}, nb = {4, 4, 4, 4}",
            "op = GGML_OP_MUL, op_params = {0 <repeats 16 times>}",
            r"""name = "mul", '\000' <repeats 60 times>""",
        ),
    ),
    "two_graphs_print": Session(
        "p ggml_graph_print(graph) of the second graph: MUL, MUL; leafs c, a2, b2",
        "graph -g two",
        "allocator",
        (
            "n_nodes = 2",
            "- 0: [ 1, 1, 1] MUL",
            "- 1: [ 1, 1, 1] MUL",
            "n_leafs = 3",
            "- 0: [ 1, 1] NONE c",
            "- 1: [ 1, 1] NONE a2",
            "- 2: [ 1, 1] NONE b2",
        ),
    ),
    "two_graphs": Session(
        "alloc of the second graph on the same scheduler: graph has different number of nodes, reallocating",
        "trace",
        "allocator",
        (
            "ggml_backend_buft_alloc_buffer(CPU, 64)",
            "alloc two",
            "the reserved plan does not serve: different number of nodes (1 → 2)",
            "ggml_gallocr_reserve_n()",
            "ggml_backend_buft_alloc_buffer(CPU, 96) was 64",
            "ggml_gallocr_alloc_graph()",
        ),
    ),
    "weights": Session(
        "with usage weights: mul_mat_0 on CUDA0, add_0 on CPU, add_1 on CPU, splits: 2",
        "splits",
        "priority",
        (
            "## SPLIT #0: CUDA0 # 0 inputs",
            "product ( 0K) [CUDA0 1.wgt0]",
            "## SPLIT #1: CPU # 1 inputs: [product ( 0K)]",
            "sum1 ( 0K) [ CPU 1.wgt1]",
            "sum2 ( 0K) [ CPU 1.wgt1]",
        ),
        "prints use= and c= before the sources",
    ),
    "no_weights": Session(
        "without: mul_mat_0, add_0, add_1 on CUDA0, splits: 1",
        "splits",
        "priority-any",
        (
            "## SPLIT #0: CUDA0 # 2 inputs: [c ( 0K)] [d ( 0K)]",
            "product ( 0K) [CUDA0 1.wgt0]",
            "sum1 ( 0K) [CUDA0 2.sup]",
            "sum2 ( 0K) [CUDA0 2.sup]",
        ),
    ),
    "copied": Session(
        "backtraces down to cudaMemcpyAsync: tensor_set of a, 32 bytes; tensor_copy of c to the device, 48 bytes",
        "trace",
        "priority-any",
        (
            "ggml_backend_tensor_set(a, offset 0, 32 bytes)",
            "ggml_backend_cuda_buffer_set_tensor(CUDA0)",
            "cudaMemcpyAsync",
            "ggml_backend_sched_graph_compute()",
            "ggml_backend_sched_compute_splits()",
            "ggml_backend_tensor_copy(c → CUDA0#c#0, 48 bytes)",
            "ggml_backend_tensor_set(CUDA0#c#0, offset 0, 48 bytes)",
            "ggml_backend_cuda_buffer_set_tensor(CUDA0)",
            "cudaMemcpyAsync",
            "ggml_backend_graph_compute_async(CUDA0) split 0: product, sum1, sum2",
        ),
    ),
    "interface": Session(
        "ggml_backend_cpu_i: set_tensor_async = NULL, synchronize = NULL, graph_plan_create and graph_compute are set",
        "backends --interface",
        "priority",
        (
            "ggml_backend_i",
            "field CUDA0 CPU if NULL",
            "set_tensor_async yes NULL ggml_backend_tensor_set",
            "cpy_tensor_async yes NULL",
            "synchronize yes NULL",
            "graph_plan_create NULL yes",
            "graph_plan_update NULL NULL",
            "graph_plan_compute NULL yes",
            "graph_compute yes yes",
            "event_record yes NULL",
            "event_wait yes NULL",
            "ggml_backend_buffer_i",
            "init_tensor yes NULL",
            "cpy_tensor yes yes",
            "reset NULL NULL",
        ),
        "copies in two dimensions, and graph_optimize",
    ),
    "is_host": Session(
        "ggml_backend_buffer_is_host: model.c is host buffer, model.a is not",
        "backends",
        "priority",
        ("CUDA0 CUDA0 128 SIZE_MAX false", "CPU CPU 32 SIZE_MAX true ggml_nbytes"),
    ),
    "not_set": Session(
        'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed, under ggml_backend_tensor_set',
        "run",
        "buffer-not-set",
        (
            "set c ggml fails",
            'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed',
            "in ggml_backend_tensor_set",
            "c has no memory",
        ),
        status=1,
    ),
    "not_set_log": Session(
        "graph has different number of nodes; failed to allocate graph, reserving; buffers of CUDA0 and CPU made",
        "trace",
        "buffer-not-set",
        (
            "the reserved plan does not serve: different number of nodes (0 → 1)",
            "ggml_gallocr_reserve_n()",
            "ggml_backend_buft_alloc_buffer(CUDA0, 128)",
            "ggml_backend_buft_alloc_buffer(CPU, 0)",
            "ggml_gallocr_alloc_graph()",
        ),
        "logs the second only for a buffer that had a size before",
        status=1,
    ),
    "offload": Session(
        "offload, LLAMA_SUPPORTS_GPU_OFFLOAD: a weight on the host, computed by the GPU",
        "splits --bytes",
        "offload",
        ("16 KiB w weight CPU CUDA0 f32[64, 64]", "without op offload: 0 tensors, 0 B"),
    ),
    "missing_op": Session(
        "sched_print_assignments: a split per change of backend, its inputs behind it, a cause for each node",
        "splits",
        "missing-op",
        (
            "## SPLIT #0: GPU0 # 1 inputs: [x ( 0K)]",
            "## SPLIT #1: CPU # 1 inputs: [scores ( 0K)]",
            "## SPLIT #2: GPU0 # 1 inputs: [order ( 0K)]",
        ),
        "spread a backend over all that had none (causes 2.1 to 2.4)",
    ),
    "passes": Session(
        "PASS 1 ASSIGNMENTS: after the first pass an op whose tensors have no place yet has no backend",
        "splits --pass 1",
        "missing-op",
        ("+ 0 MUL_MAT scores GPU0 1.wgt0 its weight w is in GPU0", "1 ARGSORT order –"),
    ),
    "pipeline": Session(
        "sched: n_copies, events; tensor copies by name, one for each copy of the pipeline",
        "plan --json",
        "pipeline",
        ("GPU1#act#0", "GPU1#act#3"),
    ),
    "pipeline_cost": Session(
        "what the copies of the pipeline cost",
        "buffers --copies",
        "pipeline",
        ("GPU0 10 KiB 4 KiB +6 KiB", "total 28 KiB 10 KiB +18 KiB"),
    ),
    "chunks": Session(
        "max_size of a buffer type; buffers of a graph that does not fit into one",
        "buffers --chunks",
        "chunks",
        ("GPU0 0 3 KiB 4 KiB 1 KiB 2 GPU0#x#0", "GPU0 1 3 KiB 4 KiB 1 KiB 2 p", "GPU0 2 3 KiB 4 KiB 1 KiB 1 r"),
    ),
    "views": Session(
        "view_src points to the root, view_offs is added up, the data is that of the root plus the offset",
        "tensor row",
        "views",
        ("op VIEW", "nbytes 16", "memory CPU (compute), offset 64", "view of doubled at 64", "src[0] lower"),
    ),
    "inplace": Session(
        "reusing parent …; not reusing parent … as it is an output, as it is external; not freeing output",
        "allocs --trace",
        "inplace",
        (
            "reuse ok CPU 256 in place of x1",
            "no reuse twice not x2: 2 uses of it are left",
            "no reuse kept not x3: it is an output",
            "keep x3 it is an output",
            "no reuse weight not w: it is pre-allocated",
            "no reuse viewed not x6: 1 view of it still in use",
            "no reuse used not half: it is a view",
        ),
        "only since early 2025",
    ),
    "preallocated": Session(
        "pre-allocated tensor in a buffer that cannot run the operation",
        "plan",
        "preallocated",
        ("pre-allocated tensor (stored) in a buffer (GPU0) that cannot run the operation (SET_ROWS)",),
        status=1,
    ),
    "outgrown": Session(
        "src … of node … is not valid; failed to allocate graph, reserving; buffers grow",
        "trace",
        "outgrown",
        (
            "the reserved plan does not serve: source is larger: many (512 → 4096)",
            "ggml_backend_buft_alloc_buffer(GPU0, 8192) was 1024",
            "ggml_backend_buft_alloc_buffer(CPU, 4096) was 512",
        ),
    ),
}


def squeezed(text: str) -> str:
    """One space for every run of spaces, line ends and the lines of a tree; wrapped text becomes one line."""
    return re.sub(r"[\s│├└─]+", " ", text)


@pytest.mark.parametrize("name", SESSIONS)
def test_what_a_session_printed_comes_out_of_a_command(call: Call, name: str) -> None:
    session = SESSIONS[name]
    result = call(*session.command.split(), SAMPLES / f"{session.sample}.yaml", columns=100)
    assert result.status == session.status
    check_golden(GOLDEN / f"{name}.txt", result.out)
    out, at = squeezed(result.out + result.err), 0
    for text in session.shows:
        found = out.find(squeezed(text), at)
        assert found >= 0, f"{text!r} is missing, or stands before {session.shows[0]!r}"
        at = found + 1


@pytest.mark.parametrize("name", [name for name, session in SESSIONS.items() if session.differs])
def test_a_sample_says_where_its_ggml_differs_from_that_of_the_session(name: str) -> None:
    comment = re.sub(r"\n# ", " ", (SAMPLES / f"{SESSIONS[name].sample}.yaml").read_text("utf-8"))
    assert SESSIONS[name].differs in comment


def test_every_sample_that_a_session_gave_is_here() -> None:
    assert {session.sample for session in SESSIONS.values()} >= {
        "allocator", "priority", "priority-any", "buffer-not-set", "offload", "missing-op", "pipeline", "chunks",
        "views", "inplace", "preallocated", "outgrown",
    }  # fmt: skip
