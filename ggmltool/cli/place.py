"""`ggmltool place` and `sweep`: where llama.cpp would put a captured model, one way or many, and whether it fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ggmltool.ask.answer import Answer
from ggmltool.ask.place import PlaceQuestion
from ggmltool.ask.place.chosen import choose, printed, replace_auto
from ggmltool.ask.place.options import RULES, named_devices, read_layers, several, shares_of, spelled
from ggmltool.ask.place.record import PlacementShown
from ggmltool.ask.place.record import place as find_place
from ggmltool.ask.place.text import chosen_view, failure
from ggmltool.ask.sweep import SweepQuestion
from ggmltool.ask.sweep.record import most_layers, varied
from ggmltool.ask.sweep.record import sweep as run_sweep
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import FINE, GGML_FAILED, CliError, value_of
from ggmltool.cli.models import ModelOptions, model_options, open_captures, opener
from ggmltool.cli.options import DOCUMENTS, scenarios_argument
from ggmltool.cli.output import ending_of, log_lines, note
from ggmltool.cli.progress import progress
from ggmltool.show.text import ggml_error, size
from ggmltool.sources.llama.model_file import is_model

if TYPE_CHECKING:
    from ggmltool.sources.llama.place.place import Placer
    from ggmltool.sources.llama.search.sweep import Job, JobOutcome


@question_command(PlaceQuestion)
@click.option(
    "-fitp", "--fit-print", is_flag=True,
    help="Print only what llama-fit-params -fitp on prints: MiB of weights, caches, compute buffers by device.",
)  # fmt: skip
@model_options()
def place(asking: Asking[PlaceQuestion], fit_print: bool, wanted: ModelOptions) -> int:
    asked, output, format, name = asking.question, asking.output, asking.format, asking.scenario
    if asked.devices:
        named_devices(asked.devices)  # before a model is captured, which takes a while
    if fit_print and (asked.fit or asked.n_gpu_layers == "auto"):
        raise click.UsageError("--fit-print prints what the given options need; leave out --fit and -ngl auto")
    fits = asked.fits
    with value_of("-ts"):
        shares_of(asked.tensor_split)
    with value_of("-ngl"):
        read_layers(replace_auto(asked).layers)
    open_for = opener(name, wanted)
    n_ctx = wanted.ctx_size[0] if wanted.ctx_size else 0
    graph = open_for(n_ctx)
    graph.opened.refuse_older(RULES)
    flash_auto = wanted.flash_attn in ((), ("auto",))
    if fit_print:
        output.write(printed(graph.opened, asked, flash_auto))
        return 0
    if not fits:
        return _show(asking, find_place(graph.opened, asked, spelled(graph.words), note))
    margin_given = click.get_current_context().get_parameter_source("margin") is not ParameterSource.DEFAULT
    if asked.fit_target is not None and margin_given:
        raise click.UsageError("--margin and --fit-target say the same: what has to stay free; give one of them")
    full = bool(wanted.ctx_size) and not n_ctx  # -c 0 asks for the model's own in full
    if name is None or not is_model(Path(name)):
        told = graph.opened.model.meta.get("n_ctx")  # a capture has the context that it has
        n_ctx = told if isinstance(told, int) else 0
    chosen = choose(lambda n: open_for(n).opened, asked, n_ctx, full, flash_auto, note)
    if chosen.fitted.status == "crash":
        if format is None:
            output.write(chosen_view(chosen, output.style))
        raise CliError(failure(chosen), GGML_FAILED)
    if not chosen.ok:
        note(failure(chosen))
    graph = open_for(chosen.fitted.params.n_ctx)
    return _show(asking, find_place(graph.opened, chosen.asked, spelled(graph.words), chosen=chosen))


def _show(asking: Asking[PlaceQuestion], answer: Answer[PlacementShown]) -> int:
    """Write the placement; the exit status."""
    placed, format, output = answer.facts, asking.format, asking.output
    log_lines(placed.needs.plan.log)
    if format == "scenario" or (format is None and ending_of(output.path) in PlaceQuestion.endings):
        output.write(scenario_bytes(placed))
        for device, n in placed.short.items():
            note(f"{device} does not fit: {size(n)} short")
    else:
        output.answer(answer, format or "text")
    if placed.needs.error is not None and format not in DOCUMENTS:
        note(ggml_error(dict(placed.needs.error)))
    return FINE if answer.fine else GGML_FAILED


def scenario_bytes(placed: PlacementShown) -> bytes:
    """The placed scenario as JSON, one line per tensor."""
    from ggmltool.scenario.dump import dump
    from ggmltool.sources.llama.capture.capture import scenario_text

    meta = {**placed.model.meta, "placed": placed.options["command_line"]}
    return scenario_text(dump(replace(placed.model, meta=meta))).encode()


@question_command(SweepQuestion)
@scenarios_argument
@model_options(lists=True)
def sweep(asking: Asking[SweepQuestion], wanted: ModelOptions) -> int:
    asked = asking.question
    if asked.devices:
        named_devices(asked.devices)  # before a model is captured, which takes a while
    graphs = open_captures(asking.scenarios, wanted)
    for graph in graphs:
        graph.opened.refuse_older(RULES)
    most = most_layers(graphs)
    splits, overridden = several(asked.tensor_split), several(asked.override_tensor)
    with value_of("-ts"):
        varied(most, None, splits, (), "0")
    with value_of("-ngl"):
        varied(most, asked.n_gpu_layers, (), (), "0")
    with value_of("--n-cpu-moe"):
        values = varied(most, asked.n_gpu_layers, splits, overridden, asked.n_cpu_moe)
    return asking.print(run_sweep(graphs, asked, values, asked.jobs, note, _with_progress))


def _with_progress(placers: list[Placer], work: list[Job], processes: int) -> list[JobOutcome]:
    from ggmltool.sources.llama.search.sweep import sweep as run_all

    with progress("placing", len(work), "placements") as done:
        return run_all(placers, work, processes, done)
