"""Random scenarios at the ends of what a scenario can say: `rare_scenario(seed)` has all ops, types and keys.

Its nodes are those of `fuzz`, rare ops as often as others; one to four changes are made to it, some of
`fuzz_wide`: memory that the program gave out, branches that are not computed, sizes and alignments at their ends,
graphs at the limits of hash sets, arenas and free blocks, many splits, sixteen backends, rules of devices, flags and
assignments anywhere, steps in odd orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.conformance.fuzz import Generator
from tests.conformance.fuzz_nodes import TYPES, contiguous
from tests.conformance.fuzz_wide import CHANGES, Spec, _devices, _expand, _names, _node, _tensor, with_rules

STEPS = (
    "compute A",
    "compute A; compute A",
    "compute A; reset; compute B",
    "alloc A; compute B",
    "alloc A; compute A; compute A",
    "reserve A; compute B; reserve B",
    "reset; reset; alloc A",
    "reserve A; reserve B; reserve A; alloc B; reset; alloc A",
    "alloc A; reset; alloc A; reset; alloc B; reset; alloc A",
    "alloc A; reserve B; alloc A; reset; alloc B",
    "reserve A; alloc B; compute B; reset; alloc A; compute A; reset; reserve B; alloc B",
    "alloc A; compute A; alloc B",
    "reserve A; alloc A; compute A; alloc A",
    "alloc A; compute B; reset; compute A; reset; alloc B",
    "alloc B; reset; compute A; compute B; reset; compute B",
)
"""Orders in which a program need not, but may, call the scheduler; A and B are graphs."""


class RareGenerator(Generator):
    """Makes rare nodes as often as others."""

    even = True


def rare_scenario(seed: int, inputs_anywhere: bool = False) -> Spec:
    """The scenario of a seed. With `inputs_anywhere` results may be flagged as inputs, which not every ggml takes."""
    rng = Random(f"rare {seed}")
    kind = RareGenerator if rng.random() < 0.8 else Generator
    short = rng.random() < 0.7
    out = kind(rng, short_forms=short, values=False, inputs_anywhere=inputs_anywhere).scenario(seed)
    out["name"] = f"rare {seed}"
    changes = [*rng.sample(RARE, rng.choice((1, 1, 2, 3))), *rng.sample(CHANGES, rng.choice((0, 0, 1)))]
    for change in changes:
        change(rng, out)
    if inputs_anywhere:
        _input_results(rng, out)
    return out


def _longs(out: Spec) -> Iterator[tuple[str, Spec]]:
    """The nodes in long form with their ids."""
    for graph in out["graphs"].values():
        yield from ((id, n) for id, n in graph["nodes"].items() if isinstance(n, dict))


def _loose(out: Spec) -> Iterator[Spec]:
    for context in out["contexts"].values():
        yield from (t for t in context["tensors"].values() if isinstance(t, dict))


def _bytes(t: Spec) -> int:
    """From a tensor's first byte to its last."""
    if 0 in t["ne"]:
        return 0
    ne = (*t["ne"], 1, 1, 1)[:4]
    nb = t.get("nb") or contiguous(t["type"], ne)
    block, size = TYPES[t["type"]]
    first = ne[0] * nb[0] // block if block > 1 else size + (ne[0] - 1) * nb[0]
    return int(first + sum((n - 1) * b for n, b in zip(ne[1:], nb[1:], strict=True)))


def _own_memory(rng: Random, out: Spec) -> None:
    """Contexts whose tensors, and nodes, lie where the program put them: with gaps, or over each other."""
    own = [name for name, c in out["contexts"].items() if c.get("buft") and c["tensors"]]
    for name in rng.sample(own, min(len(own), rng.randint(1, 2))):
        context = out["contexts"][name]
        context["tensors"] = {id: t for id, t in context["tensors"].items() if isinstance(t, dict)}
        at = 0
        for t in context["tensors"].values():
            if "view_src" not in t:
                t["at"] = rng.randrange(at + 1) if rng.random() < 0.1 else at
                at = max(at, t["at"] + _bytes(t)) + rng.choice((0, 0, 4, 128, 1000))
        nodes = [n for _, n in _longs(out) if "view_src" not in n and "backend" not in n and n["op"] not in VIEWS]
        for n in rng.sample(nodes, min(len(nodes), rng.choice((0, 1, 3)))):
            n["in"], n["at"] = name, at
            at += _bytes(n) + rng.choice((0, 32))
        context["size"] = at + rng.choice((0, 1, 4096)) or 1


VIEWS = ("view", "reshape", "permute", "transpose", "custom")


