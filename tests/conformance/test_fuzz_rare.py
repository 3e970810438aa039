"""Random scenarios at the ends of what a scenario can say, on the engine and on the real library of each release."""

from __future__ import annotations

from collections import Counter

from ggmltool.ask.ops.record import op_facts
from ggmltool.ggml.dtypes import TYPES
from tests.conformance.fuzz_rare import rare_scenario
from tests.conformance.run import outcomes

SEEDS = range(12, 39)


def test_the_engine_does_what_the_real_library_does(release: str) -> None:
    assert {o.seed: o.differences for o in outcomes(SEEDS, release, kind="rare") if o.differences} == {}


def test_a_seed_always_gives_the_same_scenario() -> None:
    assert [rare_scenario(seed) for seed in range(8)] == [rare_scenario(seed) for seed in range(8)]


def test_scenarios_have_all_ops_types_and_keys() -> None:
    words: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    for seed in range(150):
        made = rare_scenario(seed)
        contexts, graphs = made["contexts"].values(), made["graphs"].values()
        nodes = [n for g in graphs for n in g["nodes"].values() if isinstance(n, dict)]
        words.update(n["op"] for n in nodes)
        words.update(t["type"] for t in (*nodes, *(t for c in contexts for t in c["tensors"].values())))
        for part in (made, *contexts, *graphs, *nodes, *made["backends"], made.get("scheduler", {})):
            keys.update(list(part) if isinstance(part, dict) else ())
    names = {f.name.lower() for f in op_facts() if f.function_of is None} - {"none", "flash_attn_back"}
    assert {name for name in names if not words[name]} == set()
    assert {name for name in TYPES if not words[name]} == set()
    wanted = ("in", "at", "size", "uncomputed", "copy_callback", "graph_size", "supports", "backend", "max_size")
    assert {key for key in wanted if not keys[key]} == set()
