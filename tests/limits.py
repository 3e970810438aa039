"""Scenarios that are exactly at a limit of ggml, and the same with one more."""

from __future__ import annotations

from typing import Any

Scenario = dict[str, Any]

GPU: Scenario = {"name": "G0", "profile": "custom"}


def chain(n: int, first: str = "x") -> Scenario:
    """`n` nodes, each the square of the one before."""
    return {f"n{k}": {"op": "sqr", "src": [f"n{k - 1}" if k else first]} for k in range(n)}


def on_cpu(nodes: Scenario, graph_size: int, flags: list[str]) -> Scenario:
    return {
        "ggmltool": 1,
        "backends": ["CPU"],
        "scheduler": {"graph_size": graph_size},
        "contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [64], "flags": flags}}}},
        "graphs": {"main": {"nodes": nodes}},
    }


def tensors(n: int) -> Scenario:
    """`n` nodes and leafs for the five slots that a graph_size of 4 makes."""
    return on_cpu(chain(n - 1), 4, ["input"])


def slots(n: int) -> Scenario:
    """`n` slots: those of the nodes and leafs, and one for the NULL that pass 3 looks up for a leaf without backend."""
    return on_cpu(chain(n - 2), 4, [])


def context(pairs: int) -> Scenario:
    """`pairs` copies to other backends, four and a dependency each, for a context with room for 988 tensors."""
    names = [f"G{k}" for k in range(15)] + ["CPU"]
    nodes: Scenario = {}
    ids = ["x"]
    left = pairs
    for k in range(36):
        sources = ids[-min(10, left + 1, len(ids)) :]
        # The one before is on the backend before: every source is on another backend, and new there.
        sources = sources[-left:] if left else sources[:0]
        left -= len(sources)
        # Of the ops in long form this is the one that may have ten sources: it has no rule.
        nodes[f"n{k}"] = {"op": "flash_attn_back", "src": sources, "type": "f32", "ne": [1], "backend": names[k % 16]}
        ids.append(f"n{k}")
        if not left:
            break
    if left:
        raise ValueError(f"{pairs} copies are too many")
    return {
        "ggmltool": 1,
        "backends": [{"name": n, "profile": "custom"} if n != "CPU" else n for n in names],
        "scheduler": {"graph_size": 18, "parallel": True},
        "contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [1], "backend": "CPU"}}}},
        "graphs": {"main": {"nodes": nodes, "expand": list(nodes)}},
    }


def backends(n: int) -> Scenario:
    return on_cpu(chain(1), 2048, ["input"]) | {
        "backends": [*({"name": f"G{k}", "profile": "custom"} for k in range(n - 1)), "CPU"]
    }


def free_blocks(n: int) -> Scenario:
    """A chunk that comes apart into `n` free blocks, the last one its unused rest.

    Every sum is computed in place; a row `l` is freed then, the number `i` behind it is needed until the end.
    """
    holes = n - 1
    leafs: Scenario = {id: {"type": "f32", "ne": [64], "flags": ["input"]} for id in ("x", "z")}
    nodes: Scenario = {}
    last = "x"
    for k in range(holes):
        leafs[f"l{k}"] = leafs["x"]
        leafs[f"i{k}"] = {"type": "i32", "ne": [1], "flags": ["input"]}
        nodes[f"s{k}"] = f"add_id({last}, l{k}, i{k})"
        last = f"s{k}"
    for k in range(holes):
        nodes[f"t{k}"] = f"add_id({last}, z, i{k})"
        last = f"t{k}"
    return {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"c": {"tensors": leafs}},
        "graphs": {"main": {"nodes": nodes}},
    }


def chunks(huge: int) -> Scenario:
    """Sixteen chunks, the last of them without a limit, with room for one of the `huge` tensors of 2^62 bytes."""
    small = {f"s{k:02}": {"type": "f32", "ne": [256], "flags": ["input"]} for k in range(15)}
    large = {f"t{k}": {"type": "i8", "ne": [2**31, 2**31], "flags": ["input"]} for k in range(huge)}
    every = {**small, **large}
    nodes = {f"y_{id}": {"op": "custom", "src": [id], "type": "f32", "ne": [1]} for id in every}
    return {
        "ggmltool": 1,
        "backends": [{**GPU, "max_size": 1024}, "CPU"],
        "contexts": {"c": {"tensors": {id: {**t, "backend": "G0"} for id, t in every.items()}}},
        "graphs": {"main": {"nodes": {id: {**n, "backend": "G0"} for id, n in nodes.items()}, "expand": list(nodes)}},
    }


def allocator_slots(roots: int) -> Scenario:
    """Two leafs and a node: three slots, and one more for each of the `roots` that are not in the graph."""
    v = {"type": "f32", "ne": [64], "view_src": "r"}
    own = {"type": "f32", "ne": [64]}
    return {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"w": {"buft": "CPU", "tensors": {"r": own, "a": v if roots else own, "b": own}}},
        "graphs": {"main": {"nodes": {"y": "add(a, b)"}}},
    }


def split_inputs(n: int, at_once: int = 1) -> Scenario:
    """`n` tensors on the CPU that nodes on a GPU need, the last `at_once` of them one node."""
    leafs = {f"x{k}": {"type": "f32", "ne": [4], "flags": ["input"]} for k in range(n)}
    nodes: Scenario = {
        f"n{k}": {"op": "sqr", "src": [f"x{k}"], "backend": "G0"} for k in range(n - at_once)
    }  # fmt: skip
    last = [f"x{k}" for k in range(n - at_once, n)]
    nodes["last"] = {"op": "custom", "src": last, "type": "f32", "ne": [4], "backend": "G0"}
    return {
        "ggmltool": 1,
        "backends": [GPU, "CPU"],
        "contexts": {"c": {"tensors": leafs}},
        "graphs": {"main": {"nodes": nodes, "expand": list(nodes)}},
    }


def buffer(nbytes: int, **gpu: object) -> Scenario:
    """A GPU on which a context takes 1 KiB and the compute buffer `nbytes`."""
    return {
        "ggmltool": 1,
        "backends": [{**GPU, **gpu}, "CPU"],
        "contexts": {"w": {"buft": "G0", "tensors": {"w": {"type": "f32", "ne": [256]}}}},
        "graphs": {"main": {"nodes": {"y": {"op": "custom", "src": ["w"], "type": "f32", "ne": [nbytes // 4]}}}},
    }


AT: dict[str, tuple[Scenario, Scenario]] = {
    # the gauge's key: the scenario that is just possible, and the one on which ggml fails
    "backends": (backends(16), backends(17)),
    "sched_tensors": (tensors(5), tensors(6)),
    "sched_slots": (slots(5), slots(6)),
    "sched_context": (context(197), context(198)),
    "gallocr_slots": (allocator_slots(0), allocator_slots(1)),
    "chunks": (chunks(1), chunks(2)),
    "free_blocks": (free_blocks(256), free_blocks(257)),
}
"""Limits beyond which ggml aborts, for what a scenario can reach."""
