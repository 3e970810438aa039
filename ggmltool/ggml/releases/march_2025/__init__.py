"""ggml of March 2025: today's scheduler by other rules, over an allocator without chunks."""

from __future__ import annotations

from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.ggml_0_20_2 import RELEASE as GGML_0_20_2
from ggmltool.ggml.releases.release import GRADS, KEYS, LEAFS, NODES, USED, Release, Rules

RELEASE = Release(
    "2025-03",
    "2025-03-13",
    "ffed2f04",
    "march_2025",
    Rules(
        ignores_weights=frozenset((int(Op.ROPE),)),
        takes_first_able=False,
        output_marks_root=False,
        always_checks_sources=False,
        max_split_inputs=10,
        inputs_grow=False,
        counts_room=True,
        reserve_waits_first=False,
        refuses_second_graph=False,
        copies_turn_at_alloc=False,
        copies_used_experts=False,
        max_chunks=1,
    ),
    like=GGML_0_20_2,
    cgraph_size=80,
    graph_fields=(NODES, LEAFS, KEYS, *GRADS, USED),
    prints_functions=False,
    prints_use_counts=False,
    keeps_debug_log=True,
    debug_realloc=False,
    compute_flag=False,
    counts_empty=True,
)