def _not_computed(rng: Random, out: Spec) -> None:
    for graph in out["graphs"].values():
        expand = graph.setdefault("expand", list(graph["nodes"]))
        if expand:
            graph["uncomputed"] = rng.sample(sorted(set(expand)), rng.randint(1, len(set(expand))))


def _twice(rng: Random, out: Spec) -> None:
    """Roots that are expanded more than once, leafs and views among them."""
    loose = [id for c in out["contexts"].values() for id in c["tensors"]]
    for graph in out["graphs"].values():
        expand = graph.setdefault("expand", list(graph["nodes"]))
        for id in rng.choices([*expand, *loose] or [None], k=rng.randint(1, 6)):
            if id is not None:
                expand.insert(rng.randrange(len(expand) + 1), id)


def _used_experts(_: Random, out: Spec) -> None:
    out.setdefault("scheduler", {})["copy_callback"] = "used_experts"


def _ends(rng: Random, out: Spec) -> None:
    """Devices whose numbers are at their ends."""
    for device in [*_devices(out), *out.get("buffer_types", {}).values()]:
        known = device.get("profile", "custom") != "custom"
        if rng.random() < 0.6:
            device["alignment"] = rng.choice((1, 2, 4, 8, 4096, 1 << 16))
        if rng.random() < 0.4:
            device["max_size"] = rng.choice((1, 16, 100, 128, 129, 1000, 1 << 40))
        if rng.random() < 0.4 and not known:
            device["row_padding"] = rng.choice((32, 96, 160, 2048))


