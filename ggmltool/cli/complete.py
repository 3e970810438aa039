"""Completion in the shell: scenarios and samples, and the names in the scenario that stands on the line."""

from __future__ import annotations

from collections.abc import Iterable
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec


def complete_scenarios(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
    """Samples and files. Bash completes files itself only where nothing else is offered, so they are listed too."""
    from click.shell_completion import CompletionItem

    from ggmltool.scenario.samples import sample_name, samples

    names = [name for name in map(sample_name, samples()) if name.startswith(incomplete)]
    if not names:
        return [CompletionItem(incomplete, type="file")]
    here = sorted(f"{path}/" if path.is_dir() else str(path) for path in Path().glob(f"{escape(incomplete)}*"))
    return [CompletionItem(name) for name in dict.fromkeys([*here, *names])]


def complete_sides(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Samples and files, and behind the colon after one of them its graphs."""
    file, colon, graph = incomplete.rpartition(":")
    model = _model_on_the_line(ctx, file) if colon else None
    if model is None:
        return complete_scenarios(ctx, param, incomplete)
    return [f"{file}:{name}" for name in model.graphs if name.startswith(graph)]


def complete_keys(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """What nodes are counted by, each after a comma too."""
    from ggmltool.ask.splits import KEYS

    return _listed(KEYS, incomplete)


def complete_parts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """What of plans is compared, each after a comma too."""
    from ggmltool.ask.diff import PARTS

    return _listed(PARTS, incomplete)


def _listed(words: Iterable[str], incomplete: str) -> list[str]:
    *before, last = incomplete.split(",")
    return [",".join([*before, word]) for word in words if word.startswith(last) and word not in before]


def complete_injection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes, each with the `=` that follows; behind it the ops."""
    node, equals, op = incomplete.rpartition("=")
    if not equals:
        return [f"{id}=" for id in complete_nodes(ctx, param, incomplete)]
    from ggmltool.ggml.op import KEY_NAMES

    return [f"{node}={name}" for name in KEY_NAMES if name.startswith(op)]


def complete_graphs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The names of the graphs of the scenario that stands on the line."""
    model = _model_on_the_line(ctx)
    return [] if model is None else [name for name in model.graphs if name.startswith(incomplete)]


def complete_tensors(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the tensors and nodes of the scenario that stands on the line."""
    model = _model_on_the_line(ctx)
    if model is None:
        return []
    nodes = [node for graph in model.graphs.values() for node in graph.nodes]
    ids = dict.fromkeys(tensor.id for tensor in (*nodes, *model.tensors()))
    return [id for id in ids if id.startswith(incomplete)]


def complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The ids of tensors, and behind the first word scenarios too: for commands that take names and a scenario."""
    from click.shell_completion import CompletionItem

    names = [CompletionItem(name) for name in complete_tensors(ctx, param, incomplete)]
    given = ctx.params.get(param.name or "") or ctx.params.get("scenario")
    scenarios = complete_scenarios(ctx, param, incomplete) if given else []
    return [*names, *(item for item in scenarios if item.type == "plain" or not names)]


def complete_nodes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the nodes of the scenario that stands on the line."""
    model = _model_on_the_line(ctx)
    nodes = [] if model is None else [node.id for graph in model.graphs.values() for node in graph.nodes]
    return [id for id in dict.fromkeys(nodes) if id.startswith(incomplete)]


def complete_contexts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The names of the contexts of the scenario that stands on the line."""
    model = _model_on_the_line(ctx)
    return [] if model is None else [c.name for c in model.contexts if c.name.startswith(incomplete)]


def _model_on_the_line(ctx: click.Context, named: str | None = None) -> ScenarioSpec | None:
    from ggmltool.cli.scenario import default_scenario, is_scenario
    from ggmltool.scenario.load import load_spec
    from ggmltool.scenario.samples import scenario_path

    # While an option waits for its value, click has not yet given the arguments their names.
    named = named or ctx.params.get("scenario")
    if named is not None and not is_scenario(named):
        named = None  # a name, of a command whose last word may be one
    for argument in [named] if named else [*reversed(ctx.args), default_scenario()]:
        try:
            return None if argument == "-" else load_spec(scenario_path(argument))
        except Exception:  # a completion has nobody to complain to; this was no scenario
            continue
    return None


def complete_pair(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _listed(complete_releases(ctx, param, incomplete.rpartition(",")[2]), incomplete)


def complete_releases(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from ggmltool.ggml.releases.table import BY_NAME, RELEASES

    return [name for name in (BY_NAME if incomplete else RELEASES) if name.startswith(incomplete)]


def complete_devices(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Devices with what may be free on them, and those that are known."""
    from ggmltool.scenario.devices.rates import known_devices

    names = ("CUDA0:24GiB", "CUDA1:24GiB", "CPU:64GiB", *known_devices())
    return [name for name in names if name.startswith(incomplete)]
