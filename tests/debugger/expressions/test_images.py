"""Scopes that share images answer as each would alone, wherever they move, and they are quickly made."""

from __future__ import annotations

import time
from random import Random

import pytest

from ggmltool.debugger.breakpoints import Breakpoints, Kind
from ggmltool.debugger.expressions import ExpressionError, Scope, complete, evaluate
from ggmltool.debugger.expressions.image.images import Images
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.reading import Reading
from ggmltool.debugger.walk import Walker
from ggmltool.ggml.releases.table import RELEASES
from tests.debugger.sessions import history_of
from tests.debugger.test_laws import random_history

OF_ALL = (
    "*sched", "*galloc", "*galloc->buf_tallocs[0]", "*galloc->buf_tallocs[0]->chunks[0]", "sched->splits[0]",
    "galloc->hash_values[3]", "*sched->hv_tensor_backend_ids@16", "*sched->hash_set.keys@64", "*sched->hash_set.used@2",
    "*sched->hv_tensor_copies@32", "*galloc->node_allocs", "*graph", "*graph->nodes[0]", "*graph->nodes[0]->buffer",
)  # fmt: skip
POINTS = 5


def said(text: str, scope: Scope) -> str:
    try:
        return formatted(evaluate(text, scope))
    except ExpressionError as error:
        return str(error)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_read_on_the_way_is_what_is_read_there(seed: int, release: str) -> None:
    history = random_history(seed, release)
    images = Images(history, Scope(history, 0).layout)
    random = Random(seed)
    n = len(history.points)
    ways = [random.randrange(n) for _ in range(POINTS)]
    start = random.randrange(n)
    ways += [*range(start, min(start + POINTS, n)), *range(start, max(start - POINTS, 0), -1)]
    for at in ways:
        moved, alone = Scope(history, at, images=images), Scope(history, at)
        asked = [*OF_ALL, *random.sample(complete("", alone), 3), "*node", "*hn", "*alloc", "buffer_id"]
        assert [said(text, moved) for text in asked] == [said(text, alone) for text in asked], at
        assert moved.arguments().keys() == alone.arguments().keys()


def test_a_value_of_before_points_to_what_is_there_now() -> None:
    reading = Reading(history_of("inplace"))
    last = len(reading.history.points) - 1
    reading.values.append(evaluate("sched", reading.scope(last, 0)).fetched())
    for at in (0, last // 2, last):
        for name in ("n_splits", "is_reset"):
            assert said(f"$1->{name}", reading.scope(at, 0)) == said(f"((ggml_backend_sched_t) $1)->{name}", Scope(
                reading.history, at, values=reading.values
            ))  # fmt: skip
    assert said("$1->n_splits", reading.scope(last, 0)) == said("sched->n_splits", Scope(reading.history, last))


@pytest.mark.parametrize("kind", [Kind.BREAKPOINT, Kind.WATCHPOINT])
def test_a_condition_takes_little_more_than_the_event(kind: Kind) -> None:
    """Beside the time to make the image of a point once."""
    history = history_of("gemma-3-270m", compute=False)
    began = time.process_time()
    for at in range(3000, 3010):
        said("galloc->hash_values[7].n_children", Scope(history, at))
    alone = (time.process_time() - began) / 10
    breakpoints = Breakpoints()
    walker = Walker(history, breakpoints, Reading(history))
    places = walker.calls.starts("ggml_gallocr_allocate_node") if kind is Kind.BREAKPOINT else ()
    what = "ggml_gallocr_allocate_node" if places else "galloc->hash_values[7].n_children"
    condition = "ggml_gallocr_hash_get(galloc, node)->n_children > 100000" if places else ""
    breakpoints.add(what, places, kind, condition, function=what if places else "")
    walker.goto(0)
    began = time.process_time()
    n = 0
    while not walker.over:
        stop = walker.continue_()
        assert not any(hit.error for hit in stop.hits)
        n += 1
    took = time.process_time() - began
    asked = len(places) or sum(1 for here in history.changes if here)
    assert asked > 400
    assert took / asked < alone / 4
