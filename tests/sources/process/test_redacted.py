"""A scenario for others has no name, value or description of the program's."""

from __future__ import annotations

import json
from typing import Any

import ggmltool
from ggmltool.attach.write.redacted import Redaction, redacted
from ggmltool.scenario.dump import dump

NAMES = ("blk.17.secret_q.weight", "token_embd_mine", "Kcur-17 (view)", "größe~4", "l_out-17", "private inputs")
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
            "tensors": {NAMES[0]: {"type": "f32", "ne": [8, 8, 1, 1], "nb": [4, 32, 256, 256], "at": 256}},
        },
        NAMES[5]: {
            "tensors": {
                NAMES[1]: {"type": "f32", "ne": [8, 4, 1, 1], "nb": [4, 32, 128, 128], "data": {"fill": 4242}},
                NAMES[3]: {"type": "f32", "ne": [8, 1, 1, 1], "nb": [4, 32, 32, 32], "view_src": NAMES[1]},
            }
        },
    },
    "graphs": {
        "main": {
            "nodes": {
                NAMES[2]: {
                    "type": "f32", "ne": [8, 4, 1, 1], "nb": [4, 32, 128, 128], "op": "mul_mat", "src": NAMES[:2],
                },
                NAMES[4]: {
                    "type": "f32", "ne": [8, 4, 1, 1], "nb": [4, 32, 128, 128], "op": "add",
                    "src": [NAMES[2], NAMES[3]], "backend": "CPU", "name": "another secret",
                },
            },
            "expand": [NAMES[1], NAMES[2], NAMES[4]],
        }
    },
    "steps": ["alloc main"],
}  # fmt: skip


def test_no_name_is_left() -> None:
    shown = json.dumps(redacted(DOCUMENT), ensure_ascii=False)
    for name in (*NAMES, "secret", "mymodel", "mine", "4242", "private"):
        assert name not in shown


def test_the_plan_is_the_same_but_for_names() -> None:
    redaction = Redaction(DOCUMENT)
    plan = ggmltool.load(DOCUMENT).plan("main").as_dict()
    ours = ggmltool.load(redaction.document()).plan("main").as_dict()
    assert redaction.plan(plan) == ours
    assert [n["id"] for n in ours["nodes"]] == ["t0004", "t0005"]
    assert ours["copies"]


def test_the_orders_of_devices_have_the_new_names() -> None:
    order = {"nodes": [NAMES[4], NAMES[2]], "kept": {NAMES[2]: [NAMES[0], f"CUDA0#{NAMES[3]}#0"]}}
    backends = [{"name": "CUDA0", "profile": "recorded", "answers": {"orders": [order]}}, {"name": "CPU"}]
    (said,) = redacted({**DOCUMENT, "backends": backends})["backends"][0]["answers"]["orders"]
    assert said == {"nodes": ["t0005", "t0004"], "kept": {"t0004": ["t0001", "CUDA0#t0003#0"]}}


def test_it_is_always_the_same() -> None:
    assert redacted(DOCUMENT) == redacted(json.loads(json.dumps(DOCUMENT)))
    assert dump(ggmltool.load(redacted(DOCUMENT)).model)["contexts"]["c1"]["size"] == 4096
