"""The questions that people bring, asked as they would ask them, and found answered in what the command prints."""

from __future__ import annotations

from tests.cli.conftest import Call, call

__all__ = ["call"]


def test_why_does_this_op_run_on_that_backend(call: Call) -> None:
    """llama.cpp 25800: the pass, the rule, the source that decided, what each other backend answered."""
    out = call("explain", "gate", "transformer", columns=110).out
    assert "gate is on CPU (1.wgt0): its weight ffn_gate is in CPU." in out
    assert "1.off   CUDA0    no   the batch is 8, and it asks from 32 on" in out
    assert "put ffn_gate into CUDA0" in out


def test_pre_allocated_tensor_in_a_buffer_that_cannot_run_the_operation(call: Call) -> None:
    """llama.cpp 13684, 12045, 24366: which of supports_op and supports_buft said no, and what helps."""
    result = call("explain", "stored", "preallocated", columns=110)
    assert "pre-allocated tensor (stored) in a buffer (GPU0) that cannot run the operation (SET_ROWS)" in result.err
    assert "GPU0: it has no SET_ROWS" in result.out
    assert "CPU: its memory is fixed: GPU0 is not host memory" in result.out
    assert "put cache_k into CPU" in result.out
    assert result.status == 1


def test_why_is_there_an_extra_split(call: Call) -> None:
    """llama.cpp 18599, 27880: the node that begins it, the reason, the bytes, and for whom."""
    out = " ".join(call("explain", "split", "2", "gemma-3-270m-ngl9", columns=200).out.split())
    assert "attn_norm-0, behind norm-0 on CUDA0: its weight blk.0.attn_norm.weight must be copied from CPU" in out
    assert "2.5 KiB CPU attn_norm-0" in out
    assert "switch op offload off" in out


def test_unexpected_graph_reallocation_which_tensor_old_and_new_size(call: Call) -> None:
    """llama.cpp 28753, 29083, 17617, 6246: the first tensor that does not fit, and what would help."""
    out = " ".join(call("explain", "realloc", "small", "large", "outgrown", columns=110).out.split())
    assert "many, source 0 of many (view), has 512 B in the plan and needs 4 KiB" in out
    assert "GGML_SCHED_DEBUG_REALLOC=1 aborts here (“unexpected graph reallocation”)" in out
    assert "reserve large, and nothing is planned again for either" in out


def test_a_small_batch_needs_more_than_the_worst_case_that_was_reserved(call: Call) -> None:
    """llama.cpp 17143: the prompt was reserved, and one token is planned again, with the first difference."""
    out = " ".join(call("explain", "realloc", "prompt", "token", "offload", columns=110).out.split())
    assert "No: different number of nodes, 5 and 1; the first difference is at node 0" in out
    assert "the buffers are large enough and stay" in out


def test_two_tensors_share_an_address_who_overwrote_whom(call: Call) -> None:
    """ggml 700, 1151: the bytes they share, when each has them, and whether anybody reads a wrong value."""
    out = " ".join(call("lifetime", "q", "k_rope", "transformer", columns=110).out.split())
    assert (
        "q and k_rope share 2 KiB at 4480 in CUDA0 compute buffer, at different times: k_rope is written over q" in out
    )
    assert "No harm in the graph: q is read last by node 14 q_rope, k_rope is written at node 15 k_rope" in out
    assert "read after the graph, it has other values. Flag it output to keep it." in out


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
