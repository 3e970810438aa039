"""The questions that people bring, asked as they would ask them, and found answered in what the command prints."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from ggmltool.ggml.releases.table import DEFAULT
from tests.cli.conftest import SAMPLES, Call
from tests.cli.test_looks import looks
from tests.sources.library import needs_library
from tests.sources.models import cached
from tests.sources.real_models import real

pytestmark = pytest.mark.usefixtures("warmed")


def test_which_tensors_land_where_with_this_ot_and_ts(call: Call) -> None:
    """llama.cpp 15263, 15975: tensor to device, totals, and a deficit with exit status 1."""
    devices = ("--device", "CUDA0:100MiB", "--device", "CUDA1:600MiB", "--margin", "0")
    options = ("-ot", "ffn_down=CPU", "-ts", "1,3", *devices, "gemma-3-270m")
    result = call("place", *options, columns=110)
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "0–4 CPU 5 4.48 MiB -ot ffn_down=CPU" in rows
    assert any(row.startswith("CUDA0 13.8 MiB 10 MiB ") for row in rows)
    assert "fits: CUDA0" in rows
    assert any(row.startswith("CUDA1 does not fit: ") for row in rows)
    assert result.status == 1
    tensors = call("place", "--tensors", *options, columns=110).out.splitlines()
    assert any("blk.0.ffn_down.weight" in line and line.endswith("CPU     -ot ffn_down=CPU") for line in tensors)


def test_the_largest_ngl_that_fits(call: Call) -> None:
    """People who tune -ngl: the last placement that fits, what it copies, and the command that shows it."""
    result = call("sweep", "-ngl", "0..19", "--device", "CUDA0:1764MiB", "gemma-3-270m", columns=110)
    assert "largest that fits: -ngl 11\n  122 splits, 58.2 MiB copied per ubatch, 1 GiB left on CUDA0" in result.out
    assert result.out.endswith("ggmltool place gemma-3-270m --device CUDA0:1764MiB -ngl 11\n")
    assert call("place", "-ngl", "12", "--device", "CUDA0:1764MiB", "gemma-3-270m").status == 1


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


def test_the_two_orders_as_pictures(call: Call) -> None:
    """llama.cpp 18599: a box per split in both, and of the copies between them."""
    boxes = {}
    for graph in ("together", "apart"):
        text = call("dot", "--style", "ggmltool", "--graph", graph, "two-orders").out
        boxes[graph] = re.findall(r"split #\d+ · \w+", text)
        assert "style=dashed" in text
    assert boxes["together"] == ["split #0 · GPU0", "split #1 · CPU"]
    assert boxes["apart"] == ["split #0 · GPU0", "split #1 · CPU", "split #2 · GPU0"]


def sums(n: int) -> bytes:
    """`n` nodes with an input each, for a scheduler of graph_size 2048."""
    tensors = ", ".join(f"x{i}: {{type: f32, ne: [4], flags: [input]}}" for i in range(n))
    nodes = ", ".join(f"s{i}: 'add({f's{i - 1}' if i else 'x0'}, x{i})'" for i in range(n))
    return f"""ggmltool: 1
backends: [CPU]
scheduler: {{graph_size: 2048}}
contexts: {{inputs: {{tensors: {{{tensors}}}}}}}
graphs: {{main: {{nodes: {{{nodes}}}}}}}
""".encode()


@pytest.mark.parametrize(("n", "status", "word"), [(1026, 0, "near"), (1027, 1, "breached")])
def test_am_i_near_a_limit(call: Call, n: int, status: int, word: str) -> None:
    """llama.cpp 28614: 2054 nodes and leafs in a hash set of 2053, and the assertion that this ends in."""
    result = call("check", "-", stdin=sums(n), columns=130)
    assert result.status == status
    row = next(line.split() for line in result.out.splitlines() if line.startswith("    hash set: nodes + leafs"))
    assert row[5:7] == [str(2 * n), "2053"]
    assert word in row
    assert "GGML_ASSERT((int)sched->hash_set.size >= graph->n_nodes + graph->n_leafs)" in " ".join(result.out.split())


def test_out_of_memory_although_there_is_some(call: Call) -> None:
    """llama.cpp 11332, 18160, 16788: the chunks, the limit of each, and the tensor that opened it."""
    rows = [" ".join(line.split()) for line in call("buffers", "--chunks", "chunks", columns=110).out.splitlines()]
    assert "GPU0 1 3 KiB 4 KiB 1 KiB 2 p 3 KiB p" in rows
    assert "GPU0 2 3 KiB 4 KiB 1 KiB 1 r 3 KiB r" in rows
    scenario = (SAMPLES / "chunks.yaml").read_bytes().replace(b"max_size: 4KiB", b"max_size: 2KiB")
    out = " ".join(call("buffers", "--chunks", "-", stdin=scenario, columns=110).out.split())
    assert "GPU0 1 3 KiB 2 KiB over it 2 p 3 KiB p" in out
    assert "closest: size of a buffer, 200%" in call("check", "-", stdin=scenario, columns=110).out


WARM_UP = b"""ggmltool: 1
backends: [CPU]
contexts:
  kv: {buft: CPU, tensors: {k: 'f16[64, 4096]'}}
  inputs: {tensors: {worst: {type: f32, ne: [64, 16], flags: [input]}, few: {type: f32, ne: [64, 2], flags: [input]}}}
