"""How long a sweep over placements takes.

    python -m tests.benchmarks.placing

Prints a table of figures with the goal of each, and never fails: a slow machine is no broken one.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ggmltool.scenario.device_texts import read_devices
from ggmltool.scenario.load import load_model
from ggmltool.sources.llama.layers import PlaceOptions
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.sweep import Job, sweep, usable_processes

LAYERS, WIDTH, HEADS, TOKENS, CONTEXT = 67, 1024, 16, 512, 4096
HEAD = WIDTH // HEADS
PLACEMENTS = 100
GOAL = 10.0
"""Seconds on two cores."""


def model(n_layer: int = LAYERS) -> dict[str, Any]:
    """A transformer under llama.cpp's names, 32 nodes a layer, everything on the CPU."""
    weights: dict[str, Any] = {"token_embd.weight": f"q6_K[{WIDTH}, 32000]", "output_norm.weight": f"f32[{WIDTH}]"}
    caches: dict[str, Any] = {}
    nodes: dict[str, Any] = {"l_out--1": "get_rows(token_embd.weight, inp_tokens)"}
    for il in range(n_layer):
        weights |= {f"blk.{il}.{name}.weight": f"f32[{WIDTH}]" for name in ("attn_norm", "ffn_norm")}
        weights |= {f"blk.{il}.attn_{name}.weight": f"q4_K[{WIDTH}, {WIDTH}]" for name in ("q", "k", "v", "output")}
        weights |= {f"blk.{il}.ffn_{name}.weight": f"q4_K[{WIDTH}, {4 * WIDTH}]" for name in ("gate", "up")}
        weights[f"blk.{il}.ffn_down.weight"] = f"q6_K[{4 * WIDTH}, {WIDTH}]"
        caches |= {f"cache_{kind}_l{il}": f"f16[{WIDTH}, {CONTEXT}]" for kind in "kv"}
        nodes |= _layer(il)
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
        "name": f"transformer of {n_layer} layers",
        "meta": {"n_layer": n_layer, "n_tokens": TOKENS, "n_seq_max": 1},
        "contexts": {
            "weights": {"buft": "CPU", "usage": "weights", "tensors": weights},
            "kv": {"buft": "CPU", "tensors": caches},
            "inputs": {"tensors": inputs},
        },
        "graphs": {"main": {"nodes": nodes}},
    }


def _layer(i: int) -> dict[str, Any]:
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
        f"ffn_gate-{i}": f"mul_mat(blk.{i}.ffn_gate.weight, ffn_norm-{i})",
        f"ffn_up-{i}": f"mul_mat(blk.{i}.ffn_up.weight, ffn_norm-{i})",
        f"ffn_swiglu-{i}": f"swiglu_split(ffn_gate-{i}, ffn_up-{i})",
        f"ffn_down-{i}": f"mul_mat(blk.{i}.ffn_down.weight, ffn_swiglu-{i})",
        f"l_out-{i}": f"add(ffn_down-{i}, ffn_inp-{i})",
    }
    return nodes


def main() -> None:
    start = time.perf_counter()
    loaded = load_model(model())
    placer = Placer(loaded, read_devices(["CUDA0:8GiB", "CUDA1:8GiB"]))
    n_nodes = len(loaded.graphs["main"].nodes)
    print(f"{n_nodes} nodes, loaded in {time.perf_counter() - start:.2f} s")
    jobs = [Job(0, PlaceOptions(i % (LAYERS + 2))) for i in range(PLACEMENTS)]
    for processes in sorted({1, usable_processes()}):
        start, used = time.perf_counter(), sum(os.times()[:4])
        sweep([placer], jobs, processes)
        took, used = time.perf_counter() - start, sum(os.times()[:4]) - used
        print(
            f"{PLACEMENTS} placements, {processes} processes  {took:6.2f} s, {used:.2f} s of them at work"
            f"  (goal on two cores: {GOAL:.0f} s)"
        )


if __name__ == "__main__":
    main()
