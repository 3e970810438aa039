"""The search of `fit` finds what trying everything finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

import pytest

from ggmltool.ggml.sched import reader
from ggmltool.scenario.spec import BackendSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.processes import in_processes
from ggmltool.sources.llama.search import setting_search
from ggmltool.sources.llama.search.anatomy import Request, Speed, anatomies
from ggmltool.sources.llama.search.candidates import OBJECTIVES, Candidate, CandidatePlanner, Objective, rank
from ggmltool.sources.llama.search.search import Saved, one_model, search, searched_model
from ggmltool.sources.llama.search.setting_search import Wish
from ggmltool.sources.llama.search.space import PARTS, Choice, Setting, Space, Spill
from ggmltool.sources.llama.search.tables import Tables
from tests.sources.fake_device import FakeGpu
from tests.sources.fake_gpus import Settings
from tests.sources.library import needs_library
from tests.sources.models import cached
from tests.sources.searching import SETTING, devices, model
from tests.sources.test_place import check

pytestmark = needs_library


def choices(tables: Tables) -> Iterator[Choice]:
    """All choices of the space, as one would write loops."""
    n, k = tables.n, len(tables.gpus)
    for counts in product(range(n + 1), repeat=k):
        if sum(counts) > n:
            continue
        starts = [n - sum(counts) + sum(counts[:i]) for i in range(k)]
        units = [chain(*tables.ways(s, s + c)) for s, c in zip(starts, counts, strict=True)]
        for spilled in product(*units):
            yield tables.choice(counts, spilled)


def exhaustive(name: str, on: list[BackendSpec], space: Space, objective: Objective) -> list[Candidate]:
    """Everything that fits, the best first."""
    placer = Placer(model(name), on)
    request = Request()
    speed = Speed(placer, anatomies(placer, request.cached), {}, request)
    planner = CandidatePlanner(Measurer(placer), space, speed, SETTING, 0)
    planned = [planner.plan(choice) for choice in choices(Tables(placer, space))]
    return sorted((c for c in planned if c.fits), key=lambda c: rank(objective, c, c.seconds.of(request)))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("llama", ("CUDA0:6MiB",)),
        ("llama", ("CUDA0:5MiB", "CUDA1:5MiB")),
        ("qwen3", ("CUDA0:8MiB", "Vulkan0:6MiB")),
    ],
)
def test_the_best_is_no_worse_than_that_of_all_placements(
    name: str, memory: tuple[str, ...], objective: Objective
) -> None:
    on, space = devices(*memory), Space(contexts=(512,), margins=(0,))
    found = search(one_model(model(name), lambda _: on), space, Wish(objective))
    everything = exhaustive(name, on, space, objective)
    assert found.proved
    assert found.best is not None
    request = Request()
    assert rank(objective, found.best, found.best.seconds.of(request)) == rank(
        objective, everything[0], everything[0].seconds.of(request)
    )


def test_a_search_makes_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A State takes longer than the plan that it is of."""

    def refuse(*_: object) -> None:
        raise AssertionError("a State was made")

    for name in ("sched_state", "tensor_state", "graph_state", "hash_nodes", "chunk_states"):
        monkeypatch.setattr(reader, name, refuse)
    on, space = devices("CUDA0:6MiB"), Space(contexts=(512,), margins=(0,))
    assert search(one_model(model("llama"), lambda _: on), space).best is not None


def test_several_processes_find_in_one_setting_what_one_finds_in_as_many_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def side_by_side(work: Callable[[Choice], Candidate], items: Sequence[Choice], n: int) -> list[Candidate]:
        started.append(len(items))
        return in_processes(work, items, n)

    monkeypatch.setattr(setting_search, "in_processes", side_by_side)
    monkeypatch.setattr(setting_search, "_ALONE", 1)
    on, space = devices("CUDA0:8MiB", "Vulkan0:6MiB"), Space(contexts=(512,), margins=(0,))
    captures = one_model(model("qwen3"), lambda _: on)
    one = search(captures, space, Wish("fewest-splits"))
    assert not started
    assert search(captures, space, Wish("fewest-splits"), processes=2) == one
    assert started