graphs:
  worst:
    nodes:
      k_worst: {op: view, src: [k], type: f16, ne: [64, 32], nb: [2, 128]}
      kq: mul_mat(k_worst, worst)
      kq_soft_max: soft_max(kq)
  warmup:
    nodes:
      k_few: {op: view, src: [k], type: f16, ne: [64, 4096], nb: [2, 128]}
      kq: mul_mat(k_few, few)
      kq_soft_max: soft_max(kq)
"""
"""Two tokens that look at the whole cache need more than sixteen that look at its beginning."""


def test_a_small_batch_needs_more_than_was_reserved_and_these_are_the_tensors(call: Call) -> None:
    """llama.cpp 17143: two reserves side by side, sizes per tensor, the largest growth first."""
    Path("model.yaml").write_bytes(WARM_UP)
    result = call("diff", "--step", "reserve", "model.yaml:worst", "model.yaml:warmup", columns=110)
    out = " ".join(result.out.split())
    assert "tensors" in out
    assert "larger in B" in out
    assert "2 KiB 32 KiB +30 KiB kq MUL_MAT f32[32, 16] → f32[4096, 2]" in out
    assert "4 KiB 512 B -3.5 KiB worst → few leaf f32[64, 16] → f32[64, 2]" in out
    assert re.search(r"compute buffers [\d.]+ KiB [\d.]+ KiB \+[\d.]+ KiB", out)


def test_the_same_graph_twice_after_a_reset_is_wrong(call: Call) -> None:
    """ggml 892: the second split finds nothing to copy, and the command says so; built anew, the graph is right."""
    result = call("run", "graph-twice", columns=110)
    assert result.out.endswith("y · f32 [2]\n  20  20\n\na · f32 [2]\n  20  20\n")
    assert "splits a build of the graph that was split before: its sources are 2 copies of the first time" in result.err
    assert "#a#0 (" in call("splits", "--after", "6", "--no-causes", "graph-twice").out
    anew = (SAMPLES / "graph-twice.yaml").read_text().replace("  - set:", "  - alloc main\n  - set:")
    result = call("run", "-", stdin=anew.encode(), columns=110)
    assert "y · f32 [2]\n  40  40\n" in result.out
    assert result.err == ""


def test_how_much_do_four_pipeline_copies_cost(call: Call) -> None:
    """llama.cpp 24355, 13751: the plans with and without, one by one; side by side: `buffers --copies`, `diff`."""
    for option, size in (("--pipeline", "10 KiB"), ("--no-pipeline", "4 KiB")):
        assert f"GPU0 {size}" in " ".join(call("buffers", option, "pipeline", columns=110).out.split())
        assert f"GPU0 2 1 2 KiB 16 KiB {size}" in " ".join(call("plan", option, "pipeline", columns=110).out.split())


def test_does_op_offload_help(call: Call) -> None:
    """llama.cpp 13386, 25859: bytes per batch, on and off."""
    with_it = call("splits", "--bytes", "--op-offload", "offload", columns=110).out
    assert "2 inputs copied, 24 KiB" in with_it
    assert "16 KiB of it weights" in with_it
    assert "nothing is copied between backends" in call("splits", "--bytes", "--no-op-offload", "offload").out


def test_are_only_the_experts_copied_that_are_used(call: Call, tmp_path: Path) -> None:
    """llama.cpp 15346: of a captured model, whose ids nobody knows yet, from how many bytes to how many."""
    batch = (SAMPLES / "moe.yaml").read_text().replace("4], flags", "64], flags").replace("[2, 4]", "[2, 64]")
    batch = batch.replace("[32, 1, 4]", "[32, 1, 64]").replace("[1, 8, 4]", "[1, 8, 64]").replace("[32, 4]", "[32, 64]")
    path = tmp_path / "moe.yaml"
    path.write_text(batch)
    out = call("splits", "--bytes", "--ggml", "0.20.2", path, columns=200).out
    assert "2 weights of experts, 128 KiB whole" in out
    assert "ggml copies only the experts that the batch uses, 32–128 KiB (2 to 8 of 8)" in out
    experts = json.loads(call("splits", "--bytes", "--json", "--ggml", "0.20.2", path).out)["experts"]
    assert [(e["id"], e["used_min"], e["nbytes_min"], e["nbytes_max"]) for e in experts] == [
        ("up", 2, 16384, 65536),
        ("down", 2, 16384, 65536),
    ]


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the package xllamacpp")
def test_a_compute_buffer_of_gigabytes_and_what_would_make_it_smaller(call: Call) -> None:
    """llama.cpp 16725, 23527: batch, outputs and flash attention, each captured and compared with what was."""
    whatever_else = {"fa": ("-fa", "off"), "small": ("-ub", "128"), "one": ("--outputs", "1"), "as_it_was": ()}
    for name, options in whatever_else.items():
        library = ("--for", "library")
        assert call("capture", cached("llama"), "-c", "2048", *library, *options, "-o", f"{name}.json").status == 0
    for name, told in (
        ("fa", r"only in B .*SOFT_MAX"),
        ("small", r"smaller in B .*2 MiB .*attn_inp_kq_mask leaf f16\[2048, 512\] → f16\[2048, 128\]"),
        ("one", r"result_output MUL_MAT f32\[304, 512\] → f32\[304\]"),
    ):
        out = " ".join(call("diff", "--step", "reserve", "as_it_was.json", f"{name}.json", columns=200).out.split())
        growth = re.search(r"compute buffers ([\d.]+ [KM]iB) ([\d.]+ [KM]iB) ([+-])", out)
        assert growth is not None
        assert growth[3] == ("+" if name == "fa" else "-")
        assert re.search(told, out)


def test_tensor_buffer_not_set_what_does_it_mean(call: Call) -> None:
    """whisper.cpp 1859, llama.cpp 25584: the assertion, which graphs bring it about, and which tensor it is here."""
    said = 'ggml-backend.cpp:327: GGML_ASSERT(buf != NULL && "tensor buffer not set") failed'
    out = " ".join(call("explain", "error", said).out.split())
    assert "A tensor that the graph does not reach" in out
    assert "a leaf that no node uses" in out
    assert "a view of something without memory" in out
    assert "c has no memory" in call("run", "buffer-not-set").out
    assert "graph main does not reach c" in call("explain", "c", "buffer-not-set").err


TOP_K = b"""ggmltool: 1
ggml: 0.20.2
backends: [ROCm0, CPU]
contexts: {inputs: {tensors: {x: {type: f32, ne: [8192, 4], flags: [input]}}}}
graphs: {main: {nodes: {t: 'top_k(x, k=40)'}}}
"""


def test_why_is_sampling_on_the_cpu_with_a_long_row(call: Call) -> None:
    """llama.cpp 26399: TOP_K of rows beyond 1024 on ROCm; `explain` opens with it, `supports` has it as well."""
    why = "it sorts rows of up to 1024, and source 0 has 8192"
    said = " ".join(call("explain", "t", "-", stdin=TOP_K, columns=110).out.split())
    assert f"t is on CPU (3.best): ROCm0 does not support this TOP_K ({why}); CPU is the next that does." in said
    assert why in call("supports", "-", stdin=TOP_K, columns=110).out


def test_why_do_packed_weights_stop_the_offload(call: Call) -> None:
    """llama.cpp 12481, 14990: repacked weights are memory that the GPU cannot use, plain ones are offloaded."""
    out = call("supports", "--by", "node", "packed-weights", columns=110).out
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "up", "MUL_MAT", "q4_0,", "f32", "→", "f32", "[64,", "32]", "copy", "yes", "CPU"] in rows
    assert "CPU_REPACK is not one of the buffer types it can use (CUDA0)" in out
    assert "up is on CPU (1.wgt0): its weight w_up is in CPU_REPACK." in call("explain", "up", "packed-weights").out


def test_which_ops_of_my_graph_does_this_device_lack(call: Call) -> None:
    """llama.cpp 20012: a graph of one's own beside what test-backend-ops printed on the real device."""
    case = '"{op}","{params}","support","{yes}","","SYCL"'
    answers = [
        case.format(op="MUL_MAT", params="type_a=f32,type_b=f32,m=16,n=1,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3]", yes=1),
        case.format(op="ROLL", params="shift0=3,shift1=-2,shift3=1,shift4=-1", yes=0),
    ]
    head = "backend_name,op_name,op_params,test_mode,supported,error_message,backend_reg_name"
    Path("SYCL.csv").write_text("\n".join([head, *(f'"SYCL0",{answer}' for answer in answers)]) + "\n")
    Path("clip.yaml").write_text("""ggmltool: 1
backends: [{name: SYCL0, supports: {csv: SYCL.csv}}, CPU]
contexts: {inputs: {tensors: {w: 'f32[64, 32]', x: 'f32[64, 8]'}}}
graphs: {main: {nodes: {h: 'mul_mat(w, x)', y: 'roll(h, 1, 0, 0, 0)'}}}
""")
    rows = [line.split() for line in call("supports", "--by", "node", "clip.yaml", columns=110).out.splitlines()]
    assert [row[-3:] for row in rows if row[:2] == ["1", "y"]] == [["no", "yes", "CPU"]]
    assert [row[-3:] for row in rows if row[:2] == ["0", "h"]] == [["yes", "yes", "SYCL0"]]


