"""Mutations of what attach writes: recorded answers, the past of a scheduler, memory of the program's own.

The documents are those of programs that were recorded once (tests/attach/memory), so that no gdb is needed.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.written import redacted, written
from ggmltool.scenario.devices.supports import WORDS
from ggmltool.scenario.past import PastKeys
from ggmltool.scenario.values import key_names
from tests.attach.recorded import FOLDER, recorded
from tests.fuzz import junk, scenarios

Scenario = dict[str, Any]
_CALL = "ggml_backend_sched_alloc_graph"
_PIECE = re.compile(r"-?\d+|\w+|[^\w\s]| ")


@cache
def documents() -> tuple[Scenario, ...]:
    """What attach writes of the recorded programs, before and after the call, with answers to every question, with and
    without names."""
    out = []
    for path in sorted(FOLDER.glob("*.json.gz")):
        session = recorded(path.name.removesuffix(".json.gz"))
        for when in ("before", "after"):
            snapshot = read_snapshot(session, session.sched, session.graph, _CALL, when)  # type: ignore[arg-type]
            document = written(snapshot, _answers(snapshot)).document
            out += [document, redacted(document)]
    return tuple(out)


def _answers(snapshot: Snapshot) -> Answers:
    """Every device but the last refuses every third tensor, and weights take twice their bytes."""
    pairs = [(t, b) for t in snapshot.tensors for b in range(len(snapshot.backends))]
    supports = {(t, b): b + 1 == len(snapshot.backends) or i % 3 > 0 for i, (t, b) in enumerate(pairs)}
    sizes = {
        (address, buft): t.nb[3] * t.ne[3] * (1 if t.op else 2)
        for address, t in snapshot.tensors.items()
        for buft in snapshot.bufts
    }
    bufts = {(b, buft): True for b in range(len(snapshot.backends)) for buft in snapshot.bufts}
    return Answers(supports, dict.fromkeys(supports, False), sizes, bufts, len(pairs))


def mutated(rng: random.Random) -> Scenario:
    """One of them with one to five changes, most of them where other scenarios have nothing."""
    scenario = copy.deepcopy(rng.choice(documents()))
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 4))):
        change = rng.choice(_CHANGES) if rng.random() < 0.75 else scenarios.any_change(rng)
        try:
            change(scenario, rng)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            continue  # an earlier change has left nothing to change here
    return scenario


def packed(value: Scenario, rng: random.Random) -> bytes:
    """The file that attach writes, its bytes damaged now and then; seldom one that unpacks to very much."""
    raw = gzip.compress(json.dumps(value).encode("utf-8", "surrogatepass"), mtime=0)
    match rng.randrange(8):
        case 0:
            return raw[: rng.randrange(len(raw))]
        case 1:
            changed = bytearray(raw)
            for _ in range(rng.choice((1, 1, 9))):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)
        case 2:
            return raw + rng.choice((raw, b"\0" * 20, b"x", raw[:12]))
        case 3 if rng.random() < 0.1:
            return gzip.compress(rng.choice((b"[", b" ", b'{"a":', b"0")) * (64 << 20), 1, mtime=0)
        case 4 if rng.random() < 0.1:
            return raw[:2] + zlib.compress(raw)
    return raw


def near(scenario: Scenario, rng: random.Random) -> None:
    """Numbers of the past, of places and of sizes are others that may be true."""
    parts = [scenario["scheduler"], scenario["contexts"], scenario["graphs"], scenario["backends"]]
    found = [(w, k) for part in parts for w, k, _ in scenarios.everywhere(part) if type(w[k]) is int]
    for where, key in rng.sample(found, min(len(found), rng.choice((1, 1, 2, 8)))):
        number = where[key]
        where[key] = rng.choice((number + 1, number * 2, number // 2, number + 128, max(0, number - 128), 0, 1))


def other_backend(scenario: Scenario, rng: random.Random) -> None:
    """A backend of the past is another one."""
    names = [b if isinstance(b, str) else b["name"] for b in scenario["backends"]]
    places = [(w, k) for w, k, _ in scenarios.everywhere(scenario["scheduler"]["past"]) if w[k] in names]
    where, key = rng.choice(places)
    where[key] = rng.choice((*names, None))


def answers(scenario: Scenario, rng: random.Random) -> None:
    """A question or an answer of a device becomes another."""
    device = rng.choice([b for b in scenario["backends"] if isinstance(b, dict) and "answers" in b])
    of = device["answers"]
    match rng.randrange(6):
        case 0:
            of[rng.choice(("ops", "sizes", "zzz"))] = junk.value(rng)
        case 1:
            of["ops"][rng.choice(list(of["ops"]))] = rng.choice((*WORDS, junk.value(rng)))
        case 2:
            of["sizes"][rng.choice((*of["sizes"], junk.text(rng)))] = junk.value(rng)
        case 3:
            device[rng.choice(("like", "profile", "type", "supports_bufts", "buft"))] = junk.value(rng)
        case 4:
            sizes = of["sizes"][rng.choice(list(of["sizes"]))]
            sizes[_other_question(rng, rng.choice(list(sizes)))] = junk.integer(rng)
        case 5:
            asked = rng.choice(list(of["ops"]))
            of["ops"][_other_question(rng, asked)] = of["ops"].pop(asked)


def _other_question(rng: random.Random, text: str) -> str:
    """A question with a word, a number or a sign of its text changed."""
    pieces = _PIECE.findall(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(pieces))
        match rng.randrange(5):
            case 0:
                pieces[at] = str(junk.integer(rng))
            case 1:
                pieces[at] = rng.choice((*"()[]{};,->", " view", " in ", " of ", " weights", "-", "\x1b", '"', "λ"))
            case 2:
                pieces[at] = pieces[at] * rng.choice((0, 2, 300))
            case 3:
                pieces.insert(at, rng.choice(pieces))
            case 4:
                pieces[at] = junk.text(rng)
    return "".join(pieces)


def past(scenario: Scenario, rng: random.Random) -> None:
    """A part of the past is another, or gone."""
    of = scenario["scheduler"]["past"]
    key = rng.choice(key_names(PastKeys))
    if rng.random() < 0.3:
        of[key] = junk.value(rng)
    elif rng.random() < 0.2:
        del of[key]
    else:
        where, at, _ = rng.choice(list(scenarios.everywhere(of)))
        where[at] = rng.choice((junk.value(rng), junk.integer(rng), junk.small(rng), None, copy.deepcopy(where[at])))


def long_past(scenario: Scenario, rng: random.Random) -> None:
    """More of something than there can be."""
    of = scenario["scheduler"]["past"]
    name = rng.choice([b if isinstance(b, str) else b["name"] for b in scenario["backends"]])
    n = rng.choice((17, 300, 5000))
    match rng.randrange(5):
        case 0:
            of[rng.choice(("node_ids", "leaf_ids", "prev_node_ids", "prev_leaf_ids"))] = [
                [name, rng.choice((n, 10**6, 10**6 + 1, 10**12))]
            ] * rng.choice((1, 3, n))
        case 1:
            of["nodes"] = [[[0, 0, i * 128, 128], None, [0, 0, 0, 128]] for i in range(n)]
        case 2:
            of["planners"] = {name: [[junk.integer(rng), [[i * 256, 128] for i in range(n)]]] * rng.choice((1, 16))}
        case 3:
            of["buffers"] = {name: [junk.integer(rng)] * rng.choice((1, 16, n))}
        case 4:
            of[rng.choice(("hash_size", "own_size", "cur_copy", "next_copy"))] = junk.integer(rng)


def places(scenario: Scenario, rng: random.Random) -> None:
    """Where a tensor lies, and how large the memory is that it lies in."""
    contexts = scenario["contexts"]
    context = contexts[rng.choice(list(contexts))]
    tensors = [t for c in contexts.values() for t in c.get("tensors", {}).values()]
    nodes = [n for g in scenario["graphs"].values() for n in g["nodes"].values()]
    match rng.randrange(5):
        case 0:
            context["size"] = junk.value(rng) if rng.random() < 0.3 else junk.integer(rng)
        case 1:
            context.pop("size", None)
        case 2:
            rng.choice(tensors + nodes)["at"] = junk.value(rng) if rng.random() < 0.3 else junk.integer(rng)
        case 3:
            rng.choice(tensors + nodes)["in"] = rng.choice([*contexts, "nowhere", junk.value(rng)])
        case 4:
            rng.choice(tensors + nodes).pop(rng.choice(("at", "in", "ne", "nb", "type")), None)


def further(scenario: Scenario, rng: random.Random) -> None:
    """What else only attach writes: buffer types, a scheduler's options, what the file says of itself."""
    match rng.randrange(4):
        case 0:
            scenario["buffer_types"] = {"Host": junk.value(rng)} if rng.random() < 0.5 else junk.value(rng)
        case 1:
            key = rng.choice(("graph_size", "parallel", "op_offload", "copy_callback", "past"))
            scenario["scheduler"][key] = junk.value(rng)
        case 2:
            scenario["meta"] = {junk.text(rng): junk.value(rng)}
        case 3:
            scenario["ggml"] = rng.choice((*junk.RELEASES, "0.26", "2025-08", junk.text(rng)))


_CHANGES: tuple[Callable[[Scenario, random.Random], None], ...] = (
    near, near, near, near, other_backend, answers, answers, past, past, long_past, places, places, further,
)  # fmt: skip
