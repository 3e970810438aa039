"""How long a sweep over placements takes.

    python -m tests.benchmarks.placing

Prints a table of figures with the goal of each, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.place.options import PlaceOptions, n_cpu_moe
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.sweep import Job, sweep, usable_processes

LAYERS, WIDTH, HEADS, TOKENS, CONTEXT = 67, 1024, 16, 512, 4096
HEAD = WIDTH // HEADS
MOE_LAYERS, EXPERTS, CHOSEN, EXPERT = 52, 128, 8, 768
PLACEMENTS = 100
GOAL = 1.0
"""Seconds of 100 placements of 2 000 nodes on two cores."""
EACH = 10.0
"""Milliseconds of work for one of them."""


def model(n_layer: int = LAYERS, moe: bool = False) -> dict[str, Any]:
    """A transformer under llama.cpp's names, everything on the CPU: 30 nodes a layer, or 58 with experts."""
    weights: dict[str, Any] = {"token_embd.weight": f"q6_K[{WIDTH}, 32000]", "output_norm.weight": f"f32[{WIDTH}]"}
    caches: dict[str, Any] = {}
    nodes: dict[str, Any] = {"l_out--1": "get_rows(token_embd.weight, inp_tokens)"}
    for il in range(n_layer):
        weights |= {f"blk.{il}.{name}.weight": f"f32[{WIDTH}]" for name in ("attn_norm", "ffn_norm")}
        weights |= {f"blk.{il}.attn_{name}.weight": f"q4_K[{WIDTH}, {WIDTH}]" for name in ("q", "k", "v", "output")}
        weights |= _expert_weights(il) if moe else _dense_weights(il)
        caches |= {f"cache_{kind}_l{il}": f"f16[{WIDTH}, {CONTEXT}]" for kind in "kv"}
        nodes |= _attention(il) | (_experts(il) if moe else _dense(il))
    nodes |= {
        "norm": f"rms_norm(l_out-{n_layer - 1}, eps=1e-6)",
        "result_norm": "mul(norm, output_norm.weight)",
        "result_output": {"op": "mul_mat", "src": ["token_embd.weight", "result_norm"], "flags": ["output"]},
    }
    inputs = {
        "inp_tokens": {"type": "i32", "ne": [TOKENS], "flags": ["input"]},
        "inp_pos": {"type": "i32", "ne": [TOKENS], "flags": ["input"]},
        "idxs": {"type": "i64", "ne": [TOKENS], "flags": ["input"]},
        "mask": {"type": "f16", "ne": [CONTEXT, TOKENS], "flags": ["input"]},
    }
    return {
        "ggmltool": 1,
        "name": f"transformer of {n_layer} layers{' with experts' if moe else ''}",
        "meta": {"n_layer": n_layer, "n_tokens": TOKENS, "n_seq_max": 1},
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": weights},
            "kv": {"buft": "CPU", "tensors": caches},
            "inputs": {"tensors": inputs},
        },
        "graphs": {"main": {"nodes": nodes}},
    }


def _dense_weights(i: int) -> dict[str, Any]:
    weights = {f"blk.{i}.ffn_{name}.weight": f"q4_K[{WIDTH}, {4 * WIDTH}]" for name in ("gate", "up")}
    return weights | {f"blk.{i}.ffn_down.weight": f"q6_K[{4 * WIDTH}, {WIDTH}]"}


def _expert_weights(i: int) -> dict[str, Any]:
    weights = {f"blk.{i}.ffn_{name}_exps.weight": f"q4_K[{WIDTH}, {EXPERT}, {EXPERTS}]" for name in ("gate", "up")}
    weights[f"blk.{i}.ffn_gate_inp.weight"] = f"f32[{WIDTH}, {EXPERTS}]"
    return weights | {f"blk.{i}.ffn_down_exps.weight": f"q6_K[{EXPERT}, {WIDTH}, {EXPERTS}]"}


