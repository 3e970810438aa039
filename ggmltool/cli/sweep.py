"""`ggmltool sweep`: many placements of a captured model: splits, copies, memory, and the largest that fits."""

from __future__ import annotations

import re
import shlex
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ggmltool.cli.captures import open_captures
from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import format_option, output_option, scenarios_argument
from ggmltool.cli.output import Output
from ggmltool.cli.placing import Common, asked, common_options, devices_of, options_of, overrides, read_split
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import Opened, refuse_older
from ggmltool.views.sweep import Sweep, Swept, sweep_csv, sweep_json, sweep_view

if TYPE_CHECKING:
    from ggmltool.sources.llama.place import Placer
    from ggmltool.sources.llama.sweep import Job, Outcome

MAX_PLACEMENTS = 20_000
_MAX_UBATCH = 1 << 20
_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9})(?::(\d{1,9}))?)?")
_NONE = "none"


class Varied(NamedTuple):
    """What is swept: lists of the values that each option takes."""

    layers: list[int]
    splits: list[str]
    overridden: list[str]
    n_cpu_moe: list[int]


def read_range(text: str, most: int, option: str) -> list[int]:
    """`0..33`, `0..32:4`, `1,2,8`, `all` (which is `most`), or several of them by commas; beyond `most` all is one.

    Raises click.BadParameter.
    """
    out: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if part.strip() == "all":
            out.append(most)
        elif not found or int(found[3] or 1) == 0:
            raise click.BadParameter(f"{part!r} is no number or range such as 0..32:4", param_hint=f"'{option}'")
        else:
            first = int(found[1])
            last = int(found[2]) if found[2] else first
            out += [min(n, most) for n in range(first, min(last, max(first, most)) + 1, int(found[3] or 1))]
    if not out:
        raise click.BadParameter(
            f"{text!r} has no number in it; the first must not be larger than the last", param_hint=f"'{option}'"
        )
    return list(dict.fromkeys(out))


@click.command(cls=Command)
@scenarios_argument
@click.option(
    "-ngl", "--n-gpu-layers", metavar="RANGE",
    help="Layers on GPUs: 0..33, 0..32:4, 8,16,all. Default: from 0 to all.",
)  # fmt: skip
@click.option(
    "-ts", "--tensor-split", metavar="SHARES", multiple=True, help="How GPUs share the layers; may be repeated."
)
@click.option(
    "-ot", "--override-tensor", metavar="REGEX=DEVICE[,…]", multiple=True,
    help="Overrides of one placement, or `none`; each further -ot is for another placement.",
)  # fmt: skip
@click.option(
    "-ncmoe", "--n-cpu-moe", metavar="RANGE", default="0",
    help="Keep the experts of the first N layers on the CPU; a range as for -ngl.",
)  # fmt: skip
@click.option(
    "-ub", "--ubatch-size", metavar="LIST", help="Sizes of ubatch, 256,512,1024, each captured from MODEL.gguf."
)
@click.option(
    "-c", "--ctx-size", type=click.IntRange(0), metavar="N", help="Size of the context to capture MODEL.gguf with."
)
@common_options
@click.option("-j", "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes (default: one for each core).")
@format_option("text", "json", "csv", help="Text (default), or JSON or CSV with exact bytes.")
@output_option
def sweep(
    scenario: tuple[str, ...],
    n_gpu_layers: str | None,
    tensor_split: tuple[str, ...],
    override_tensor: tuple[str, ...],
    n_cpu_moe: str,
    ubatch_size: str | None,
    ctx_size: int | None,
    common: Common,
    jobs: int | None,
    format: str | None,
    output: Output,
) -> int:
    """Place a captured model in many ways: splits, copied bytes, memory per device, and the largest that fits.

    Every value of -ngl is combined with every -ts, -ot, --n-cpu-moe and scenario; several scenarios are captures of
    one model with other options. Of a MODEL.gguf in place of a scenario the graph is captured first, one for each -ub
    (needs the extra llama). Exit status 1: nothing fits.

    \b
    Example:
      ggmltool sweep -ngl 0..19 --device CUDA0:600MiB gemma-3-270m
      ggmltool sweep -ngl all -ts 1,1 -ts 3,1 -ot none -ot ffn_down=CPU gemma-3-270m
      ggmltool sweep -ngl 0..18:6 -f csv gemma-3-270m
      ggmltool sweep -ngl 0..33 -ub 256,512,1024 -c 8192 --device CUDA0:24GiB model.gguf
    """
    from ggmltool.sources.llama.capture import is_gguf
    from ggmltool.sources.llama.sweep import usable_processes

    ubatches = _ubatches(ubatch_size) if ubatch_size is not None else []
    opened = open_captures(scenario, ubatches, ctx_size)
    for each in opened:
        refuse_older(each, "llama.cpp's rules here are those of its ggml")
    varied = _varied(opened, n_gpu_layers, tensor_split, override_tensor, n_cpu_moe)
    placers = _placers(opened, common, varied)
    combined, work = _jobs(opened, common, varied)
    outcomes = _run(placers, work, jobs or usable_processes())
    result = _sweep(opened, placers, common, combined, outcomes)
    if format == "csv":
        output.write(sweep_csv(result))
    elif format == "json":
        from ggmltool.views.json_text import json_text

        output.write(json_text(sweep_json(result)))
    else:
        words = ["ggmltool", "place", opened[0].argument, *(w for d in common.device for w in ("--device", d))]
        again = " ".join(filter(None, [shlex.join(words), asked(common)]))
        one = len(opened) == 1 and not is_gguf(Path(opened[0].argument))
        output.write(sweep_view(result, _title(opened), output.style, again if one else ""))
    failed = all(s.error for s in result.swept)
    return 1 if failed or (result.memory and result.best() is None) else 0


