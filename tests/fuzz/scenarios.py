"""Mutations of scenarios, which know what stands where: shapes, types, ops, parameters, steps, backends."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from ggmltool.ggml import ops
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from tests.fuzz import bases, junk

ops.load()

Scenario = dict[str, Any]
Change = Callable[[Scenario, random.Random], None]
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_LETTERS = "[]{}(),:=*&!|>'\"%@`\t\n #-?~<0x9ä\x00\u2028\ufeff\x1b"


def mutated(rng: random.Random) -> Scenario:
    """A scenario with one to eight changes."""
    scenario = bases.scenario(rng)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 5))):
        try:
            any_change(rng)(scenario, rng)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            continue  # an earlier change has left nothing to change here
    return scenario


def any_change(rng: random.Random) -> Change:
    """One of the changes below."""
    return rng.choices(_CHANGES, _WEIGHTS)[0]


def mutated_text(rng: random.Random) -> str:
    """The text of a scenario with letters, lines or ends changed."""
    text = json.dumps(mutated(rng)) if rng.random() < 0.5 else bases.texts()[rng.choice(sorted(bases.texts()))]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(6):
            case 0 | 1:
                text = text[:at] + rng.choice(_LETTERS) + text[at + rng.randint(0, 2) :]
            case 2:
                text = text[:at]
            case 3:
                to = at + rng.randint(1, 60)
                text = text[:to] + text[at:to] * rng.choice((1, 2, 300)) + text[to:]
            case 4:
                lines = text.split("\n")
                rng.shuffle(lines) if rng.random() < 0.3 else lines.pop(rng.randrange(len(lines)))
                text = "\n".join(lines)
            case 5:
                found = list(_NUMBER.finditer(text))
                if found:
                    spot = rng.choice(found)
                    text = text[: spot.start()] + str(junk.number(rng)) + text[spot.end() :]
    return text


def everywhere(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Every map or list in the scenario with each of its keys."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield value, key, (*path, key)
        yield from everywhere(item, (*path, key))


def _entries(scenario: Scenario) -> list[tuple[dict[str, Any], str]]:
    """The tensors and nodes: the map that each stands in, and its id."""
    maps = [c["tensors"] for c in scenario.get("contexts", {}).values() if isinstance(c, dict) and "tensors" in c]
    maps += [g["nodes"] for g in scenario["graphs"].values() if isinstance(g, dict) and "nodes" in g]
    return [(m, id) for m in maps for id in m]


def _entry(scenario: Scenario, rng: random.Random) -> tuple[dict[str, Any], str]:
    return rng.choice(_entries(scenario))


def _node(scenario: Scenario, rng: random.Random) -> tuple[dict[str, Any], str]:
    nodes = [(g["nodes"], id) for g in scenario["graphs"].values() for id in g["nodes"]]
    return rng.choice(nodes)


def _before(scenario: Scenario, id: str) -> list[str]:
    """The ids that a node may have as sources, and a few that it may not."""
    ids = [other for _, other in _entries(scenario)]
    return ids[: ids.index(id)] + ids[ids.index(id) :][:1]


def _long(scenario: Scenario, rng: random.Random) -> dict[str, Any]:
    """A tensor or node in long form; one in short form is made long where it is a tensor."""
    where, id = _entry(scenario, rng)
    if isinstance(where[id], str):
        type_, _, ne = where[id].rstrip("]").partition("[")
        where[id] = {"type": type_, "ne": [int(n) for n in ne.split(",")]}
    entry: dict[str, Any] = where[id]
    return entry


def replace(scenario: Scenario, rng: random.Random) -> None:
    """Any value gives way to junk."""
    where, key, _ = rng.choice(list(everywhere(scenario)))
    where[key] = junk.value(rng)


def delete(scenario: Scenario, rng: random.Random) -> None:
    """Any value goes."""
    where, key, _ = rng.choice(list(everywhere(scenario)))
    del where[key]


def insert(scenario: Scenario, rng: random.Random) -> None:
    """A key that may have a meaning there, with junk or a value from elsewhere."""
    places = list(everywhere(scenario))
    where, _, _ = rng.choice(places)
    other, key, _ = rng.choice(places)
    item = copy.deepcopy(other[key]) if rng.random() < 0.4 else junk.value(rng)
    if isinstance(where, dict):
        where[rng.choice(junk.KEYS) if rng.random() < 0.7 else junk.text(rng)] = item
    else:
        where.insert(rng.randrange(len(where) + 1), item)


def swap(scenario: Scenario, rng: random.Random) -> None:
    """Two values change places."""
    places = list(everywhere(scenario))
    (a, i, _), (b, j, _) = rng.choice(places), rng.choice(places)
    a[i], b[j] = copy.deepcopy(b[j]), copy.deepcopy(a[i])


def numbers(scenario: Scenario, rng: random.Random) -> None:
    """A number gives way to another."""
    places = [(w, k) for w, k, _ in everywhere(scenario) if isinstance(w[k], int | float) and w is not scenario]
    where, key = rng.choice(places)
    where[key] = junk.number(rng)


def retype(scenario: Scenario, rng: random.Random) -> None:
    """Another type."""
    where, id = _entry(scenario, rng)
    name = rng.choice(list(TYPES))
    if isinstance(where[id], str):
        where[id] = name + where[id][where[id].index("[") :]
    else:
        where[id]["type"] = name


def reshape(scenario: Scenario, rng: random.Random) -> None:
    """Other extents."""
    where, id = _entry(scenario, rng)
    ne = junk.extents(rng)
    if isinstance(where[id], str) and "[" in where[id] and "(" not in where[id]:
        where[id] = f"{where[id].split('[')[0]}[{', '.join(map(str, ne))}]"
    else:
        where[id]["ne"] = ne


def restride(scenario: Scenario, rng: random.Random) -> None:
    """Strides of one's own."""
    _long(scenario, rng)["nb"] = junk.extents(rng)


