"""ggml of January 2024: a scheduler of four passes that measures a graph first, and an allocator without a plan."""

from __future__ import annotations

from ggmltool.ggml.releases.ggml_0_20_2 import RELEASE as GGML_0_20_2
from ggmltool.ggml.releases.release import LEAFS, NODES, GraphField, Release, Rules

MAX_SPLITS = 256
MAX_SPLIT_INPUTS = 16

RELEASE = Release(
    "2024-01",
    "2024-01-12",
    "8fb376b4",
    "january_2024",
    Rules(
        ignores_weights=frozenset(),
        takes_first_able=False,
        output_marks_root=False,
        max_split_inputs=MAX_SPLIT_INPUTS,
        inputs_grow=False,
        counts_room=True,
        refuses_second_graph=False,
        copies_used_experts=False,
        max_chunks=1,
    ),
    like=GGML_0_20_2,
    tensor_size=368,
    cgraph_size=80,
    tensor_alignment=64,
    hash_shift=0,
    graph_fields=(NODES, LEAFS, GraphField("visited_hash_table.keys", "slot"), GraphField("grads", "node", grads=True)),
    max_splits=MAX_SPLITS,
    max_copies=1,
    steps=("measure", "compute"),
    prints_functions=False,
    prints_passes=True,
    keeps_times=True,
    keeps_debug_log=True,
    takes_gpus=False,
    compute_flag=False,
    counts_empty=True,
    gpu_families=frozenset(("CUDA", "ROCm")),
)
