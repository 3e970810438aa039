"""`ggmltool sweep`: many placements of a captured model: splits, copies, memory, and the largest that fits."""

from __future__ import annotations

import shlex
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ggmltool.cli.captures import Graph, open_captures
from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.model_options import ModelOptions, model_options, spelled
from ggmltool.cli.options import format_option, output_option, scenarios_argument
from ggmltool.cli.output import Output
from ggmltool.cli.placing import (
    AUTO_SPLIT,
    Common,
    asked,
    common_options,
    devices_of,
    options_of,
    overrides,
    read_split,
)
from ggmltool.cli.progress import progress
from ggmltool.cli.ranges import read_range
from ggmltool.cli.scenario import refuse_older
from ggmltool.views.place.program import answers_for
from ggmltool.views.place.sweep import Needs, Sweep, Swept, sweep_csv, sweep_json, sweep_view

if TYPE_CHECKING:
    from ggmltool.sources.llama.place import Placer
    from ggmltool.sources.llama.sweep import Job, Outcome

MAX_PLACEMENTS = 20_000
_NONE = "none"
_PLACED = ("-ngl", "-ts", "-ot", "--n-cpu-moe")


class Varied(NamedTuple):
    """What is swept: lists of the values that each option takes."""

    layers: list[int]
    splits: list[str]
    overridden: list[str]
    n_cpu_moe: list[int]


@click.command(cls=Command)
@scenarios_argument
@click.option(
    "-ngl", "--n-gpu-layers", metavar="RANGE",
    help="Layers on GPUs: 0..33, 0..32:4, 8,16,all. Default: from 0 to all.",
)  # fmt: skip
@click.option(
    "-ts", "--tensor-split", metavar="SHARES", multiple=True,
    help="How GPUs share the layers; may be repeated. auto: for each placement, the split that leaves the fullest GPU "
         "the most memory.",
)  # fmt: skip
@click.option(
    "-ot", "--override-tensor", metavar="REGEX=DEVICE[,…]", multiple=True,
    help="Overrides of one placement, or `none`; each further -ot makes another placement.",
)  # fmt: skip
@click.option(
    "-ncmoe", "--n-cpu-moe", metavar="RANGE", default="0",
    help="Keep the experts of the first N layers on the CPU; a range as for -ngl.",
)  # fmt: skip
@common_options
@model_options(lists=True)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Number of processes (default: one for each core).",
)
@format_option("text", "json", "csv", help="Text (default), or JSON or CSV with exact bytes.")
@output_option
def sweep(
    scenario: tuple[str, ...],
    n_gpu_layers: str | None,
    tensor_split: tuple[str, ...],
    override_tensor: tuple[str, ...],
    n_cpu_moe: str,
    common: Common,
    wanted: ModelOptions,
    jobs: int | None,
    format: str | None,
    output: Output,
) -> int:
    """Place a captured model in many ways: splits, copied bytes, memory per device, and the best that fits.

    Every value of -ngl is combined with every -ts, -ot, --n-cpu-moe and scenario; several scenarios are captures of one
    model with different options. For a MODEL.gguf the graph is captured first, once for every combination of the
    options from -c to --outputs, which may have several values (needs the extra llama).

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. The best one has the most
    layers on GPUs; then the most weights there, the longest context, the most sequences, the largest ubatch, the
    largest cache, and the most memory left on the fullest device. Exit status 1: nothing fits.

    \b
    Example:
      ggmltool sweep -ngl 0..19 --device CUDA0:1764MiB gemma-3-270m
      ggmltool sweep -ngl all -ts 1,1 -ts 3,1 -ot none -ot ffn_down=CPU gemma-3-270m
      ggmltool sweep -ngl 0..18:6 -f csv gemma-3-270m
      ggmltool sweep -ngl 0..33 -ub 256,512,1024 -c 8192 --device CUDA0:24GiB model.gguf
      ggmltool sweep -ts auto -c 8192,32768 -ctk f16,q8_0 --device CUDA0:24GiB,CUDA1:8GiB model.gguf
    """
    from ggmltool.sources.llama.sweep import usable_processes

    graphs = open_captures(scenario, wanted)
    for graph in graphs:
        refuse_older(graph.opened, "the llama.cpp rules here belong to ggml")
    varied = _varied(graphs, n_gpu_layers, tensor_split, override_tensor, n_cpu_moe)
    placers = _placers(graphs, common, varied)
    combined, work = _jobs(graphs, common, varied)
    outcomes = _run(placers, work, jobs or usable_processes())
    result = _sweep(graphs, placers, common, work, combined, outcomes)
    if format == "csv":
        output.write(sweep_csv(result))
    elif format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(sweep_json(result)))
    else:
        again = _again(graphs, common, result, work) if result.memory else ""
        output.write(sweep_view(result, _title(graphs), output.style, again))
    failed = all(s.error for s in result.swept)
    return 1 if failed or (result.memory and result.best() is None) else 0


def _varied(
    graphs: list[Graph], layers: str | None, splits: tuple[str, ...], overridden: tuple[str, ...], experts: str
) -> Varied:
    """The values of the options, in the order given. Raises click.BadParameter."""
    from ggmltool.sources.llama.parts import n_layer

    most = max(n_layer(g.opened.model) for g in graphs) + 1
    for split in splits:
        _shares(split)
    return Varied(
        read_range(layers, most, "-ngl") if layers is not None else list(range(most + 1)),
        list(splits) or [""],
        [o if o != _NONE else "" for o in overridden] or [""],
        read_range(experts, most - 1, "--n-cpu-moe"),
    )


def _shares(split: str) -> tuple[float, ...]:
    return () if split in ("", AUTO_SPLIT) else read_split(split)