def review(scenario: Scenario, rng: random.Random) -> None:
    """A view of something that comes before it, mostly."""
    entries = _entries(scenario)
    at = rng.randrange(len(entries))
    where, id = entries[at]
    if isinstance(where[id], str):
        where[id] = {"type": rng.choice(("f32", "f16", "q4_0", "i32")), "ne": junk.extents(rng)}
    entry = where[id]
    entry["view_src"] = (entries[rng.randrange(max(at, 1))] if rng.random() < 0.9 else rng.choice(entries))[1]
    if rng.random() < 0.7:
        entry["view_offs"] = junk.integer(rng)


def data(scenario: Scenario, rng: random.Random) -> None:
    """Values, more or less right."""
    wrong = rng.random() < 0.3
    pick: Callable[[], Any] = (lambda: junk.value(rng)) if wrong else (lambda: junk.number(rng))
    _long(scenario, rng)["data"] = rng.choice((
        {"fill": pick()},
        {"normal": {"seed": pick(), "mean": pick(), "std": pick()}},
        {"normal": {}},
        {"uniform": {"low": pick(), "high": pick()}},
        {"uniform": {}},
        {"arange": {"start": pick(), "step": pick()}},
        {"base64": rng.choice(("", "AAAA", "A" * 24, "=", "é"))},
        {"npy": rng.choice(("none.npy", "../x.npy", "", "case.yaml"))},
        {"gguf": rng.choice(("none.gguf", "case.yaml")), "tensor": junk.text(rng)},
        [pick() for _ in range(rng.choice((1, 2, 4, 8, 32)))],
    ))  # fmt: skip