def _attention(i: int) -> dict[str, Any]:
    cache = f"ne=[{HEAD}, {HEADS}, {CONTEXT}], nb=[{2 * HEAD}, {2 * WIDTH}]"
    nodes: dict[str, Any] = {
        f"norm-{i}": f"rms_norm(l_out-{i - 1}, eps=1e-6)",
        f"attn_norm-{i}": f"mul(norm-{i}, blk.{i}.attn_norm.weight)",
    }
    for name in "qkv":
        nodes[f"{name}cur-{i}"] = f"mul_mat(blk.{i}.attn_{name}.weight, attn_norm-{i})"
        nodes[f"{name}cur-{i} (reshaped)"] = {"op": "reshape", "src": [f"{name}cur-{i}"], "ne": [HEAD, HEADS, TOKENS]}
    for name in "qk":
        nodes[f"{name}rope-{i}"] = {
            "op": "rope", "src": [f"{name}cur-{i} (reshaped)", "inp_pos"], "n_dims": HEAD, "mode": "neox",
        }  # fmt: skip
    for name, source in (("k", f"krope-{i}"), ("v", f"vcur-{i} (reshaped)")):
        nodes[f"{name}rows-{i}"] = {"op": "reshape", "src": [source], "ne": [WIDTH, TOKENS]}
        nodes[f"{name}stored-{i}"] = f"set_rows(cache_{name}_l{i}, {name}rows-{i}, idxs)"
        nodes[f"{name}all-{i}"] = f"view(cache_{name}_l{i}, {cache}, offset=0)"
        nodes[f"{name}perm-{i}"] = f"permute({name}all-{i}, 0, 2, 1, 3)"
    nodes |= {
        f"qperm-{i}": f"permute(qrope-{i}, 0, 2, 1, 3)",
        f"fattn-{i}": f"flash_attn_ext(qperm-{i}, kperm-{i}, vperm-{i}, mask, scale=0.125)",
        f"kqv_out-{i}": {"op": "reshape", "src": [f"fattn-{i}"], "ne": [WIDTH, TOKENS]},
        f"attn_out-{i}": f"mul_mat(blk.{i}.attn_output.weight, kqv_out-{i})",
        f"ffn_inp-{i}": f"add(attn_out-{i}, l_out-{i - 1})",
        f"ffn_norm0-{i}": f"rms_norm(ffn_inp-{i}, eps=1e-6)",
        f"ffn_norm-{i}": f"mul(ffn_norm0-{i}, blk.{i}.ffn_norm.weight)",
    }
    return nodes


def _dense(i: int) -> dict[str, Any]:
    return {
        f"ffn_gate-{i}": f"mul_mat(blk.{i}.ffn_gate.weight, ffn_norm-{i})",
        f"ffn_up-{i}": f"mul_mat(blk.{i}.ffn_up.weight, ffn_norm-{i})",
        f"ffn_swiglu-{i}": f"swiglu_split(ffn_gate-{i}, ffn_up-{i})",
        f"ffn_down-{i}": f"mul_mat(blk.{i}.ffn_down.weight, ffn_swiglu-{i})",
        f"l_out-{i}": f"add(ffn_down-{i}, ffn_inp-{i})",
    }


