"""What is offered can be printed, and whatever is typed is either a value or an ExpressionError."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ggmltool
from ggmltool.debugger.breakpoints import StopKind
from ggmltool.debugger.expressions.commands import complete, examine, type_text
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.expressions.image.image import Images
from ggmltool.debugger.expressions.parser import parse
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.reading import Reading
from ggmltool.debugger.walk import Walker
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.errors import ScenarioError
from ggmltool.state.story.history import History, record_history
from ggmltool.structs.declarations import ExpressionError, NoMemoryError
from tests.conformance.fuzz import scenario
from tests.debugger.sessions import history_of
from tests.debugger.test_laws import random_history

SEEDS = (1, 2)
POINTS = 1


@cache
def history(release: str, seed: int) -> History:
    """A random run; of January 2024, which measures, that of a sample."""
    if not RELEASES[release].reserves:
        return record_history(ggmltool.load("missing-op" if seed % 2 else "arena", ggml=release), compute=True)
    for n in range(100 * seed, 100 * seed + 100):
        with suppress(ScenarioError):
            return record_history(ggmltool.load(scenario(n), ggml=release))
    raise AssertionError(f"no scenario has only what {release} has")


@cache
def end(release: str) -> Scope:
    """The end of a random run."""
    run = history(release, 1)
    return Scope(run, len(run.points) - 1)


def offered(scope: Scope) -> Iterator[str]:
    """Each name that is offered, each field of what it points to, and of the splits and hash nodes."""
    for name in complete("", scope):
        yield name
        fields = complete(f"{name}->", scope)
        yield from fields
        if fields:
            yield f"*{name}"
    for of in ("sched->splits[0].", "galloc->hash_values[0].", "sched->backends[0]->iface.", "sched->galloc->"):
        yield from complete(of, scope)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("release", RELEASES)
def test_what_is_offered_can_be_printed(release: str, seed: int) -> None:
    run = history(release, seed)
    random = Random(seed)
    n_printed = 0
    for at in sorted(random.sample(range(len(run.points)), min(POINTS, len(run.points)))):
        seen: set[str] = set()
        for frame in range(min(2, len(run.stack(at)))):
            scope = Scope(run, at, frame)
            own = scope.arguments()
            # What is no argument is the same in every frame.
            new = [text for text in offered(scope) if text not in seen or re.split(r"\W+", text.lstrip("*"))[0] in own]
            seen.update(new)
            for text in new:
                value = evaluate(text, scope)
                assert formatted(value), text
                assert formatted(value, "x") or True
                assert type_text(text, scope).startswith("type = ")
                n_printed += 1
    assert n_printed > 100


@pytest.mark.parametrize("release", RELEASES)
def test_every_tensor_of_the_graph_is_in_its_slot(release: str) -> None:
    run = history(release, 1)
    scope = Scope(run, len(run.points) - 1)
    graph = scope.image.cells
    names = [key[1] for key in graph if key[0] == "cgraph"]
    if not names:
        return
    for which in ("nodes", "leafs"):
        n = evaluate(f"graph->n_{which}", scope).integer()
        for i in range(n):
            text = f"graph->{which}[{i}]"
            index = scope.image.tensors.index(evaluate(text, scope).integer())
            cell = scope.image.tensors.cell(-1 if index is None else index)
            assert cell is not None
            assert evaluate(f"ggml_nbytes({text}) == 0 || {text}->ne[0] == {cell.ne[0]}", scope).truth()
            table = next(iter(complete("graph->visited", scope)))
            slot = evaluate(f"ggml_hash_find(&{table}, {text})", scope).integer()
            assert evaluate(f"{table}.keys[{slot}] == {text}", scope).truth()
            if not scope.image.cells[("sched", "is_reset")]:
                backend = scope.image.cells.get(("id", index), -1)
                at = evaluate(f"ggml_hash_find(&sched->hash_set, {text})", scope).integer()
                if RELEASES[release].reserves:
                    assert evaluate(f"sched->hv_tensor_backend_ids[{at}]", scope).integer() == backend


WORDS = [
    "sched", "galloc", "graph", "->", ".", "[", "]", "(", ")", "*", "&", "n_nodes", "nodes", "0", "1", "3.5", "'a'",
    '"b"', "sizeof", "struct ggml_tensor", "(", "int", "+", "-", "/", "%", "==", "&&", "||", "!", "?", ":", "@", "$",
    "$1", "$x", "=", ",", "<<", ">>", "18446744073709551615", "0xfff", "ggml_hash", "ggml_nbytes", "char", "float",
    "GGML_OP_ADD",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)))
def test_whatever_is_typed_is_a_value_or_an_error(text: str) -> None:
    scope = end("0.26")
    for ask in (
        lambda: formatted(evaluate(text, scope)),
        lambda: type_text(text, scope),
        lambda: examine("2xw", text, scope),
    ):
        with suppress(ExpressionError):
            ask()
    assert all(isinstance(name, str) for name in complete(text, scope))


@given(st.sampled_from(["(", "[", "-", "*", "!", "(int)", "1?", "sizeof ", "a->", "&"]), st.integers(100, 5000))
def test_no_nesting_is_too_deep_for_the_parser(part: str, n: int) -> None:
    run = history("0.26", 1)
    with pytest.raises(ExpressionError):
        parse(f"{part * n}1", Scope(run, 0).layout)


@pytest.mark.parametrize("text", ["int" + "[9]" * 1000, "int" + "*" * 4000, "int (" + "*(" * 1000, "int(int" * 1000])
def test_no_type_is_too_deep(text: str) -> None:
    scope = end("0.26")
    with suppress(ExpressionError):
        assert type_text(text, scope)
    with suppress(ExpressionError):
        formatted(evaluate(f"sizeof({text})", scope))


def test_nothing_is_at_an_address_of_nothing() -> None:
    run = history("0.26", 1)
    with pytest.raises(NoMemoryError, match="Cannot access memory at address 0x10"):
        formatted(evaluate("*(int *) 16", Scope(run, 0)))


OF_ALL = (
    "*sched", "*galloc", "*galloc->buf_tallocs[0]", "*galloc->buf_tallocs[0]->chunks[0]", "sched->splits[0]",
    "galloc->hash_values[3]", "*sched->hv_tensor_backend_ids@16", "*sched->hash_set.keys@64", "*sched->hash_set.used@2",
    "*sched->hv_tensor_copies@32", "*galloc->node_allocs", "*graph", "*graph->nodes[0]", "*graph->nodes[0]->buffer",
)  # fmt: skip
MOVES = 5


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
    ways = [random.randrange(n) for _ in range(MOVES)]
    start = random.randrange(n)
    ways += [*range(start, min(start + MOVES, n)), *range(start, max(start - MOVES, 0), -1)]
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


@pytest.mark.parametrize("kind", [StopKind.BREAKPOINT, StopKind.WATCHPOINT])
def test_a_condition_takes_little_more_than_the_event(kind: StopKind) -> None:
    """Beside the time to make the image of a point once."""
    history = history_of("gemma-3-270m", compute=False)
    began = time.process_time()
    for at in range(3000, 3010):
        said("galloc->hash_values[7].n_children", Scope(history, at))
    alone = (time.process_time() - began) / 10
    walker = Walker(history, Reading(history))
    places = walker.calls.starts("ggml_gallocr_allocate_node") if kind is StopKind.BREAKPOINT else ()
    what = "ggml_gallocr_allocate_node" if places else "galloc->hash_values[7].n_children"
    condition = "ggml_gallocr_hash_get(galloc, node)->n_children > 100000" if places else ""
    walker.breakpoints.add(what, places, kind, condition, function=what if places else "")
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