@pytest.mark.parametrize("memory", ["6MiB", "7MiB", "8MiB", "9MiB"])
def test_as_many_experts_as_fit_stay_on_a_gpu(memory: str) -> None:
    """Every placement of the experts, part by part, against the search of the same."""
    on, space = devices(f"CUDA0:{memory}"), Space(contexts=(512,), margins=(0,))
    found = search(one_model(model("llama-moe"), lambda _: on), space, Wish("smallest"))
    everything = exhaustive("llama-moe", on, space, "smallest")
    assert found.best is not None
    assert found.best.choice.spilled
    request = Request()
    ranks = [rank("smallest", c, c.seconds.of(request)) for c in (found.best, everything[0])]
    assert ranks[0] == ranks[1]


def test_several_processes_find_what_one_finds_and_what_is_saved_is_not_searched_again(tmp_path: Path) -> None:
    on = devices("CUDA0:5MiB", "CUDA1:5MiB")
    space = Space(contexts=(256, 512, 1 << 20), ubatches=(32, 64), margins=(0,))
    captures = searched_model(cached("llama"), lambda _: on)
    one = search(captures, space)
    assert one.best is not None
    assert one.counts.settings == 6
    assert {r.candidate.n_ctx for r in one.ranked} == {256, 512}
    file = tmp_path / "search.json"
    two = search(captures, space, processes=2, saved=Saved(file, "llama"))
    assert (two.ranked, two.pareto) == (one.ranked, one.pareto)
    said: list[int] = []
    again = search(NoCaptures(), space, saved=Saved(file, "llama"), progress=lambda p: said.append(p.done))
    assert again == two
    assert said[0] == two.counts.captured
    with pytest.raises(PlaceError, match="of another search"):
        search(NoCaptures(), space, saved=Saved(file, "another"))
    file.write_text("{}")
    with pytest.raises(PlaceError, match="is not what a search has saved"):
        search(NoCaptures(), space, saved=Saved(file, "llama"))


@pytest.mark.parametrize(
    ("name", "spilled", "rules"),
    [
        ("llama-moe", [Spill(1, True, ("down",))], r"blk\.1\.ffn_down_(ch|)exps=CPU"),
        ("llama-moe", [Spill(1, True, ("down", "gate"))], r"blk\.1\.ffn_(down|gate|gate_up)_(ch|)exps=CPU"),
        ("llama", [Spill(1, False, ("down",)), Spill(2, False, ("down",))], r"blk\.(1|2)\.ffn_down\.=CPU"),
        ("llama", [Spill(1, False, ("down",)), Spill(2, False, PARTS)],
         r"blk\.1\.ffn_down\.=CPU,blk\.2\.ffn_(down|gate|up)\.=CPU"),
    ],
)  # fmt: skip
def test_patterns_have_no_needless_parentheses_and_match_in_llama_cpp_what_they_match_here(
    name: str, spilled: list[Spill], rules: str
) -> None:
    placer = Placer(model(name), devices("CUDA0:1GiB"))
    n_layer = placer.parts.n_layer
    choice = Choice((n_layer + 1,), tuple(spilled))
    assert choice.words(n_layer)["-ot"] == rules
    on_cpu = [t.name for t in placer.place(choice.options(PlaceOptions(), n_layer)).tensors if t.rule.startswith("-ot")]
    assert len(on_cpu) == sum(len(spill.parts) for spill in spilled)
    overrides = tuple((rule.removesuffix("=CPU"), "CPU") for rule in rules.split(","))
    check(cached(name), [FakeGpu("CUDA0", memory=1 << 30)], Settings(choice.n_gpu_layers, overrides=overrides))


class NoCaptures:
    """Fails where a graph is wanted."""

    def placers(self, settings: Sequence[Setting]) -> Iterator[Placer]:
        raise AssertionError(settings)


def test_the_longest_context_fits_and_a_step_more_does_not() -> None:
    on = devices("CUDA0:8MiB")
    space = Space(contexts=(256, 8192), ctx_step=256, ubatches=(64,), layers=(-1,), margins=(0,))
    found = search(searched_model(cached("llama"), lambda _: on), space, Wish("longest"))
    assert found.best is not None
    n_ctx = found.best.n_ctx
    assert 256 < n_ctx < 8192
    assert found.ranked[0].given_up == (f"-c {n_ctx} instead of 8192",)
    more = search(
        searched_model(cached("llama"), lambda _: on),
        replace(space, contexts=(n_ctx + 256,), ctx_step=0),
        Wish("longest"),
    )
    assert more.best is None
    assert more.nearest is not None