def _ubatches(text: str) -> list[int]:
    """-ub: numbers of tokens, or ranges of them. Raises click.BadParameter."""
    if "all" in text or 0 in (sizes := read_range(text, _MAX_UBATCH, "-ub")):
        raise click.BadParameter(f"{text!r}: a ubatch has a number of tokens, 1 at least", param_hint="'-ub'")
    return sizes


def _varied(
    opened: list[Opened], layers: str | None, splits: tuple[str, ...], overridden: tuple[str, ...], experts: str
) -> Varied:
    """The values of the options, in the order given. Raises click.BadParameter."""
    from ggmltool.sources.llama.parts import n_layer

    most = max(n_layer(o.model) for o in opened) + 1
    for split in splits:
        read_split(split)
    return Varied(
        read_range(layers, most, "-ngl") if layers is not None else list(range(most + 1)),
        list(splits) or [""],
        [o if o != _NONE else "" for o in overridden] or [""],
        read_range(experts, most - 1, "--n-cpu-moe"),
    )


def _placers(opened: list[Opened], common: Common, varied: Varied) -> list[Placer]:
    """Every scenario, ready to be placed. Raises CliError."""
    from ggmltool.sources.llama.errors import PlaceError
    from ggmltool.sources.llama.place import Placer

    n_split = max(len(read_split(s)) if s else 0 for s in varied.splits)
    out = []
    for o in opened:
        o.scenario.graph_name()
        try:
            out.append(Placer(o.model, devices_of(o.model, common, n_split)))
        except PlaceError as error:
            raise CliError(f"{o.argument}: {error}") from None
    return out


def _jobs(opened: list[Opened], common: Common, varied: Varied) -> tuple[list[dict[str, str]], list[Job]]:
    """The options of every placement, as texts and for the work. Raises CliError where there are too many."""
    from ggmltool.sources.llama.sweep import Job

    n = len(opened) * len(varied.layers) * len(varied.splits) * len(varied.overridden) * len(varied.n_cpu_moe)
    if n > MAX_PLACEMENTS:
        raise CliError(f"{n} placements are too many, {MAX_PLACEMENTS} are allowed; take larger steps: 0..99:10")
    rules = {
        (ot, moe): overrides([ot] if ot else [], moe, common.cpu_moe)
        for ot, moe in product(varied.overridden, varied.n_cpu_moe)
    }
    texts, work = [], []
    labels = _labels(opened)
    for i, o in enumerate(opened):
        for ts, ot, moe, ngl in product(varied.splits, varied.overridden, varied.n_cpu_moe, varied.layers):
            split = read_split(ts) if ts else ()
            work.append(Job(i, options_of(o.model, common, ngl, split, rules[ot, moe])))
            texts.append(
                {"file": labels[i], "-ngl": str(ngl), "-ts": ts, "-ot": ot, "--n-cpu-moe": str(moe) if moe else ""}
            )
    return texts, work


def _title(opened: list[Opened]) -> str:
    """What is swept: the scenario, of several the model that all are captures of, else the first's title."""
    models = {o.model.meta.get("model") for o in opened}
    model = models.pop()
    return str(model) if len(opened) > 1 and not models and model else opened[0].title


def _labels(opened: list[Opened]) -> list[str]:
    """What tells the scenarios apart: their ubatch where each has another, else their names."""
    told = [o.model.meta.get("n_ubatch") for o in opened]
    if len(opened) > 1 and None not in told and len(set(told)) == len(told):
        return [f"-ub {n}" for n in told]
    return [Path(o.argument).name for o in opened]


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
    opened: list[Opened], placers: list[Placer], common: Common, texts: list[dict[str, str]], outcomes: list[Outcome]
) -> Sweep:
    """The records that the view shows."""
    swept = [
        Swept(options, o.n_gpu_layers, o.graphs, o.needs, o.left, o.error)
        for options, o in zip(texts, outcomes, strict=True)
    ]
    devices = dict.fromkeys(device for s in swept for device in s.needs)
    gpus = [d.name for d in placers[0].gpus]
    memory = {b.name: b.memory for b in placers[0].model.backends if b.memory is not None}
    fixed = [f"{n} {texts[0][n]}" for n in texts[0] if texts[0][n] and n != "file" and len({t[n] for t in texts}) == 1]
    words = " ".join([*(fixed if len(texts) > 1 else []), asked(common)]).strip()
    return Sweep(words, swept, memory, list(devices), gpus)
