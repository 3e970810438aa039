"""Whatever a program calls its backends and buffer types, the scenario of its graph is loaded, and they stay apart."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings, strategies
from msgspec import structs

import ggmltool
from ggmltool.attach.devices.asking import ask
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.written import GRAPH, Redaction, redacted, scenario_file, written
from ggmltool.scenario.dump import dump
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.errors import AttachError
from tests.attach.recorded import recorded

NAMES = strategies.sampled_from(["CPU", "CPU~1", "BLAS", "Vulkan0", "Vulkan_Host", "CUDA0", "memory", "inputs", ""])


@cache
def program() -> tuple[Snapshot, Answers]:
    """A recorded program, and what its devices answered."""
    session = recorded("0.26")
    snapshot = session.snapshot()
    return snapshot, ask(session, snapshot)


def called(names: strategies.DataObject, swap: bool) -> Snapshot:
    """A recorded program with other names, whose backends perhaps allocate in each other's memory."""
    found, _ = program()
    bufts = {a: structs.replace(b, name=names.draw(NAMES)) for a, b in found.bufts.items()}
    backends = tuple(b._replace(name=names.draw(NAMES)) for b in found.backends)
    if swap:
        last = list(found.bufts)[-1]
        found = replace(found, sched=structs.replace(found.sched, bufts=(*found.sched.bufts[:-1], last)))
    return replace(found, bufts=bufts, backends=backends)


@settings(max_examples=40)
@given(names=strategies.data(), swap=strategies.booleans())
def test_names_do_not_collide(names: strategies.DataObject, swap: bool) -> None:
    snapshot = called(names, swap)
    made = written(snapshot, program()[1])
    scenario_file(made.document)
    plan = LoadedScenario(load_spec(made.document)).plan(GRAPH, made.step)
    assert [name for name, _ in plan.backends[: len(snapshot.backends)]] == list(made.names.backends)
    assert [buft for _, buft in plan.backends[: len(snapshot.backends)]] == [
        made.names.bufts[buft] for buft in snapshot.sched.bufts
    ]
    assert len({*made.names.bufts.values()}) == len(made.names.bufts)


def test_what_cannot_be_loaded_is_not_written() -> None:
    made = written(*program())
    made.document["steps"] = ["alloc nix"]
    with pytest.raises(AttachError, match=r"cannot be loaded .*there is no graph \"nix\""):
        scenario_file(made.document)


SECRETS = ("blk.17.secret_q.weight", "token_embd_mine", "Kcur-17 (view)", "größe~4", "l_out-17", "private inputs")
DOCUMENT: dict[str, Any] = {
    "ggmltool": 1,
    "name": "mymodel.gguf",
    "meta": {"source": "attach", "file": "/home/me/mymodel.gguf", "device of CUDA0": "a card of mine"},
    "backends": [{"name": "CUDA0"}, {"name": "CPU"}],
    "contexts": {
        "weights of mymodel": {
            "buft": "CUDA0",
            "usage": "weights",
            "size": 4096,
            "tensors": {SECRETS[0]: {"type": "f32", "ne": [8, 8, 1, 1], "nb": [4, 32, 256, 256], "at": 256}},
        },
        SECRETS[5]: {
            "tensors": {
                SECRETS[1]: {"type": "f32", "ne": [8, 4, 1, 1], "nb": [4, 32, 128, 128], "data": {"fill": 4242}},
                SECRETS[3]: {"type": "f32", "ne": [8, 1, 1, 1], "nb": [4, 32, 32, 32], "view_src": SECRETS[1]},
            }
        },
    },
    "graphs": {
        "main": {
            "nodes": {
                SECRETS[2]: {
                    "type": "f32", "ne": [8, 4, 1, 1], "nb": [4, 32, 128, 128], "op": "mul_mat", "src": SECRETS[:2],
                },
                SECRETS[4]: {
                    "type": "f32", "ne": [8, 4, 1, 1], "nb": [4, 32, 128, 128], "op": "add",
                    "src": [SECRETS[2], SECRETS[3]], "backend": "CPU", "name": "another secret",
                },
            },
            "expand": [SECRETS[1], SECRETS[2], SECRETS[4]],
        }
    },
    "steps": ["alloc main"],
}  # fmt: skip


def test_no_name_is_left() -> None:
    shown = json.dumps(redacted(DOCUMENT), ensure_ascii=False)
    for name in (*SECRETS, "secret", "mymodel", "mine", "4242", "private"):
        assert name not in shown


def test_the_plan_is_the_same_but_for_names() -> None:
    redaction = Redaction(DOCUMENT)
    plan = ggmltool.load(DOCUMENT).plan("main").as_dict()
    ours = ggmltool.load(redaction.document()).plan("main").as_dict()
    for node in plan["nodes"]:
        node["name"] = node["id"]
    said = json.dumps(plan, ensure_ascii=False)
    for old, new in redaction.names.items():
        said = said.replace(old, new)
    assert json.loads(said) == json.loads(json.dumps(ours))
    assert [n["id"] for n in ours["nodes"]] == ["t0004", "t0005"]
    assert ours["copies"]


def test_the_orders_of_devices_have_the_new_names() -> None:
    order = {"nodes": [SECRETS[4], SECRETS[2]], "kept": {SECRETS[2]: [SECRETS[0], f"CUDA0#{SECRETS[3]}#0"]}}
    backends = [{"name": "CUDA0", "profile": "recorded", "answers": {"orders": [order]}}, {"name": "CPU"}]
    (said,) = redacted({**DOCUMENT, "backends": backends})["backends"][0]["answers"]["orders"]
    assert said == {"nodes": ["t0005", "t0004"], "kept": {"t0004": ["t0001", "CUDA0#t0003#0"]}}


def test_it_is_always_the_same() -> None:
    assert redacted(DOCUMENT) == redacted(json.loads(json.dumps(DOCUMENT)))
    assert dump(ggmltool.load(redacted(DOCUMENT)).model)["contexts"]["c1"]["size"] == 4096