def test_my_backend_gives_other_values_than_the_cpu_which_kernel_is_wrong(call: Call) -> None:
    """ggml 1287: what a backend computed, one file a tensor, and the first kernel that is off by itself."""
    assert call("run", "--dump", "gpu", "transformer").status == 0
    assert call("compare", "--values", "gpu", "transformer").status == 0
    path = Path("gpu/q_rope.npy")
    values = np.load(path)
    values[0, 0, 0, 1] += 0.5
    np.save(path, values)
    result = call("compare", "--values", "gpu", "transformer", columns=110)
    assert result.status == 1
    assert "first node whose own kernel is off: q_rope, node 8, ROPE f32[16, 4, 8]" in result.out
    assert "at [1, 0, 0, 0]" in result.out


BREAKDOWN = b"""common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute       unaccounted |
common_memory_breakdown_print: |   - CUDA0 (RTX 3060)   | 12044 = 1034 + (18547 = 16000 +    1024 +    1523) + 17592186036877 |
common_memory_breakdown_print: |   - Host               |                  2782 =  2730 +       0 +      52                |
"""  # noqa: E501


def test_where_is_the_memory_that_nobody_accounts_for(call: Call) -> None:
    """llama.cpp 19437: the breakdown with its sign, and the row of the host."""
    rows = [" ".join(line.split()) for line in call("import", "-", stdin=BREAKDOWN, columns=110).out.splitlines()]
    assert "CUDA0 (RTX 3060) 12044 1034 18547 16000 1024 1523 -7539" in rows
    assert "Host 2782 2730 0 52" in rows


