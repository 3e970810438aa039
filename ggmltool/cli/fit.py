"""`ggmltool fit`: the best way to put a model on devices, found by planning, and the line that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ggmltool.ask.place.options import AUTO_SPLIT, Common, shares_of
from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError, value_of
from ggmltool.cli.models import ModelOptions, SeveralNumbers, model_options
from ggmltool.cli.options import DOCUMENTS, format_option, output_to, scenario_argument
from ggmltool.cli.output import Output, ending_of, note
from ggmltool.cli.pictures import PICTURES, check_picture, picture_of
from ggmltool.cli.placing import common_options_of_fit
from ggmltool.cli.scenario import open_scenario

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.fit.record import FitShown
    from ggmltool.ask.fit.wishes import Wishes
    from ggmltool.sources.llama.search.candidates import SearchProgress

SCENARIO_ENDINGS = (".json", ".yaml", ".yml")
_OBJECTIVES = ("fastest", "longest", "smallest", "fewest-splits")
_AUTO = "auto"
_NO_CONTEXT = "there is no chart: it shows speed over tokens of context, and this graph was captured from no context"


class _CountOrAuto(click.IntRange):
    """A number of layers, or auto, which is None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != _AUTO and not str(value).isdecimal():
            self.fail(f"{value!r} is not a number or auto", param, ctx)
        return None if value == _AUTO else super().convert(value, param, ctx)


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--objective", type=click.Choice(_OBJECTIVES), default="fastest", show_default=True,
    help="What is best: the least time for a prompt and its answer; the longest context; the fewest weights on the "
         "CPU, then the fewest bytes on GPUs; the fewest splits. Of equal ones (times: within 1 %) the fastest, then "
         "that with most room.",
)  # fmt: skip
@click.option(
    "-ngl", "--n-gpu-layers", type=SeveralNumbers(0, 10_000, all=-1), metavar="RANGE",
    help="Layers on GPUs: 20, all, 0..32:4 (default: searched).",
)  # fmt: skip
@click.option("-ts", "--tensor-split", metavar="SHARES", help="How GPUs share the layers (default: searched).")
@click.option(
    "-ot", "--override-tensor", metavar="REGEX=DEVICE[,…]", multiple=True,
    help="Weights whose name matches REGEX go to DEVICE, wherever the rest goes.",
)  # fmt: skip
@click.option(
    "-ncmoe", "--n-cpu-moe", type=_CountOrAuto(0, 10_000), metavar="N|auto", default=_AUTO,
    help="Keep the experts of the first N layers on the CPU (default: searched, part by part).",
)  # fmt: skip
@click.option(
    "-ncffn", "--n-cpu-ffn", type=_CountOrAuto(0, 10_000), metavar="N|auto", default=_AUTO,
    help="Keep the dense feed-forward weights of the first N layers on the CPU (default: searched, part by part).",
)  # fmt: skip
@common_options_of_fit
@model_options(lists=True, doubled=True)
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Number of processes (default: one for each core)."
)
@click.option(
    "--resume", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Keep what is found in FILE, and go on from there: a search that was ended loses nothing.",
)  # fmt: skip
@click.option("--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="Placements to list.")
@format_option(
    "text", *DOCUMENTS, "scenario", *PICTURES,
    help="Text (default), JSON or CSV with exact bytes, the best placement as a scenario, or a picture: speed and "
         "context.",
)  # fmt: skip
@output_to(*SCENARIO_ENDINGS)
def fit(
    scenario: str | None,
    objective: Any,
    n_gpu_layers: tuple[int, ...] | None,
    tensor_split: str | None,
    override_tensor: tuple[str, ...],
    n_cpu_moe: int | None,
    n_cpu_ffn: int | None,
    common: Common,
    wanted: ModelOptions,
    jobs: int | None,
    resume: Path | None,
    top: int,
    format: str | None,
    output: Output,
) -> int:
    """Find the best way to put a model on your devices, and the line that runs it so.

    The model is a GGUF file, of which only the header is read (needs the extra llama), or the capture of a graph, whose
    context cannot be changed. Neither the devices nor the weights are needed. What is not named is searched: layers and
    their split, experts and feed-forward weights on the CPU, ubatch and context. Every placement that could be the best
    is planned as llama.cpp would make it, to the byte.

    MEMORY of a device is what is free on it; a placement fits if a margin of that is left. With -o FILE.json.gz the
    best placement is written as a scenario, for all other commands; with -o FILE.svg a chart. Exit status 1: nothing
    fits.

    \b
    Example:
      ggmltool fit --device CUDA0:24GiB --device CUDA1:8GiB -c 32768 model.gguf
      ggmltool fit --device CUDA0:12GiB -c 8192..131072 --objective longest -ctk f16,q8_0 model.gguf
      ggmltool fit --device CUDA0:24GiB -o placed.json.gz model.gguf
      ggmltool fit --device CUDA0:2GiB gemma-3-270m
    """
    check_picture(format, output, "chart")
    with value_of("-ts"):
        shares = shares_of("" if tensor_split in (None, AUTO_SPLIT) else str(tensor_split))
    wishes = _wishes(
        scenario, wanted, common, objective,
        layers=n_gpu_layers or (), tensor_split=shares, override_tensor=override_tensor,
        n_cpu_moe=n_cpu_moe, n_cpu_ffn=n_cpu_ffn,
    )  # fmt: skip
    from ggmltool.ask.fit.wishes import DEPTH

    if click.get_current_context().get_parameter_source("n_depth") is ParameterSource.DEFAULT:
        wishes = wishes._replace(common=common._replace(n_depth=DEPTH))
    found = _found(wishes, scenario, jobs, resume, top)
    own = "scenario" if ending_of(output.path) in SCENARIO_ENDINGS else "text"
    _write(found, output, format or own)
    return 0 if found.fine else 1


def _wishes(scenario: str | None, wanted: ModelOptions, common: Common, objective: Any, **placed: Any) -> Wishes:
    """What is asked for. Raises CliError for options of a context where there is no model to capture."""
    from ggmltool.ask.fit.wishes import Ranges, Wishes
    from ggmltool.sources.llama.model_file import is_model

    if scenario is None or not is_model(Path(scenario)):
        if wanted.given:
            raise CliError(f"{wanted.given[0]} changes the graph: name the model itself, MODEL.gguf, not its capture")
        return Wishes(scenario or "", Ranges(**placed), common, objective, captured=True)
    lists = {
        "contexts": wanted.ctx_size,
        "ubatches": wanted.ubatch_size,
        "types_k": wanted.cache_type_k,
        "types_v": wanted.cache_type_v,
        "parallel": wanted.n_parallel,
        "flash_attn": wanted.flash_attn,
    }
    given: dict[str, Any] = {name: values for name, values in lists.items() if values}
    if wanted.batch_size:
        given["n_batch"] = max(wanted.batch_size)
    none: dict[str, Any] = dict.fromkeys(ModelOptions.lists(), ())
    one, *others = wanted._replace(**none).each()
    if others:
        raise click.UsageError("--as and --outputs have one value here")
    return Wishes(
        scenario,
        Ranges(**given, **placed),
        common,
        objective,
        base=one.options,
        flags=one.words,
        quantization=one.quantization,
    )


def _found(wishes: Wishes, scenario: str | None, jobs: int | None, resume: Path | None, top: int) -> Answer[FitShown]:
    from ggmltool.ask.fit.record import fit as find
    from ggmltool.ask.fit.text import progress_text
    from ggmltool.cli.progress import progress

    opened = None
    if wishes.captured:
        opened = open_scenario(scenario)
        opened.refuse_older("the llama.cpp rules here belong to ggml")
        wishes = wishes._replace(argument=opened.argument)
    text = ""

    def told(now: SearchProgress) -> None:
        nonlocal text
        text = progress_text(now)

    with progress("searching", detail=lambda: text):
        return find(wishes, opened, jobs, note, told, resume)


def _write(found: Answer[FitShown], output: Output, format: str) -> None:
    """Raises CliError where there is nothing to write."""
    if format in PICTURES:
        from ggmltool.ask.fit.svg import chart_of

        if not found.fine:
            raise CliError("nothing fits, so there is no chart")
        if not all(candidate.n_ctx for candidate in found.rows):
            raise CliError(_NO_CONTEXT)
        output.write(picture_of(chart_of(found), format, found.title, output))
    elif format == "scenario":
        from ggmltool.cli.place import scenario_bytes

        if not found.fine:
            raise CliError("nothing fits, so there is no placement to write")
        output.write(scenario_bytes(found.facts.placed))
    else:
        output.answer(found, format)
