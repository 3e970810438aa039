"""What could be changed: options, changes that were planned, ops that a device lacks, and limits that are near."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ggmltool.ask.check.record import status
from ggmltool.ask.report.document import AdviceRow
from ggmltool.ask.report.tables import NONE
from ggmltool.ask.words import refusal_text
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.sched.unchecked import REMEDY
from ggmltool.inspect.copied import copied_inputs
from ggmltool.inspect.decisions import unsupported
from ggmltool.inspect.fold import masked
from ggmltool.inspect.opened import WhatIf
from ggmltool.inspect.use_after_free import use_after_free, uses_after_free
from ggmltool.inspect.watched import watch
from ggmltool.inspect.what_if import backend_of, changes, outcomes, put_all
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.versions import has_no_op_offload
from ggmltool.show.text import count, size

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan, SplitPlan
    from ggmltool.inspect.gauges import Gauge
    from ggmltool.inspect.opened import Moment, Opened
    from ggmltool.inspect.watched import Watched
    from ggmltool.scenario.tensor_info import Tensors

_SPLITS = 3
"""Splits for which changes are looked for: those that copy most, one of each kind."""
_NODES_PLANNED = 12_000
"""Nodes that are planned at most for them, over all changes; at least one change for each is."""
_MOST = 8
_KINDS = 5
"""Kinds of weights, such as those of one product in every layer, that are put elsewhere together."""
_NUMBER = re.compile(r"\d+")


def numbers_of(plan: Plan, tensors: Tensors) -> tuple[int, int, int]:
    """What a plan comes to: splits, the bytes that they copy, and those of all compute buffers."""
    inputs = copied_inputs(plan, tensors)
    return len(plan.splits), sum(i.nbytes for i in inputs), sum(n for _, n in plan.buffer_sizes)


def other_options(opened: Opened, moment: Moment, plan: Plan) -> Iterator[AdviceRow]:
    """The options of the scheduler the other way round, where that plans otherwise."""
    scheduler = opened.model.scheduler
    options = [] if has_no_op_offload(opened.model.release) else [WhatIf(op_offload=not scheduler.op_offload)]
    options += [WhatIf(parallel=False)] if scheduler.parallel else []
    for option in options:
        other = watch(opened.what_if(option), moment).plan
        if other.ok and (other.splits, other.buffer_sizes) != (plan.splits, plan.buffer_sizes):
            yield AdviceRow("option", str(option), NONE, *numbers_of(other, opened.tensors(other.graph or "")))


def fewer_splits(opened: Opened, at: Watched) -> Iterator[AdviceRow]:
    """Changes with which the graph has fewer splits, looked for at the splits that copy most; but for weights of which
    others of their kind are copied as well, for which see `put_together`."""
    plan, heard = at.plan, at.record.decisions
    together = {id for kind in _kinds(opened, at).values() if len(kind) > 1 for id in kind}
    tried = max(_NODES_PLANNED // max(len(plan.nodes), 1) // _SPLITS, 1)
    for split in _largest(opened, plan):
        node = next((e.node for e in heard.started if e.split == split.id), plan.nodes[split.i_start].id)
        found = changes(opened, at.graph, node, heard.deciders(node), backend_of(plan, node))
        own = (c for c in found if c.model.scheduler == opened.model.scheduler and c.moved not in together)
        tries = islice(own, min(tried, _MOST))
        named = (c._replace(text=f"{c.text} for {node}") if c.of_node else c for c in tries)
        for out in outcomes(named, at.graph, node, lambda p: len(p.splits) < len(plan.splits)):
            yield AdviceRow("node", out.text, split.id, out.splits, out.copied, None)


def put_together(opened: Opened, at: Watched) -> Iterator[AdviceRow]:
    """All weights that are copied and are called the same but for their numbers, in the memory of who copies them: the
    largest kinds, where that copies less."""
    plan, graph = at.plan, at.graph
    largest = sorted(_kinds(opened, at).items(), key=lambda kind: -sum(kind[1].values()))
    for (_, backend), weights in largest[: min(_KINDS, max(_NODES_PLANNED // max(len(plan.nodes), 1), 1))]:
        if len(weights) < 2:
            continue
        model = put_all(opened.model, weights, backend)
        other = LoadedScenario(model).plan(graph)
        now, then = (numbers_of(of, opened.tensors(graph)) for of in (plan, other))
        if other.ok and then[1] < now[1]:
            what = f"{len(weights)} weights {masked(list(weights))}, {size(sum(weights.values()))}"
            yield AdviceRow("weights", f"put {what}, into {backend}'s memory", NONE, *then)


def _kinds(opened: Opened, at: Watched) -> dict[tuple[str, str], dict[str, int]]:
    """The weights that are copied with their bytes, by their names without numbers and the backend that gets them."""
    kinds: dict[tuple[str, str], dict[str, int]] = {}
    for i in copied_inputs(at.plan, opened.tensors(at.graph)):
        if i.what == "weight":
            kinds.setdefault((_NUMBER.sub("N", i.tensor), i.dst), {})[i.tensor] = i.nbytes
    return kinds


def _largest(opened: Opened, plan: Plan) -> list[SplitPlan]:
    """The splits that copy most, one of those whose nodes differ in their numbers only."""
    copied: dict[int, int] = {}
    for i in copied_inputs(plan, opened.tensors(plan.graph or "")):
        copied[i.split] = copied.get(i.split, 0) + i.nbytes
    found: dict[object, SplitPlan] = {}
    for split in sorted(plan.splits[1:], key=lambda s: -copied.get(s.id, 0)):
        if split.i_start < len(plan.nodes) and split.id in copied:
            kind = split.backend, _NUMBER.sub("N", plan.nodes[split.i_start].id)
            found.setdefault(kind, split)
    return list(found.values())[:_SPLITS]


def not_supported(opened: Opened, plan: Plan) -> Iterator[AdviceRow]:
    """The ops that GPUs do not support, the most frequent first."""
    run = opened.scenario.start()
    try:
        nodes = run.build(plan.graph or "").nodes
    except GgmlError:
        return
    found = unsupported(run.backends, nodes, {n.id: n.backend for n in plan.nodes})
    for (refused, there), n in found.most_common():
        yield _said("op", f"{refusal_text(refused)}: {count(n, 'node')} on {there}")


def advice_rows(opened: Opened, moment: Moment, at: Watched, gauges: Iterable[Gauge]) -> list[AdviceRow]:
    """Uses of freed memory first, then what there is now, what was planned otherwise, and what stands in the way."""
    return [*_freed(at), *_planned(opened, moment, at), *_limits(gauges)]


def _freed(at: Watched) -> Iterator[AdviceRow]:
    for use in uses_after_free(at.run):
        yield _said("freed", f"Use after free: {use_after_free(use)} To avoid it, {REMEDY}")


def _planned(opened: Opened, moment: Moment, at: Watched) -> Iterator[AdviceRow]:
    plan = at.plan
    if not plan.ok or not plan.splits:
        return
    yield AdviceRow("now", "as it is", NONE, *numbers_of(plan, opened.tensors(at.graph)))
    yield from other_options(opened, moment, plan)
    yield from put_together(opened, at)
    found: dict[str, AdviceRow] = {}
    for advice in fewer_splits(opened, at):
        found.setdefault(advice.text, advice)
    yield from sorted(found.values(), key=lambda advice: (advice.splits or 0, advice.copied or 0))
    yield from not_supported(opened, plan)


def _limits(gauges: Iterable[Gauge]) -> Iterator[AdviceRow]:
    for gauge in gauges:
        if status(gauge) in ("near", "over", "breached"):
            about = gauge.about
            used, limit = (size(n) if about.nbytes else str(n) for n in (gauge.used or 0, gauge.limit))
            where = f" ({gauge.where})" if gauge.where else ""
            yield _said("limit", f"{about.group}: {about.text}, {used} of {limit}{where}; {about.beyond}")


def _said(kind: str, text: str) -> AdviceRow:
    """What no plan has numbers of."""
    return AdviceRow(kind, text, NONE, None, None, None)