@pytest.mark.parametrize(
    ("thread", "said", "told"),
    [
        ("llama.cpp 28614",
         "GGML_ASSERT((int)sched->hash_set.size >= graph->n_nodes + graph->n_leafs) failed", "With 2048 there is room"),
        ("llama.cpp 28753",
         "ggml_backend_sched_alloc_splits: failed to allocate graph, reserving (backend_ids_changed = 1)",
         "in another buffer type than in the graph before"),
        ("llama.cpp 24492",
         "pre-allocated tensor (cache_k_l3) in a buffer (Vulkan0) that cannot run the operation (SET_ROWS)",
         "no backend that can use that memory supports SET_ROWS"),
        ("llama.cpp 27692",
         "pre-allocated tensor (cache_k_l58) in a buffer (Meta()) that cannot run the operation (NONE)",
         "Use -sm layer with draft and MTP models"),
        ("llama.cpp 24366, 24492, 27692",
         "pre-allocated tensor (output_norm.weight) in a buffer (CUDA3) that cannot run the operation (NONE)",
         "CUDA3 is not among its devices"),
        ("llama.cpp-tq3 38",
         "pre-allocated tensor (cache_k_l0 (view)) in a buffer (CUDA0) that cannot run the operation (SET_ROWS)",
         "A type of the KV cache (-ctk, -ctv) that the device's set_rows does not have, such as one that only a fork"),
        ("llama.cpp 9044", "ggml-backend.c:1568: GGML_ASSERT(i_split < GGML_SCHED_MAX_SPLITS) failed",
         "A hard-coded limit until August 2024"),
        ("llama.cpp 6136", "GGML_ASSERT: ggml-backend.c:1526: n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
         "A hard-coded limit: 10, then 30 (Sept 2025); grows since Aug 2026"),
        ("llama.cpp 2993", 'GGML_ASSERT(alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks") failed',
         "flag fewer outputs, and expand the graph where a result is used"),
        ("llama.cpp 5096", "ggml_tallocr_alloc: not enough space in the buffer (needed 64, largest block available 32)",
         "On the CPU up to 64 bytes of slack hid it"),
        ("llama.cpp 12798", "CUDA error: unspecified launch failure", "MUL_MAT_ID with experts on the CPU (-ot exp"),
        ("ik_llama.cpp 687, llama.cpp 22107", "CUDA error: out of memory",
         "No plan has these: ggml takes them when a kernel runs, so a model that loads may still fail"),
        ("llama.cpp 28753", "unexpected graph reallocation (graph size = 155, nodes = 155, leafs = 58)",
         "Reserve the graph that has the larger tensor"),
        ("stable-diffusion.cpp 1473", "ggml_gallocr_needs_realloc: src 0 (x) of node y is not valid",
         "This tensor is larger than the place that the reserved plan has for it"),
    ],
)  # fmt: skip
def test_the_message_of_a_thread_is_explained(call: Call, thread: str, said: str, told: str) -> None:
    """Each message as the thread quotes it, and what its answer came to."""
    assert told in " ".join(call("explain", "error", said, columns=110).out.split()), thread


def test_a_picture_please(call: Call) -> None:
    """ggml 1156, llama.cpp 10825, 11967: boxes in the colours of the backends, and a whole model that fits a page."""
    text = call("dot", "--style", "ggmltool", "transformer").out
    assert re.findall(r"split #\d+ · \w+", text) == ["split #0 · CUDA0", "split #1 · CPU", "split #2 · CUDA0"]
    whole = call("dot", "--style", "ggmltool", "--fold", "gemma-3-270m").out
    assert "× 17 · layers 0–16 · 680 nodes" in whole
    assert whole.count(" -> ") < 150


def test_the_numbers_as_data_not_as_a_log_to_scrape(call: Call) -> None:
    """llama.cpp 26129: what the log says of splits and buffers, as JSON that says its version and its kind."""
    data = json.loads(call("plan", "--json", "--step", "reserve", "gemma-3-270m-ngl9").out)
    assert (data["ggmltool"], data["kind"], data["ggml"]) == (1, "plan", DEFAULT.name)
    assert (len(data["splits"]), data["splits"][1]["inputs"]) == (152, ["embd"])
    assert data["buffer_sizes"] == {"CUDA0": 538181632, "CPU": 6838272}


LLAMA_CPP = pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the package xllamacpp")


def placed(call: Call, model: str, *options: str, status: int = 0) -> str:
    """What `place` prints for a model of llama.cpp, without margin."""
    result = call("place", cached(model), "-c", "2048", "--margin", "0", *options, columns=110)
    assert result.status == status
    return result.out