def _experts(i: int) -> dict[str, Any]:
    """As llama.cpp's build_moe_ffn: the weights of the chosen experts add up to 1, and so do their results."""
    row = 4 * WIDTH
    exps = f"blk.{i}.ffn"
    nodes: dict[str, Any] = {
        f"ffn_moe_logits-{i}": f"mul_mat({exps}_gate_inp.weight, ffn_norm-{i})",
        f"ffn_moe_probs-{i}": f"soft_max(ffn_moe_logits-{i})",
        f"ffn_moe_probs3-{i}": f"reshape(ffn_moe_probs-{i}, ne=[1, {EXPERTS}, {TOKENS}])",
        f"ffn_moe_argsort-{i}": f"argsort(ffn_moe_probs-{i}, desc)",
        f"ffn_moe_topk-{i}": f"view(ffn_moe_argsort-{i}, ne=[{CHOSEN}, {TOKENS}], nb=[{4 * EXPERTS}])",
        f"ffn_moe_weights-{i}": f"get_rows(ffn_moe_probs3-{i}, ffn_moe_topk-{i})",
        f"ffn_moe_weights2-{i}": f"reshape(ffn_moe_weights-{i}, ne=[{CHOSEN}, {TOKENS}])",
        f"ffn_moe_weights_sum-{i}": f"sum_rows(ffn_moe_weights2-{i})",
        f"ffn_moe_weights_clamped-{i}": f"clamp(ffn_moe_weights_sum-{i}, min=6e-5, max=1e30)",
        f"ffn_moe_weights_norm-{i}": f"div(ffn_moe_weights2-{i}, ffn_moe_weights_clamped-{i})",
        f"ffn_moe_weights3-{i}": f"reshape(ffn_moe_weights_norm-{i}, ne=[1, {CHOSEN}, {TOKENS}])",
        f"ffn_norm3-{i}": f"reshape(ffn_norm-{i}, ne=[{WIDTH}, 1, {TOKENS}])",
        f"ffn_moe_gate-{i}": f"mul_mat_id({exps}_gate_exps.weight, ffn_norm3-{i}, ffn_moe_topk-{i})",
        f"ffn_moe_up-{i}": f"mul_mat_id({exps}_up_exps.weight, ffn_norm3-{i}, ffn_moe_topk-{i})",
        f"ffn_moe_swiglu-{i}": f"swiglu_split(ffn_moe_gate-{i}, ffn_moe_up-{i})",
        f"ffn_moe_down-{i}": f"mul_mat_id({exps}_down_exps.weight, ffn_moe_swiglu-{i}, ffn_moe_topk-{i})",
        f"ffn_moe_weighted-{i}": f"mul(ffn_moe_down-{i}, ffn_moe_weights3-{i})",
    }
    for k in range(CHOSEN):
        nodes[f"ffn_moe_one{k}-{i}"] = (
            f"view(ffn_moe_weighted-{i}, ne=[{WIDTH}, {TOKENS}], nb=[{CHOSEN * row}], offset={k * row})"
        )
    total = f"ffn_moe_one0-{i}"
    for k in range(1, CHOSEN):
        nodes[f"ffn_moe_sum{k}-{i}"] = f"add({total}, ffn_moe_one{k}-{i})"
        total = f"ffn_moe_sum{k}-{i}"
    nodes[f"l_out-{i}"] = f"add({total}, ffn_inp-{i})"
    return nodes


def options(n_layer: int, moe: bool) -> list[PlaceOptions]:
    """Placements that differ in the layers on GPUs, or in those whose experts are."""
    if not moe:
        return [PlaceOptions(i % (n_layer + 2)) for i in range(PLACEMENTS)]
    shares = ((), (3.0, 1.0))
    return [PlaceOptions(-1, overrides=tuple(n_cpu_moe(i // 2)), tensor_split=shares[i % 2]) for i in range(PLACEMENTS)]


def main() -> None:
    for n_layer, moe in ((LAYERS, False), (MOE_LAYERS, True)):
        start = time.perf_counter()
        loaded = load_spec(model(n_layer, moe))
        placer = Placer(loaded, read_devices(["CUDA0:8GiB", "CUDA1:8GiB"]))
        n_nodes = len(loaded.graphs["main"].nodes)
        print(f"{loaded.name}: {n_nodes} nodes, loaded in {time.perf_counter() - start:.2f} s")
        jobs = [Job(0, given) for given in options(n_layer, moe)]
        for processes in sorted({1, usable_processes()}):
            start, used = time.perf_counter(), sum(os.times()[:4])
            sweep([placer], jobs, processes)
            took, used = time.perf_counter() - start, sum(os.times()[:4]) - used
            print(
                f"{PLACEMENTS} placements, {processes} processes  {took:6.2f} s, {1000 * used / PLACEMENTS:.1f} ms of "
                f"work for each  (goals for 2 000 nodes, on two cores: {GOAL:.0f} s, {EACH:.0f} ms)"
            )


if __name__ == "__main__":
    main()