def _placers(graphs: list[Graph], common: Common, varied: Varied) -> list[Placer]:
    """Every scenario, ready to be placed. Raises CliError."""
    from ggmltool.sources.llama.errors import PlaceError
    from ggmltool.sources.llama.place import Placer

    n_split = max(len(_shares(s)) for s in varied.splits)
    out = []
    for o in (g.opened for g in graphs):
        o.scenario.graph_name()
        try:
            out.append(Placer(o.model, devices_of(o.model, common, n_split)))
        except PlaceError as error:
            raise CliError(f"{o.argument}: {error}") from None
    return out


def _jobs(graphs: list[Graph], common: Common, varied: Varied) -> tuple[list[dict[str, str]], list[Job]]:
    """The options of every placement, as texts and for the work. Raises CliError where there are too many."""
    from ggmltool.sources.llama.sweep import Job

    n = len(graphs) * len(varied.layers) * len(varied.splits) * len(varied.overridden) * len(varied.n_cpu_moe)
    if n > MAX_PLACEMENTS:
        raise CliError(f"{n} placements are too many; the limit is {MAX_PLACEMENTS}. Use larger steps, e.g. 0..99:10")
    rules = {
        (ot, moe): overrides([ot] if ot else [], moe, common.cpu_moe)
        for ot, moe in product(varied.overridden, varied.n_cpu_moe)
    }
    texts, work = [], []
    for i, graph in enumerate(graphs):
        file = {"file": Path(graph.opened.argument).name}
        for ts, ot, moe, ngl in product(varied.splits, varied.overridden, varied.n_cpu_moe, varied.layers):
            options = options_of(graph.opened.model, common, ngl, _shares(ts), rules[ot, moe])
            work.append(Job(i, options, common.margin, ts == AUTO_SPLIT))
            placed = {"-ngl": str(ngl), "-ts": ts, "-ot": ot, "--n-cpu-moe": str(moe) if moe else ""}
            texts.append({**file, **graph.facts, **placed})
    names = dict.fromkeys(name for text in texts for name in text)
    return [{name: text.get(name, "") for name in names} for text in texts], work


def _title(graphs: list[Graph]) -> str:
    """What is swept: the scenario, of several the model that all are captures of, else the first's title."""
    models = {g.opened.model.meta.get("model") for g in graphs}
    model = models.pop()
    return str(model) if len(graphs) > 1 and not models and model else graphs[0].opened.title


def _run(placers: list[Placer], work: list[Job], processes: int) -> list[Outcome]:
    """All placements. Raises CliError."""
    from ggmltool.sources.llama.errors import PlaceError
    from ggmltool.sources.llama.sweep import sweep as run_all

    try:
        with progress("placing", len(work), "placements") as done:
            return run_all(placers, work, processes, done)
    except PlaceError as error:
        raise CliError(str(error)) from None


def _sweep(
    graphs: list[Graph],
    placers: list[Placer],
    common: Common,
    work: list[Job],
    texts: list[dict[str, str]],
    outcomes: list[Outcome],
) -> Sweep:
    """The records that the view shows."""
    gpus = [d.name for d in placers[0].gpus]
    swept = [
        _swept(graphs[job.model], job, options, outcome, gpus)
        for job, options, outcome in zip(work, texts, outcomes, strict=True)
    ]
    devices = dict.fromkeys(device for s in swept for device in s.needs)
    memory = {b.name: b.memory for b in placers[0].model.backends if b.memory is not None}
    first = {**graphs[0].words, **swept[0].options}
    given = dict.fromkeys([*_PLACED, *(name for graph in graphs for name in graph.words)])
    same = [name for name in given if len({s.options.get(name) for s in swept}) == 1]
    fixed = {name: first[name] for name in same if first.get(name) or name not in swept[0].options}
    words = [spelled(fixed)] if len(swept) > 1 else []
    programs = list(dict.fromkeys(filter(None, (answers_for(g.opened.model.meta) for g in graphs))))
    return Sweep(" ".join(filter(None, [*words, asked(common)])), swept, memory, list(devices), gpus, programs)


def _swept(graph: Graph, job: Job, options: dict[str, str], outcome: Outcome, gpus: list[str]) -> Swept:
    """The record of one placement."""
    meta = graph.opened.model.meta
    split = ",".join(map(str, outcome.tensor_split))
    options = {**options, "-ts": split or options["-ts"]} if job.search else options
    on_gpus = sum(outcome.needs[gpu].weights for gpu in gpus if gpu in outcome.needs)
    context = [value if isinstance(value := meta.get(name), int) else 0 for name in ("n_ctx", "n_seq_max", "n_ubatch")]
    return Swept(
        options,
        outcome.graphs,
        {device: Needs(*needs) for device, needs in outcome.needs.items()},
        outcome.left,
        outcome.margins,
        (outcome.n_gpu_layers, on_gpus, *context, sum(needs.cache for needs in outcome.needs.values())),
        outcome.parallel,
        outcome.with_copies,
        outcome.error,
    )


def _again(graphs: list[Graph], common: Common, result: Sweep, work: list[Job]) -> str:
    """The command that shows the largest placement that fits, "" where none does."""
    best = result.best()
    if best is None:
        return ""
    graph = graphs[work[next(i for i, s in enumerate(result.swept) if s is best)].model]
    words = ["ggmltool", "place", graph.opened.argument, *(w for d in common.device for w in ("--device", d))]
    placed = {name: shlex.quote(best.options[name]) for name in _PLACED if best.options[name]}
    return " ".join(filter(None, [shlex.join(words), asked(common, **placed), spelled(graph.words)]))