@LLAMA_CPP
def test_how_much_memory_before_the_model_is_loaded(call: Call) -> None:
    """ik_llama.cpp 1302: weights, cache and compute buffer per device, with what is to stay free."""
    result = call("place", cached("llama-moe"), "-c", "2048", "-ngl", "99", "-ncmoe", "2", "--device", "CUDA0:12GiB",
                  columns=110)  # fmt: skip
    row = next(line.split() for line in result.out.splitlines() if line.startswith("  CUDA0"))
    assert row[1:5] == ["3.9", "MiB", "4", "MiB"]
    assert row[-2:] == ["1", "GiB"]
    assert "margin: 1 GiB stays free for the driver's context, runtime pools" in result.out
    assert "fits: CUDA0" in result.out


@LLAMA_CPP
def test_which_n_cpu_moe_fits(call: Call) -> None:
    """llama.cpp 27501: the fewest layers of experts on the CPU, and the command that shows it."""
    result = call("sweep", cached("llama-moe"), "-c", "2048", "-ngl", "all", "--n-cpu-moe", "0..4", "--margin", "0",
                  "--device", "CUDA0:19MiB", columns=200)  # fmt: skip
    assert "largest that fits: -ngl 5 --n-cpu-moe 2" in result.out
    rows = [line.split() for line in result.out.splitlines()]
    assert [row[-1] for row in rows if row[:1] in (["–"], ["1"]) and row[-1:] in (["no"], ["yes"])] == ["no", "no"]


@LLAMA_CPP
def test_the_compute_buffer_of_experts_on_the_cpu_is_the_servers(call: Call) -> None:
    """llama.cpp 27872: with --cpu-moe, for the program that runs: one output, as llama-server has, or all."""
    device = ("--cpu-moe", "-ngl", "all", "--device", "CUDA0:1GiB")
    server, library = (placed(call, "llama", *device, *more) for more in ((), ("--outputs", "512")))
    assert "for llama-server, 1 sequence: logits of 1 of 512 tokens" in server
    assert "512 of 512" in library or "all" in library


@LLAMA_CPP
def test_uneven_layers_and_one_card_out_of_memory(call: Call) -> None:
    """llama.cpp 12654: how short the full card is, and the -ts that fits."""
    devices = ("-ngl", "all", "--device", "CUDA0:13MiB,CUDA1:13MiB")
    short = placed(call, "llama", "-ts", "5,1", *devices, status=1)
    assert re.search(r"CUDA0 does not fit: [\d.]+ [KM]iB short", short)
    assert "fits: CUDA0, CUDA1" in placed(call, "llama", "-ts", "auto", *devices)


@LLAMA_CPP
def test_pipeline_copies_that_do_not_fit_are_done_without(call: Call) -> None:
    """llama.cpp 16748: what the four copies cost, and that llama.cpp tries again without them."""
    options = ("-ngl", "all", "--device")
    with_copies = placed(call, "llama", *options, "CUDA0:1GiB,CUDA1:1GiB")
    assert "pipeline copies: 4" in with_copies
    without = placed(call, "llama", *options, "CUDA0:18MiB,CUDA1:18MiB")
    assert "fits: CUDA0, CUDA1" in without
    told = " ".join(without.split())
    assert "pipeline copies do not fit; llama.cpp retries without them: CUDA0 24 MiB with, 12.5 MiB without" in told


@LLAMA_CPP
def test_does_the_compute_buffer_grow_with_the_layers_on_the_gpu(call: Call) -> None:
    """llama.cpp 27953: a column for the compute buffer of each placement."""
    result = call("sweep", cached("llama"), "-c", "2048", "-ngl", "3..6", "--device", "CUDA0:2GiB", "-f", "csv")
    head, *rows = (line.split(",") for line in result.out.splitlines())
    at = head.index("parts.CUDA0.compute")
    assert len(rows) == 4
    assert len({row[at] for row in rows}) == 1


@LLAMA_CPP
def test_can_the_gpu_compute_experts_that_lie_on_the_cpu(call: Call) -> None:
    """ik_llama.cpp 1293: op offload does, from a batch of 32 on, and what switching it off would change."""
    model, options = cached("llama-moe"), ("--cpu-moe", "-ngl", "all", "--device", "CUDA0:1GiB", "--margin", "0")
    assert call("place", model, "-c", "2048", *options, "-o", "placed.json").status == 0
    out = " ".join(call("explain", "ffn_moe_gate-2", "placed.json", columns=110).out.split())
    assert "ffn_moe_gate-2 is on CUDA0 (1.off)" in out
    assert "CUDA0 offloads a batch of 512 (from 32 on)" in out
    assert "switch op offload off" in out


@LLAMA_CPP
def test_a_split_more_where_the_recurrent_state_and_its_layer_part(call: Call) -> None:
    """llama.cpp 19864: the tensor in the other card's memory that begins the split."""
    options = ("-ngl", "all", "-ts", "1,1", "--device", "CUDA0:1GiB,CUDA1:1GiB", "--margin", "0")
    assert call("place", cached("mamba2"), "-c", "512", *options, "-o", "placed.json").status == 0
    rows = [line.split() for line in call("splits", "--format", "table", "placed.json", columns=160).out.splitlines()]
    (number,) = [row[0][1:] for row in rows if row[1:2] == ["CUDA1"]][:1]
    out = call("explain", "split", number, "placed.json", columns=110).out
    assert re.search(r"(its weight|its memory|cache_r_l\d|blk\.\d)", out.split("\n\n")[1])
    assert "is in CUDA1" in out