def mark(scenario: Scenario, rng: random.Random) -> None:
    """Flags, a name, an assignment."""
    entry = _long(scenario, rng)
    match rng.randrange(4):
        case 0:
            entry["flags"] = rng.sample(junk.FLAGS, rng.randint(0, 3))
        case 1:
            entry["name"] = junk.text(rng)
        case 2:
            entry["backend"] = rng.choice(_backend_names(scenario))
        case 3:
            where, id = _node(scenario, rng)
            if isinstance(where[id], str):
                where[id] = where[id].replace("(", "_inplace(", 1)
            else:
                where[id]["inplace"] = rng.random() < 0.8


def another_op(scenario: Scenario, rng: random.Random) -> None:
    """Another op, with the sources that were there."""
    where, id = _node(scenario, rng)
    if isinstance(where[id], str):
        where[id] = rng.choice(list(CONSTRUCTORS)) + where[id][where[id].index("(") :]
    else:
        where[id]["op"] = rng.choice(list(Op)).name.lower()


def sources(scenario: Scenario, rng: random.Random) -> None:
    """Other sources, more of them, or fewer."""
    where, id = _node(scenario, rng)
    ids = _before(scenario, id)
    if isinstance(where[id], str):
        op, _, rest = where[id].partition("(")
        parts = rest.rstrip(")").split(",")
        parts[rng.randrange(len(parts))] = rng.choice([*ids, "null"])
        where[id] = f"{op}({', '.join(parts)})"
    else:
        where[id]["src"] = [rng.choice([*ids, None]) for _ in range(rng.choice((0, 1, 2, 3, 4, 10, 11)))]


def raw_params(scenario: Scenario, rng: random.Random) -> None:
    """A node as it is captured: its type, extents, and parameters as words."""
    where, id = _node(scenario, rng)
    ids = _before(scenario, id)
    pick: Callable[[], int] = rng.choice((lambda: rng.choice((0, 1, 2, 4, -1, 1065353216)), lambda: junk.integer(rng)))
    if isinstance(where[id], str):
        where[id] = {"op": where[id].split("(")[0], "src": rng.sample(ids, min(len(ids), rng.randint(1, 4)))}
    where[id] |= {
        "type": rng.choice(("f32", "f32", "f16", "i32", rng.choice(list(TYPES)))),
        "ne": junk.extents(rng)[:4],
    }
    where[id]["op_params"] = [pick() for _ in range(rng.choice((0, 1, 2, 4, 8, 16, 17)))]


def params(scenario: Scenario, rng: random.Random) -> None:
    """A parameter of a call gives way to another number, or comes to it."""
    where, id = _node(scenario, rng)
    call = where[id]
    if not isinstance(call, str):
        names = [p.name for c in CONSTRUCTORS.values() if c.name == call.get("op") for p in c.params]
        call[rng.choice(names)] = junk.number(rng)
        return
    op, _, rest = call.partition("(")
    parts = rest.rstrip(")").split(",")
    if rng.random() < 0.2:
        names = [p.name for c in CONSTRUCTORS.values() if c.name == op.strip() for p in c.params]
        parts.append(f"{rng.choice([*names, 'eps'])}={junk.number(rng)}")
    else:
        at = rng.choice([i for i, part in enumerate(parts) if "=" in part] or [len(parts) - 1])
        parts[at] = _NUMBER.sub(lambda _: str(junk.number(rng)), parts[at], count=1)
    where[id] = f"{op}{rng.choice(('', '', '', '_inplace'))}({','.join(parts)})"


def _backend_names(scenario: Scenario) -> list[str]:
    backends = scenario.get("backends", ["CPU"])
    return [b if isinstance(b, str) else b.get("name", "CPU") for b in backends] or ["CPU"]


