"""What a device answered in a process, as a scenario says it: `answers` of a backend whose profile is `recorded`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from ggmltool.ggml.devices.questions import NotAQuestion, Question, parsed, without_memory
from ggmltool.ggml.devices.recorded import Answer, Order, Recorded
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.kinds import Count, Keys, key_names, said
from ggmltool.scenario.values import INT64_MAX, as_id, as_int, as_list, as_map, as_text, at, check_keys

T = TypeVar("T")

MOST_ANSWERS = 1_000_000
"""Answers of a device, at most."""

WORDS = {
    "supports": Answer(True, False),
    "refuses": Answer(False, False),
    "supports, offloads": Answer(True, True),
    "refuses, offloads": Answer(False, True),
}
_NAMES = {answer: text for text, answer in WORDS.items()}


class OrderKeys(Keys):
    """The nodes of a split in the order in which a device computes them."""

    nodes: list[str]
    kept: dict[str, list[str]] | None = None


class AnswersKeys(Keys):
    """What a device answered in a process."""

    ops: dict[str, Annotated[str, said(enum=list(WORDS))]] | None = None
    sizes: dict[str, dict[str, Count]] | None = None
    orders: list[OrderKeys] | None = None


def read_answers(value: object, what: str = "answers") -> Recorded:
    """The map `answers`. Raises Mistake."""
    given = as_map(value, what)
    check_keys(given, key_names(AnswersKeys), what)
    ops = at("ops", _by_question, given.get("ops"), "ops", _answer)
    sizes = {
        name: at("sizes", at, name, _sizes, name, of)
        for name, of in at("sizes", as_map, {} if given.get("sizes") is None else given["sizes"], "sizes").items()
    }
    return Recorded(ops, sizes, at("orders", _orders, given.get("orders")))


def _orders(value: object) -> tuple[Order, ...]:
    given = [] if value is None else as_list(value, "orders")
    return tuple(at(i, _order, order) for i, order in enumerate(given))


def _order(value: object) -> Order:
    given = as_map(value, "an order")
    check_keys(given, key_names(OrderKeys), "an order")
    nodes = at("nodes", _ids, given.get("nodes"))
    twice = next((id for id, n in Counter(nodes).items() if n > 1), None)
    if twice is not None:
        raise Mistake(f"{quoted(twice)} stands in an order more than once", "each node once", "nodes")
    kept = at("kept", as_map, {} if given.get("kept") is None else given["kept"], "kept")
    for id in kept:
        if id not in nodes:
            raise Mistake(
                f"{quoted(id)} is none of the nodes", "tensors are kept until a node of the split", "kept", id
            )
    return Order(nodes, tuple((id, at("kept", at, id, _ids, tensors)) for id, tensors in kept.items()))


def _ids(value: object) -> tuple[str, ...]:
    return tuple(at(i, as_id, id, "a tensor") for i, id in enumerate(as_list(value, "tensors")))


def _sizes(name: str, value: object) -> dict[Question, int]:
    as_id(name, "a buffer type's name")
    found = _by_question(value, "sizes", lambda v: as_int(v, "a size", 0, INT64_MAX))
    return {without_memory(asked): size for asked, size in found.items()}


def _by_question(value: object, what: str, convert: Callable[[Any], T]) -> dict[Question, T]:
    given = as_map({} if value is None else value, what)
    if len(given) > MOST_ANSWERS:
        raise Mistake(f"there are {len(given)} answers", f"at most {MOST_ANSWERS} are allowed")
    out: dict[Question, T] = {}
    for text, item in given.items():
        try:
            asked = parsed(as_text(text, "a question"))
        except NotAQuestion as error:
            raise Mistake(
                f"{quoted(text)} is not a question: at character {error.offset + 1}, {error}",
                "for example mul_mat(q4_0[640, 512], f32[640, 4]) -> f32[512, 4]",
                text,
                on_key=True,
            ) from None
        if asked in out:
            raise Mistake(f"{quoted(text)} has an answer already", "", text, on_key=True)
        out[asked] = at(text, convert, item)
    return out


def _answer(value: object) -> Answer:
    text = as_text(value, "an answer")
    if text not in WORDS:
        hint = did_you_mean(text, WORDS) or f"expected {', or '.join(WORDS)}"
        raise Mistake(f"an answer cannot be {quoted(text)}", hint)
    return WORDS[text]


def dump_answers(recorded: Recorded) -> dict[str, Any]:
    """The map that says the same."""
    out: dict[str, Any] = {
        "ops": {asked.text: _NAMES[answer] for asked, answer in recorded.ops.items()},
        "sizes": {buft: {asked.text: size for asked, size in sizes.items()} for buft, sizes in recorded.sizes.items()},
    }
    if recorded.orders:
        out["orders"] = [_order_map(order) for order in recorded.orders]
    return out


def _order_map(order: Order) -> dict[str, Any]:
    out: dict[str, Any] = {"nodes": list(order.nodes)}
    if order.kept:
        out["kept"] = {until: list(tensors) for until, tensors in order.kept}
    return out