@LLAMA_CPP
def test_how_much_larger_is_the_cache_without_sliding_windows(call: Call) -> None:
    """koboldcpp 2235: the cache of a model with sliding windows, and with --swa-full."""
    sizes = []
    for name, more in (("windows", ()), ("full", ("--swa-full",))):
        assert call("capture", cached("gemma2"), "-c", "4096", *more, "-o", f"{name}.json").status == 0
        sizes.append(call("diff", "--only", "buffers,sizes", "windows.json", f"{name}.json", columns=110).out)
    assert re.search(r"contexts +[\d.]+ MiB +[\d.]+ MiB +\+[\d.]+ MiB", sizes[1])


ANSWERED = {
    "ik_llama.cpp 1302": "test_how_much_memory_before_the_model_is_loaded",
    "llama.cpp 27501": "test_which_n_cpu_moe_fits",
    "llama.cpp 27872": "test_the_compute_buffer_of_experts_on_the_cpu_is_the_servers",
    "llama.cpp 12654": "test_uneven_layers_and_one_card_out_of_memory",
    "llama.cpp 16748": "test_pipeline_copies_that_do_not_fit_are_done_without",
    "llama.cpp 27953": "test_does_the_compute_buffer_grow_with_the_layers_on_the_gpu",
    "llama.cpp 23527": "test_a_compute_buffer_of_gigabytes_and_what_would_make_it_smaller",
    "ik_llama.cpp 1560": "test_a_compute_buffer_of_gigabytes_and_what_would_make_it_smaller",
    "llama.cpp 15346": "test_are_only_the_experts_copied_that_are_used",
    "ik_llama.cpp 1293": "test_can_the_gpu_compute_experts_that_lie_on_the_cpu",
    "llama.cpp 26399": "test_why_is_sampling_on_the_cpu_with_a_long_row",
    "llama.cpp 24366, 24492, 27692": "test_the_message_of_a_thread_is_explained",
    "llama.cpp-tq3 38": "test_the_message_of_a_thread_is_explained",
    "llama.cpp 28753": "test_the_message_of_a_thread_is_explained",
    "stable-diffusion.cpp 1473": "test_how_often_was_a_graph_reallocated_and_why",
    "llama.cpp 25800, 24657, 6136": "test_the_message_of_a_thread_is_explained",
    "llama.cpp 9044": "test_the_message_of_a_thread_is_explained",
    "llama.cpp 2993": "test_the_message_of_a_thread_is_explained",
    "llama.cpp 5096": "test_the_message_of_a_thread_is_explained",
    "llama.cpp 19864": "test_a_split_more_where_the_recurrent_state_and_its_layer_part",
    "llama.cpp 27880, 14825": "diff_two-orders_80.txt",
    "koboldcpp 2235": "test_how_much_larger_is_the_cache_without_sliding_windows",
    "llama.cpp 11332": "test_out_of_memory_although_there_is_some",
    "llama.cpp 12481, 14990": "test_why_do_packed_weights_stop_the_offload",
    "llama.cpp 19437": "test_where_is_the_memory_that_nobody_accounts_for",
    "llama.cpp 25859": "test_prompts_with_experts_on_the_cpu_wait_for_pcie",
    "llama.cpp 28506": "test_what_split_mode_tensor_makes_of_the_shares",
    "llama.cpp 13661, 21404": "test_rows_of_matrices_on_each_card",
    "llama.cpp 20012": "test_which_ops_of_my_graph_does_this_device_lack",
    "ggml 892": "test_the_same_graph_twice_after_a_reset_is_wrong",
    "ggml 1287": "test_my_backend_gives_other_values_than_the_cpu_which_kernel_is_wrong",
    "llama.cpp 12798": "test_the_message_of_a_thread_is_explained",
    "ik_llama.cpp 687, llama.cpp 22107": "test_the_message_of_a_thread_is_explained",
}
"""Threads and the test with their answer, or the golden file, as have those of the commands in tests/cli/looks.txt:
llama.cpp 25800 (explain_node_by_weight), 13684, 12045, 24366 (explain_preallocated), 18599 (explain_split_weight),
28753, 29083, 17617, 6246 (explain_realloc_size), 17143 (explain_realloc_nodes), 24657 (near-limits_check), 16725, 23527
(gemma-3-270m-ngl9_buffers); ggml 700, 1151 (lifetime_two)."""

PARTLY = {
    "llama.cpp 10351": "no ggml of November 2024",
}
"""Threads that are not answered in full, and what is missing."""


def test_every_thread_has_its_answer() -> None:
    answers = {*globals(), *(look.file for look in looks())}
    assert set(ANSWERED.values()) <= answers
    assert len(ANSWERED) + len(PARTLY) == 34


def asked(call: Call, scenario: str, *commands: str) -> str:
    """What the debugger says to these commands, without the lines' ends."""
    given = [word for command in commands for word in ("-ex", command)]
    result = call("debug", scenario, "--batch", *given, columns=110)
    assert result.status == 0, result.err
    return " ".join(result.out.split())