def backends(scenario: Scenario, rng: random.Random) -> None:
    """Other backends."""
    known = ["CUDA0", "CUDA1", "Metal", "Vulkan0", "SYCL0", "OpenCL", "CANN0", "BLAS", "RPC0", "GPU0", "CPU", "ROCm0"]
    given: list[Any] = [*rng.sample(known, rng.randint(0, 3)), *(["CPU"] if rng.random() < 0.9 else [])]
    if given and rng.random() < 0.5:
        options: dict[str, Any] = {
            "alignment": 1 << rng.randint(0, 12), "max_size": junk.integer(rng), "row_padding": junk.small(rng),
            "host": True, "supports": {rng.choice(("only", "except")): rng.sample([o.name.lower() for o in Op], 5)},
            "supports_bufts": rng.sample(known, 2), "offload_min_batch": junk.small(rng),
            "memory": junk.integer(rng), "events": True, "type": rng.choice(("gpu", "accel")),
            "profile": rng.choice(["CUDA", "Metal", "Vulkan", "SYCL", "CANN", "CPU", "custom"]),
        }  # fmt: skip
        keys = rng.sample(list(options), rng.randint(1, 4))
        at = rng.randrange(len(given))
        given[at] = {"name": given[at], **{key: options[key] for key in keys}}
    scenario["backends"] = given
    for entry in scenario["contexts"].values():
        if "buft" in entry and rng.random() < 0.8:
            entry["buft"] = rng.choice(_backend_names(scenario))


def context(scenario: Scenario, rng: random.Random) -> None:
    """Another buffer type or usage of a context, or a scheduler with other options."""
    entry = rng.choice(list(scenario["contexts"].values()))
    match rng.randrange(5):
        case 0:
            entry["buft"] = rng.choice([*_backend_names(scenario), "CUDA_Host", "CPU_REPACK"])
        case 1:
            entry["usage"] = rng.choice(("any", "weights", "compute"))
        case 2:
            entry.pop("buft", None)
            entry["tallocr"] = rng.choice(_backend_names(scenario))
            scenario["ggml"] = "2024-01"
        case 3:
            scenario["scheduler"] = {"parallel": rng.random() < 0.5, "op_offload": rng.random() < 0.5,
                                     "graph_size": junk.integer(rng)}  # fmt: skip
        case 4:
            scenario["ggml"] = rng.choice(junk.RELEASES)


def steps(scenario: Scenario, rng: random.Random) -> None:
    """Steps in any order."""
    graphs = [*scenario["graphs"], "nowhere"]
    ids = [id for _, id in _entries(scenario)]
    made: list[Any] = []
    for _ in range(rng.randint(0, 6)):
        graph = graphs[0] if rng.random() < 0.9 else rng.choice(graphs)
        id = rng.choice(ids)
        usual = (f"reserve {graph}", f"alloc {graph}", f"compute {graph}", "reset", {"get": [id]},
                 {"set": {id: {"normal": {}}}},
                 {"set": {id: {"fill": junk.number(rng)}}}, {"set": {id: [1] * 4}})  # fmt: skip
        made.append(rng.choice(usual if rng.random() < 0.95 else (f"measure {graph}", {"get": id}, junk.value(rng))))
    scenario["steps"] = made


def expand(scenario: Scenario, rng: random.Random) -> None:
    """Other ends of the graph, or a second graph."""
    name, graph = rng.choice(list(scenario["graphs"].items()))
    ids = [id for _, id in _entries(scenario)]
    if rng.random() < 0.7:
        graph["expand"] = rng.sample(ids, rng.randint(0, min(3, len(ids))))
    else:
        scenario["graphs"][f"{name}2"] = {"nodes": dict(rng.sample(list(graph["nodes"].items()), 1))}


_WEIGHTED: dict[Change, int] = {
    replace: 1, delete: 2, insert: 1, swap: 1, numbers: 4, retype: 6, reshape: 6, restride: 3, review: 3, data: 7,
    mark: 6,
    another_op: 5, sources: 5, raw_params: 5, params: 7, backends: 6, context: 6, steps: 6, expand: 4,
}  # fmt: skip
_CHANGES, _WEIGHTS = list(_WEIGHTED), list(_WEIGHTED.values())
