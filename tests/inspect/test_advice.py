"""Advice is what a plan of the changed scenario comes to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import ggmltool
from ggmltool.ask.report.advice import fewer_splits, numbers_of, other_options, put_together
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, Watched, watch
from ggmltool.inspect.what_if import put_all
from ggmltool.scenario.dump import dump
from ggmltool.scenario.tensor_info import tensor_infos
from tests.cli.conftest import Call

LAYERS = "gemma-3-270m-ngl9"


def looked_at(name: str) -> tuple[Opened, Watched]:
    opened = ggmltool.load(name).opened
    return opened, watch(opened, Moment(), Record(Keep.DECISIONS))


@pytest.mark.parametrize("name", ["offload", "pipeline", LAYERS])
def test_an_option_is_planned_as_the_commands_do(call: Call, name: str) -> None:
    opened, at = looked_at(name)
    found = list(other_options(opened, Moment(), at.plan))
    assert found
    for advice in found:
        plan = json.loads(call("plan", "--json", advice.text, name).out)
        copied = json.loads(call("splits", "--bytes", "--json", advice.text, name).out)
        nbytes = sum(plan["buffer_sizes"].values())
        assert (advice.splits, advice.copied, advice.nbytes) == (len(plan["splits"]), copied["nbytes"], nbytes)


def test_fewer_splits_are_fewer() -> None:
    for name in ("missing-op", "moe", "pipeline", LAYERS):
        opened, at = looked_at(name)
        found = list(fewer_splits(opened, at))
        assert found, name
        assert all((advice.splits or 0) < len(at.plan.splits) for advice in found)
        assert all(0 < advice.split < len(at.plan.splits) for advice in found)


def test_weights_of_all_layers_are_put_elsewhere_together() -> None:
    opened, at = looked_at(LAYERS)
    found = list(put_together(opened, at))
    assert found[0].text == "put 10 weights blk.N.ffn_gate.weight, 8.59 MiB, into CUDA0's memory"
    ids = [f"blk.{layer}.ffn_gate.weight" for layer in range(10)]
    model = put_all(opened.model, ids, "CUDA0")
    homes = {t.id: context.buft for context in model.contexts for t in context.tensors}
    assert {homes[id] for id in ids} == {"CUDA0"}
    assert sorted(homes) == sorted(t.id for context in opened.model.contexts for t in context.tensors)
    again = ggmltool.load(dump(model))
    assert (found[0].splits, found[0].copied, found[0].nbytes) == numbers_of(
        again.plan(), tensor_infos(again.model, at.graph)
    )
    assert replace(model, contexts=[]) == replace(opened.model, contexts=[])


def test_what_is_copied_for_one_layer_only_is_not_put_together() -> None:
    opened, at = looked_at("offload")
    assert not list(put_together(opened, at))