def test_who_overwrote_my_tensor(call: Call) -> None:
    """ggml 700, 1151: the tensors that have this memory one after the other, and by which function they got it."""
    out = asked(call, "inplace", "break offset CPU 0", "run", "c", "c")
    assert "90 allocate x: 256 bytes at CPU 0x0" in out
    assert "121 compute x6 in the memory of x, at CPU 0x0" in out
    assert "129 free x6: 256 bytes at CPU 0x0" in out
    assert "ggml_gallocr_allocate_node (galloc=0x555210000000, node=0x555700000e80 <x6>, buffer_id=0)" in out


def test_why_did_it_reallocate(call: Call) -> None:
    """llama.cpp 28753, 29083: the tensor, what the plan has for it and what it needs, where ggml finds out."""
    out = asked(call, "outgrown", "break ggml_gallocr_needs_realloc", "run", "next", "p src->name")
    assert "the reserved plan does not serve: source is larger: many (512 → 4096)" in out
    assert "$1 = \"many\", '\\000' <repeats 59 times>" in out


def test_where_does_this_split_begin_and_why(call: Call) -> None:
    """llama.cpp 18599, 27880: the node with the reason, in the passage of the graph around it."""
    out = asked(call, "transformer", "break split 1", "run", "list")
    assert "split 1 begins on CPU at node 23, ffn_in: ffn_in runs on CPU" in out
    assert "23 → ffn_in = MUL(norm2, ffn_norm) f32[64, 8] CPU 1.wgt1" in out


def test_when_did_this_tensor_get_its_backend(call: Call) -> None:
    """llama.cpp 25800: the event, the weight that decided, and what was asked before."""
    out = asked(call, "transformer", "break backend gate", "run", "why gate")
    assert "115 gate → CPU (1.wgt0): its weight ffn_gate is in CPU" in out
    assert "113 gate not decided on CUDA0 (1.off): offloading starts at a batch of 32, and this one is 8" in out


def test_cannot_run_the_operation_who_refused(call: Call) -> None:
    """llama.cpp 13684, 12045: the stack at which ggml aborts, down to the tensor, and what each backend answered."""
    out = asked(call, "preallocated", "run", "bt", "why stored")
    frame = "ggml_backend_sched_backend_id_from_cur (sched=0x555200000000, tensor=0x555700000020 <stored>)"
    assert f"SIGABRT, Aborted. {frame}" in out
    assert f"#0 {frame}" in out
    assert "#1 ggml_backend_sched_split_graph" in out
    assert "13 stored not decided on CPU (1.dst): CPU cannot use memory in GPU0" in out


def test_tensor_buffer_not_set_in_which_call(call: Call) -> None:
    """whisper.cpp 1859: ggml's function is on the stack of the abort, without arguments that nobody told of."""
    out = asked(call, "buffer-not-set", "run", "bt", "up")
    assert "#0 ggml_backend_tensor_set () at event 31 #1 main () at buffer-not-set, step 3, set c" in out


def test_who_copies_this_between_devices(call: Call) -> None:
    """llama.cpp 13386: the copy with its bytes, and the scheduler's call for a split that makes it."""
    out = asked(call, "pipeline", "break ggml_backend_tensor_copy", "run", "bt", "finish")
    assert "102 copy x → GPU0#x#0: 2048 bytes" in out
    assert "#1 ggml_backend_sched_copy_input" in out


QUICK = ("--margin", "0", "-c", "2048", "-ub", "512", "-j", "1")


def squeezed(text: str) -> str:
    return " ".join(text.split())


@needs_library
def test_a_card_with_a_few_mib_left_is_no_fit(call: Call) -> None:
    """llama.cpp's --fit keeps 1 GiB free, for what no plan has; so do place and fit, unless another margin is named."""
    options = (cached("llama"), "-c", "2048", "-ngl", "all", "--device", "CUDA0:16MiB")
    short = call("place", *options, columns=110)
    assert short.status == 1
    assert "CUDA0 does not fit: 1 GiB short of its margin" in short.out
    assert "margin: 1 GiB stays free for the driver's context, runtime pools" in short.out
    assert call("place", *options, "--margin", "512KiB").status == 0
    none = call("fit", *options, "-ub", "512", columns=110)
    assert none.status == 1
    assert "nothing fits" in none.out
    assert "what would help: a smaller --margin" in none.out
    found = call("fit", *options, "-ub", "512", "--margin", "512KiB", "--json")
    left = json.loads(found.out)["candidates"][0]["devices"][0]["left"]
    assert left >= 512 << 10


@needs_library
def test_shares_of_an_uneven_model_are_found(call: Call) -> None:
    """llama.cpp 12654: equal shares of a 49B overflow one of two cards of 19 GiB; -ts auto leaves 4 GiB on each."""
    options = (real("nemotron-49b"), "-c", "8192", "-ngl", "all", "--device", "CUDA0:19GiB,CUDA1:19GiB")
    half = call("place", *options, "-ts", "40,41", "--margin", "0", columns=110)
    assert half.status == 1
    assert re.search(r"CUDA0 does not fit: \d+ MiB short", half.out)
    found = call("place", *options, "-ts", "auto", columns=110)
    assert found.status == 0
    assert "-ts 31,50" in found.out
    assert "fits: CUDA0, CUDA1" in found.out


