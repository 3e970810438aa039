"""Random scenarios with more of what is rare: `wide_scenario(seed)` is that of `fuzz` with one to four changes.

Pipeline copies of inputs that no node reads, splits with many inputs, chains of CLAMP, experts and weights on the host,
nodes that the user assigned, buffer types of devices outside the scheduler, devices with their own order, many steps;
rules of devices (`with_rules`), and steps that go back to older builds (`builds_scenario`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.conformance.fuzz import ONLY, Generator, Spec, scenario
from tests.conformance.fuzz_nodes import bits

OWN_ORDER = ("CUDA", "ROCm", "Vulkan", "Metal")
OUTSIDE = ("CUDA9", "NPU9", "MTL9", "Vulkan9", "OTHER")
ELEMENTS = 16


def wide_scenario(seed: int, inputs_anywhere: bool = False) -> Spec:
    """The scenario of a seed with changes that depend on nothing else."""
    rng = Random(f"wide {seed}")
    out = scenario(seed, short_forms=rng.random() < 0.7, inputs_anywhere=inputs_anywhere)
    out["name"] = f"wide {seed}"
    for change in rng.sample(CHANGES, rng.choice((1, 2, 2, 3, 4))):
        change(rng, out)
    return out


def _parallel(rng: Random, out: Spec) -> None:
    """Pipeline copies; devices have events, or not."""
    out.setdefault("scheduler", {})["parallel"] = True
    for device in _devices(out):
        device["events"] = rng.random() < 0.8


def _unused_inputs(rng: Random, out: Spec) -> None:
    """Inputs that a graph has, and no node reads."""
    ids = [f"unused{i}" for i in range(rng.choice((1, 2, 5, 29, 30, 31, 40)))]
    plain = rng.random() < 0.05
    for id in ids:
        flags = rng.choice((["input"], ["input"], ["input", "output"], [] if plain else ["input"]))
        _tensor(out, "unused", id, rng.choice(("f32", "i32")), (rng.choice((1, 4, 40)),), flags=flags)
    for graph in out["graphs"].values():
        expand = graph.setdefault("expand", list(graph["nodes"]))
        for id in rng.sample(ids, rng.randint(1, len(ids))):
            expand.insert(rng.randrange(len(expand) + 1), id)


def _many_inputs(rng: Random, out: Spec) -> None:
    """A run of nodes on one device that needs many tensors from elsewhere, some twice, some weights or computed."""
    graph = rng.choice(list(out["graphs"].values()))
    device = rng.choice([d["name"] for d in _devices(out)] or ["CPU"])
    all_there, plain = rng.random() < 0.7, rng.random() < 0.7
    last = _node(graph, "sqr", [_tensor(out, "run", "run", flags=["input"])], backend=device)
    for i in range(rng.choice((29, 30, 31, 45, 59, 60, 61, 62, 125))):
        kind = 0.6 * rng.random() if plain else rng.random()
        if kind < 0.6:
            other = _tensor(out, "run", f"run{i}", flags=["input"] if rng.random() < 0.8 else [])
        elif kind < 0.7:
            other = _tensor(out, "run weights", f"run{i}", buft="CPU", usage="weights")
        elif kind < 0.8:
            other = f"run{rng.randrange(i)}" if i and f"run{i - 1}" in _ids(out) else "run"
        elif kind < 0.82:
            other = _node(graph, "sqr", ["run"], backend=rng.choice(_names(out)))
        else:
            halves = [_tensor(out, "run", f"run{i}{half}", flags=["input"]) for half in "ab"]
            other = _node(graph, "mul", halves)
        second = other if other in _ids(out) | graph["nodes"].keys() else "run"
        last = _node(graph, "add", [last, second], backend=device if all_there else None)
    _expand(graph, last)


def _clamps(rng: Random, out: Spec) -> None:
    """Chains of CLAMP with new tensors or views as results; some sources have other readers, some are outputs."""
    graph = rng.choice(list(out["graphs"].values()))
    last = _tensor(out, "clamps", "clamped", flags=["input"])
    others = [last]
    for _ in range(rng.randint(2, 8)):
        words = [bits(rng.choice((-1.0, 0.0))), bits(1.0)]
        flags = ["output"] if rng.random() < 0.15 else []
        root = graph["nodes"][last].get("view_src", last) if last in graph["nodes"] else last
        view = {"view_src": root} if rng.random() < 0.25 else {}
        last = _node(graph, "clamp", [last], op_params=words, flags=flags, **view)
        others.append(last)
        if rng.random() < 0.5:
            last = _node(graph, rng.choice(("add", "mul")), [last, rng.choice(others)])
        if rng.random() < 0.3:
            last = _node(graph, rng.choice(("sqr", "scale", "neg")), [last]) if rng.random() < 0.5 else last
    _expand(graph, last)


def _experts(rng: Random, out: Spec) -> None:
    """Experts and other weights in host memory, read by products that a device takes over, with other inputs around."""
    graph = rng.choice(list(out["graphs"].values()))
    for device in _devices(out):
        if rng.random() < 0.7 and "buft" not in device:
            device["offload_min_batch"] = rng.choice((0, 1, 4))
    n, used, tokens = rng.choice((2, 4, 33)), rng.choice((1, 2)), rng.choice((1, 4, 32))
    usage = "weights" if rng.random() < 0.85 else "any"
    x = _tensor(out, "tokens", "tokens", ne=(32, used, tokens), flags=["input"])
    ids = _tensor(out, "tokens", "chosen", "i32", (used, tokens), flags=["input"])
    if rng.random() < 0.5:
        x = _node(graph, "sqr", [x], ne=(32, used, tokens))
    for i in range(rng.randint(1, 3)):
        type = rng.choice(("f32", "f16", "q8_0"))
        w = _tensor(out, f"experts {usage}", f"experts{i}", type, (32, 32, n), buft="CPU", usage=usage)
        y = _node(graph, "mul_mat_id", [w, x, ids], ne=(32, used, tokens))
        scale = _tensor(out, f"experts {usage}", f"scale{i}", ne=(32, 1), buft="CPU", usage=usage)
        x = _node(graph, "mul", [y, scale], ne=(32, used, tokens)) if rng.random() < 0.5 else y
    _expand(graph, x)


def _assigned(rng: Random, out: Spec) -> None:
    """Nodes, and tensors without memory of their own, that the user has assigned to a backend."""
    names = _names(out)
    p = rng.choice((0.05, 0.2, 0.6))
    for group in (*(g["nodes"] for g in out["graphs"].values()), *(c["tensors"] for c in out["contexts"].values())):
        for t in group.values():
            if isinstance(t, dict) and rng.random() < p:
                t["backend"] = rng.choice(names)


def _outside(rng: Random, out: Spec) -> None:
    """Contexts in the memory of devices that the scheduler does not have."""
    name = rng.choice(OUTSIDE)
    own = {*_names(out), *out.get("buffer_types", ())}
    if name in own:
        return
    spec: Spec = {"device": name}
    if rng.random() < 0.4:
        spec["host"] = True
    if rng.random() < 0.4:
        spec["alignment"] = rng.choice((16, 64, 512))
    if rng.random() < 0.3:
        spec["max_size"] = rng.choice((512, 4096))
    out.setdefault("buffer_types", {})[name] = spec
    placed = [c for c in out["contexts"].values() if c.get("buft")]
    if placed and rng.random() < 0.7:
        rng.choice(placed)["buft"] = name
    graph = rng.choice(list(out["graphs"].values()))
    usage = rng.choice(("any", "weights"))
    w = _tensor(out, "outside", "outside", buft=name, usage=usage)
    _expand(graph, _node(graph, "sqr", [w]))
    for device in _devices(out):
        if rng.random() < 0.3 and "buft" not in device:
            device["supports_bufts"] = [*device.get("supports_bufts", [device["name"]]), name]


def _own_order(rng: Random, out: Spec) -> None:
    """Devices with the rules and the order of a known kind."""
    for device in _devices(out):
        if device.get("profile") == "custom" and rng.random() < 0.8:
            device["profile"] = rng.choice(OWN_ORDER)


def _many_steps(rng: Random, out: Spec) -> None:
    """Graphs reserved, allocated and computed in turn, mostly as a program would."""
    graphs = list(out["graphs"])
    steps: list[str] = []
    for _ in range(rng.randint(3, 9)):
        name = rng.choice(graphs)
        if rng.random() < 0.3:
            steps.append(f"reserve {rng.choice(graphs)}")
        steps.append(f"alloc {name}")
        if rng.random() < 0.6:
            steps.append(f"compute {name}")
        if rng.random() < 0.95:
            steps.append("reset")
    out["steps"] = steps


CHANGES: tuple[Callable[[Random, Spec], None], ...] = (
    _parallel,
    _unused_inputs,
    _many_inputs,
    _clamps,
    _experts,
    _assigned,
    _outside,
    _own_order,
    _many_steps,
)


def _devices(out: Spec) -> list[Spec]:
    """The backends but the CPU that are written as maps."""
    return [b for b in out["backends"] if isinstance(b, dict) and b["name"] != "CPU"]


def _names(out: Spec) -> list[str]:
    return [b if isinstance(b, str) else b["name"] for b in out["backends"]]


def _ids(out: Spec) -> set[str]:
    return {id for c in out["contexts"].values() for id in c["tensors"]}


def _tensor(
    out: Spec, context: str, id: str, type: str = "f32", ne: tuple[int, ...] = (ELEMENTS,), flags: Any = (), **more: Any
) -> str:
    """A tensor of a context, by its id; the first time, with what the context has."""
    tensors = out["contexts"].setdefault(context, {**more, "tensors": {}})["tensors"]
    if id not in _ids(out):
        tensors[id] = {"type": type, "ne": list(ne), **({"flags": list(flags)} if flags else {})}
    return id


def _node(graph: Spec, op: str, src: list[str], ne: tuple[int, ...] = (ELEMENTS,), **more: Any) -> str:
    """A node at the end of a graph, by its id, which no other graph has."""
    if op in ("neg", "scale"):
        more["op_params"] = [2] if op == "neg" else [bits(2.0), 0]
    id = f"{graph_number(graph)}made{len(graph['nodes'])}"
    op = "unary" if op == "neg" else op
    given = {key: value for key, value in more.items() if value}
    graph["nodes"][id] = {"op": op, "type": "f32", "ne": list(ne), "src": src, **given}
    return id


def graph_number(graph: Spec) -> str:
    """What tells a graph's made nodes from another's: the first node that it had."""
    return f"{next(iter(graph['nodes']), '')}."


def _expand(graph: Spec, id: str) -> None:
    if "expand" in graph:
        graph["expand"].append(id)


OPS = (*ONLY, "any", "silu", "mul_mat_id", "set_rows", "flash_attn_ext", "view")
TYPES = ("f32", "f16", "bf16", "q4_0", "q8_0", "q4_K", "i32", "i64")
OPERANDS = ("result", "src", "src0", "src1", "src2")


def scenario_with_rules(seed: int) -> Spec:
    """The scenario of a seed, whose devices have rules where they are not those of a known profile."""
    out = scenario(seed)
    rng = Random(f"rules {seed}")
    out["backends"] = [with_rules(rng, backend) for backend in out["backends"]]
    return out


def with_rules(rng: Random, backend: Any) -> Any:
    """A backend that may have rules, as some of those have that are no known device."""
    given: Spec = {"name": backend} if isinstance(backend, str) else dict(backend)
    if (given["name"] != "CPU" and given.get("profile") != "custom") or rng.random() < 0.2:
        return backend
    if given["name"] == "CPU":
        if rng.random() < 0.8:
            return backend
        return given | {"supports": {"profile": True, "rules": _rules(rng)}}
    supports = dict(given.get("supports") or {"except": []})
    lacked = supports.get("except", ())
    supports["rules"] = [rule for rule in _rules(rng) if not set(_ops(rule["op"])) & set(lacked) and not lacked]
    return given | {"profile": "custom", "supports": supports}


def _ops(op: Any) -> list[str]:
    return [op] if isinstance(op, str) else list(op)


def _rules(rng: Random) -> list[Spec]:
    return [_rule(rng) for _ in range(rng.randint(1, 6))]


def _rule(rng: Random) -> Spec:
    rule: Spec = {"op": rng.choice(OPS) if rng.random() < 0.8 else rng.sample(ONLY, 3)}
    if rule["op"] == "any":
        return rule | {rng.choice(("result", "src")): {"types": rng.sample(TYPES, 7)}}
    for operand in rng.sample(OPERANDS, rng.randint(0, 2)):
        rule[operand] = _conditions(rng, operand)
    if rng.random() < 0.2:
        rule[rng.choice(("same_type", "same_shape"))] = rng.choice((["src0", "src1"], ["src0", "result"]))
    return rule


def _conditions(rng: Random, operand: str) -> Spec:
    out: Spec = {}
    if rng.random() < 0.5:
        out["types"] = rng.sample(TYPES, rng.randint(2, 6))
    if rng.random() < 0.3:
        out["contiguous"] = rng.choice((True, "rows", "from 1", "from 2"))
    if operand.startswith("src") and operand != "src" and rng.random() < 0.1:
        out["present"] = rng.random() < 0.7
    if rng.random() < 0.5:
        number = rng.choice(("ne0", "ne1", "ne2", "nb1", "nb2", "rows", "bytes"))
        out[number] = rng.choice(({"max": rng.choice((8, 64, 4096))}, {"multiple": rng.choice((2, 8, 32))}, {"min": 4}))
    return out


class Builds(Generator):
    """Two to four graphs and steps that go back to older builds of them."""

    def make_graphs(self) -> Spec:
        rng = self.rng
        graphs: Spec = {}
        for i in range(rng.choice((2, 2, 3, 4))):
            if graphs and self.chance(0.3):
                graphs[f"g{i}"] = self.mutated(rng.choice(list(graphs.values())))
            else:
                graphs[f"g{i}"] = self.make_graph(rng.choice((1, 2, 3, 5, 12, 25)))
        return graphs

    def make_computing_steps(self, graphs: Spec) -> list[Any]:
        rng = self.rng
        steps: list[Any] = []
        built: dict[str, bool] = {}
        allocated = False
        for _ in range(rng.choice((4, 6, 9, 12, 16))):
            name = rng.choice(list(built)) if built and self.chance(0.4) else rng.choice(list(graphs))
            kind = rng.choices(("reserve", "alloc", "compute", "reset", "set", "get"), (2, 5, 5, 3, 2, 3))[0]
            if kind == "alloc" and allocated and self.chance(0.97):
                steps.append("reset")
            if kind == "reset":
                steps.append("reset")
                allocated = False
            elif kind in ("set", "get"):
                steps += self._access(kind, graphs, built)
            else:
                steps.append(f"{kind} {name}")
                if kind != "compute" or not allocated:
                    built[name] = kind != "reserve"
                allocated = kind != "reserve"
        return steps

    def _access(self, kind: str, graphs: Spec, built: dict[str, bool]) -> list[Any]:
        nodes = [id for name, has_memory in built.items() for id in graphs[name]["nodes"] if has_memory]
        given = {id: t for c in self.contexts.values() for id, t in c["tensors"].items() if t["type"] == "f32"}
        if kind == "set" and given:
            id = self.rng.choice(list(given))
            return [{"set": {id: {"uniform": {"seed": self.rng.randrange(100), "low": -1, "high": 1}}}}]
        known = nodes if nodes and self.chance(0.9) else [*nodes, *given]
        return [{"get": self.rng.sample(known, min(len(known), self.rng.randint(1, 3)))}] if known else []


def builds_scenario(seed: int, inputs_anywhere: bool = False) -> Spec:
    """The scenario of a seed."""
    out = Builds(Random(f"builds {seed}"), True, True, inputs_anywhere).scenario(seed)
    out["name"] = f"builds {seed}"
    return out