def _limited(rng: Random, out: Spec) -> None:
    """A scheduler as large as its graphs, or nearly so."""
    n_loose = sum(len(c["tensors"]) for c in out["contexts"].values())
    graph = rng.choice(list(out["graphs"].values()))
    n = len(graph["nodes"]) + rng.randrange(n_loose + 1)
    size = rng.choice((1, 2, 3, 5, 11, 17, 37, 67, 131, 257, n, n // 2, n // 4)) + rng.randint(-2, 2)
    out.setdefault("scheduler", {})["graph_size"] = max(size, 1)


def _long(rng: Random, out: Spec) -> None:
    """Many nodes in a row, on one device after the other."""
    graph = rng.choice(list(out["graphs"].values()))
    last = _tensor(out, "start", "start", flags=["input"])
    names, seen = _names(out), [last]
    n = rng.choice((60, 60, 130, 300)) if rng.random() < 0.97 else rng.choice((2040, 2047, 2100))
    often = rng.choice((0.02, 0.3, 1.0))
    backend = None
    for _ in range(n):
        backend = rng.choice(names) if rng.random() < often else backend
        op = rng.choice(("sqr", "add", "add", "mul"))
        src = [last] if op == "sqr" else [last, rng.choice(seen)]
        last = _node(graph, op, src, backend=backend)
        seen = [*seen[-40:], last] if rng.random() < 0.5 else seen
    _expand(graph, last)


def _fragments(rng: Random, out: Spec) -> None:
    """Many tensors of which every other one is freed: as many free blocks, or more than there can be."""
    graph = rng.choice(list(out["graphs"].values()))
    x = _tensor(out, "start", "rows", ne=(64, 8), flags=["input"])
    n = rng.choice((20, 60)) if rng.random() < 0.7 else rng.choice((500, 509, 511, 513, 515, 540))
    sizes = rng.choice(((64,), (64, 32), (64, 32, 48, 16)))
    made = []
    for i in range(n):
        rows = rng.choice(sizes) // 8
        part = _node(graph, "view", [x], (64, rows), nb=[4, 256, 256 * rows, 256 * rows], view_src=x)
        made.append(_node(graph, "sqr", [part], (64, rows)))
        if i % 40 == 39 and rng.random() < 0.2:
            made[-1] = _node(graph, "sqr", [made[-1]], (64, rows))
    order = [*made[::2], *made[1::2]] if rng.random() < 0.8 else made
    total = _tensor(out, "start", "total", ne=(1,), flags=["input"])
    for id in order:
        one = _node(graph, "sum", [id], (1,))
        total = _node(graph, "add", [total, one], (1,))
    _expand(graph, total)


def _many_backends(rng: Random, out: Spec) -> None:
    """As many backends as a scheduler takes, or nearly so, some without memory of their own."""
    n = rng.choice((8, 12, 15, 16, 17)) - len(out["backends"])
    new: list[Any] = []
    for i in range(max(n, 0)):
        device: Spec = {"name": f"D{i}", "profile": "custom", "alignment": rng.choice((32, 128))}
        if rng.random() < 0.3:
            device |= {"buft": "CPU", "supports_bufts": ["CPU"], "type": "accel"}
        elif rng.random() < 0.5:
            device["supports_bufts"] = [f"D{i}", rng.choice([d["name"] for d in new if "buft" not in d] or ["CPU"])]
        if rng.random() < 0.5:
            device["supports"] = {"only": rng.sample(("mul_mat", "add", "mul", "sqr", "unary", "scale"), 3)}
        new.append(device)
    out["backends"][rng.randrange(len(out["backends"])) : 0] = new
    _placed_anywhere(rng, out)


def _placed_anywhere(rng: Random, out: Spec) -> None:
    """Contexts in other buffer types, and those without one in some."""
    bufts = [d["name"] for d in _devices(out) if "buft" not in d] + ["CPU", *out.get("buffer_types", {})]
    for context in out["contexts"].values():
        if (context.get("buft") and rng.random() < 0.4) or (
            "buft" not in context
            and rng.random() < 0.1
            and not any("view_src" in t for t in context["tensors"].values())
        ):
            context["buft"] = rng.choice(bufts)
        if context.get("buft") and rng.random() < 0.3:
            context["usage"] = rng.choice(("any", "weights", "compute"))


def _ruled(rng: Random, out: Spec) -> None:
    out["backends"] = [with_rules(rng, backend) for backend in out["backends"]]


def _assigned_views(rng: Random, out: Spec) -> None:
    """Views, leafs and results in place that the user has assigned, against what their roots say."""
    names = _names(out)
    p = rng.choice((0.1, 0.5))
    for _, n in _longs(out):
        if "view_src" in n and rng.random() < p and "in" not in n:
            n["backend"] = rng.choice(names)
    for t in _loose(out):
        if rng.random() < p:
            t["backend"] = rng.choice(names)


def _flagged(rng: Random, out: Spec) -> None:
    """Flags on results, views and weights, several at once."""
    p = rng.choice((0.05, 0.3))
    for _, n in _longs(out):
        if rng.random() < p and n["op"] not in ("opt_step_adamw", "opt_step_sgd"):
            n["flags"] = rng.sample(("output", "param", "loss"), rng.choice((1, 1, 2)))
    for t in _loose(out):
        if rng.random() < p and "param" not in t.get("flags", ()):
            t["flags"] = rng.sample(("input", "output", "param", "loss"), rng.choice((1, 2, 4)))


def _input_results(rng: Random, out: Spec) -> None:
    for _, n in _longs(out):
        if rng.random() < 0.02:
            n["flags"] = [*n.get("flags", ()), "input"] if "input" not in n.get("flags", ()) else n["flags"]


def _nothing(rng: Random, out: Spec) -> None:
    """Graphs and contexts with nothing, or nearly nothing, in them."""
    kind = rng.randrange(3)
    if kind == 0:
        bufts = ["CPU", *(d["name"] for d in _devices(out) if "buft" not in d and d["name"] != "ACC")]
        out["contexts"]["empty"] = {"tensors": {}, "buft": rng.choice(bufts)}
    elif kind == 1:
        out["graphs"]["none"] = {"nodes": {}}
        if rng.random() < 0.6:
            out["graphs"]["none"]["expand"] = [
                _tensor(out, "start", "alone", flags=rng.choice(([], ["input"], ["param"])))
            ]
    else:
        x = _tensor(out, "start", "hollow", ne=(0, 4), flags=["input"])
        graph = rng.choice(list(out["graphs"].values()))
        _expand(graph, _node(graph, "sqr", [_node(graph, "sqr", [x], (0, 4))], (0, 4)))
    out["steps"] = [f"{rng.choice(('reserve', 'alloc', 'alloc'))} {rng.choice(list(out['graphs']))}" for _ in range(3)]
    out["steps"].insert(1, "reset")


def _odd_orders(rng: Random, out: Spec) -> None:
    graphs = list(out["graphs"])
    steps: list[str] = []
    for _ in range(rng.randint(1, 3)):
        a, b = rng.choice(graphs), rng.choice(graphs)
        steps += rng.choice(STEPS).replace("A", a).replace("B", b).split("; ")
        steps += ["reset"] if rng.random() < 0.93 else []
    out["steps"] = steps


RARE: tuple[Callable[[Random, Spec], None], ...] = (
    _own_memory,
    _not_computed,
    _twice,
    _used_experts,
    _ends,
    _limited,
    _long,
    _fragments,
    _many_backends,
    _placed_anywhere,
    _ruled,
    _assigned_views,
    _flagged,
    _nothing,
    _odd_orders,
)