@needs_library
def test_of_equals_the_largest_that_fits_is_the_most_useful(call: Call) -> None:
    """Of placements with equally many layers on GPUs: the largest ubatch, and the rule is told."""
    devices = ("--device", "CUDA0:13MiB,CUDA1:13MiB")
    out = call("sweep", cached("llama"), "-c", "2048", "-ngl", "all", "-ts", "auto", "-ub", "256,512", *devices,
               "--margin", "0", columns=110).out  # fmt: skip
    assert "largest that fits: -ub 512 -ngl 7 -ts 3,4" in out
    assert "the largest -ub, the most memory left" in squeezed(out)
    assert " -ts 3,4 --margin 0 -c 2048 -ub 512" in out


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


@needs_library
def test_prompts_with_experts_on_the_cpu_wait_for_pcie(call: Call) -> None:
    """llama.cpp 25859: the seconds of copies and of computing, with pinned pages instead, and on the CPU instead."""
    options = ("-c", "2048", "-ngl", "all", "--cpu-moe", "--margin", "0", "--device", "RTX 3090:1GiB")
    assert call("place", cached("llama-moe"), *options, "-o", "placed.json").status == 0
    out = call("splits", "--seconds", "placed.json", columns=110).out
    assert re.search(r"^copies \d+ µs \(.*\), computes \d+ µs", out, re.MULTILINE)
    assert "weights in pinned memory (--no-mmap): " in out
    assert "without op offload: " in out
    told = json.loads(call("splits", "--seconds", "--json", "placed.json").out)
    assert told["with_pinned_weights"]["mid"] < told["seconds"]["mid"]


@needs_library
def test_fit_gives_up_with_cpu_moe(call: Call) -> None:
    """llama.cpp 27872: --fit stops at -ot in its own words; `fit` goes on, and what it finds fits."""
    options = ("--cpu-moe", "-c", "2048", "--margin", "0", "--device", "CUDA0:12MiB")
    placed = call("place", cached("llama-moe"), "--fit", *options, columns=110)
    assert placed.status == 1
    assert "model_params::tensor_buft_overrides already set by user, abort" in squeezed(placed.out)
    assert re.search(r"CUDA0 does not fit: [\d.]+ MiB short", placed.out)
    found = call("fit", cached("llama-moe"), *options, "-ub", "512", "-j", "1", columns=110)
    assert found.status == 0
    assert "fits: CUDA0" in found.out
    assert "already set by user, abort" in squeezed(found.out)


@needs_library
def test_more_is_allocated_than_is_free(call: Call) -> None:
    """llama.cpp 19437: how much is missing, and the placement that has what is free."""
    device = ("--device", "CUDA0:12MiB", "--margin", "0", "-c", "2048")
    assert re.search(
        r"CUDA0 does not fit: [\d.]+ MiB short", call("place", cached("llama"), "-ngl", "all", *device).out
    )
    found = json.loads(call("fit", cached("llama"), *QUICK, "--device", "CUDA0:12MiB", "--json").out)
    _, *place = shlex.split(found["again"])
    assert "fits: CUDA0" in call(*place).out


@needs_library
def test_rows_of_matrices_on_each_card(call: Call, tmp_path: Path) -> None:
    """llama.cpp 13661, 21404: today's llama.cpp refuses -sm row, in its words; why, and what to take instead."""
    model = shutil.copy(cached("llama"), tmp_path / "model.gguf")
    result = call("place", model, "-c", "512", "-ngl", "all", "-sm", "row", "--device", "CUDA0:1GiB,CUDA1:1GiB")
    assert result.status == 1
    assert "model.gguf: error loading model: device CUDA0 does not support split buffers" in result.err
    assert "Use -sm layer" in result.err


@needs_library
def test_what_split_mode_tensor_makes_of_the_shares(call: Call) -> None:
    """llama.cpp 28506: tensors are cut at whole blocks and heads, so that shares drift from -ts."""
    options = ("-c", "512", "-ngl", "all", "-sm", "tensor", "-ts", "3,1", "--device", "CUDA0:1GiB,CUDA1:1GiB")
    out = call("place", cached("llama"), *options, "--margin", "0", columns=110).out
    shares = re.search(r"cut tensors: CUDA0 ([\d.]+)% \(-ts 75\.0%\), CUDA1 ([\d.]+)% \(-ts 25\.0%\)", out)
    assert shares is not None
    first, second = map(float, shares.groups())
    assert first < 75 < 75 + second
    assert first + second == pytest.approx(100, abs=0.2)


@needs_library
def test_the_pipeline_is_left_out_where_its_copies_do_not_fit(call: Call) -> None:
    """llama.cpp 16748: llama.cpp tries again without, and a placement that fits so counts as one that fits."""
    options = (cached("llama"), *QUICK, "-ngl", "all", "--device", "CUDA0:18MiB,CUDA1:18MiB")
    found = call("fit", *options, columns=110)
    assert found.status == 0
    assert "pipeline copies do not fit; llama.cpp retries without them" in squeezed(found.out)
    assert "fits: CUDA0, CUDA1" in found.out
