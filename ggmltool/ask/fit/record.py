"""`fit`: the best way to put a model on devices, as it is placed in full, and the lines that run it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ask.fit.wishes import OwnChoice, Wishes, own_choice, shell_words
from ggmltool.ask.place.options import asked, devices_of, named_devices
from ggmltool.ask.place.record import PlacedGraph, PlacedRow, PlacementShown, UseRow, place
from ggmltool.estimate.forecast import SOME_HOST
from ggmltool.estimate.rates import rates_of_backend
from ggmltool.estimate.records import Estimate, Rates
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError, PlaceError
from ggmltool.sources.llama.model_file import model_name
from ggmltool.sources.llama.place.options import Tool, can_run, line
from ggmltool.sources.llama.search.anatomy import Request
from ggmltool.sources.llama.search.candidates import Candidate, SearchProgress, SearchResult
from ggmltool.sources.llama.search.search import Captures, Saved, SavedError, one_model, search, searched_model
from ggmltool.sources.llama.search.setting_search import Wish
from ggmltool.sources.llama.search.sweep import usable_processes
from ggmltool.state.errors import InspectError

TOOLS: tuple[Tool, ...] = ("llama-server", "llama-cli")


class SecondsRow(Row):
    """An estimate in seconds: at least, likely, at most."""

    low: float
    mid: float
    high: float


class BytesRow(Row):
    """What a device is needed for, in bytes; what it has left and the margin that has to be, null where its memory is
    not known."""

    device: str
    weights: int
    cache: int
    compute: int
    output: int
    total: int
    left: int | None
    margin: int | None


class CandidateRow(Row):
    """A placement that was planned: its options in llama.cpp's spelling, seconds of one generated token of each
    sequence and of one token of a prompt (null where the devices' rates are not known or no such graph was captured),
    and what it has less of than was wanted most."""

    options: dict[str, str]
    n_ctx: int
    fits: bool
    seconds_token: SecondsRow | None
    seconds_prompt_token: SecondsRow | None
    graphs: list[PlacedGraph]
    parallel: bool
    devices: list[BytesRow]
    given_up: list[str]
    error: str | None


class CountsRow(Row):
    """How many placements there are, how many were planned, and how many graphs were captured for that."""

    placements: int
    planned: int
    captured: int


class FitTable(ReleaseDocument, kw_only=True):
    """`fit --json`: `candidates` has the best placement of each setting that fits, the best of all first; `pareto` are
    the numbers of those that nothing beats in context and speed. `proved`: nothing that was left out can be better.

    `nearest` is what lacks the least where nothing fits. `devices` and `tensors` are those of the best (or the nearest)
    placement; `lines` run the best, by tool, and `again` shows it.
    """

    view = "fit"
    kind: Literal["fit"] = "fit"
    objective: str
    options: str
    fits: bool
    memory: dict[str, int]
    candidates: list[CandidateRow]
    pareto: list[int]
    proved: bool
    counts: CountsRow
    lines: dict[str, str]
    again: str
    devices: list[UseRow]
    tensors: list[PlacedRow]
    warnings: list[str]
    nearest: CandidateRow | UnsetType = UNSET


class FitShown(FitTable, kw_only=True):
    """What was found, with the search. `placed` is the best placement, or what is nearest, as `place` has it; `build`
    is llama.cpp's; `phase` says which graphs there are: of a `prompt`, of a `token`, or `both`. `own` is what llama.cpp
    would choose. `top` placements are shown."""

    wishes: Wishes
    found: SearchResult
    placed: PlacementShown
    build: str
    phase: str
    own: OwnChoice | None
    top: int

    def rows(self) -> tuple[Candidate, ...]:
        """The best placement of each setting, the best of all first."""
        return tuple(ranked.candidate for ranked in self.found.ranked)


def token_of(candidate: Candidate, phase: str) -> Estimate | None:
    """The seconds of a generated token; None where no rates are known, or no graph of few tokens was captured."""
    return candidate.seconds.token if candidate.rated and phase != "prompt" else None


def prompt_of(candidate: Candidate, phase: str) -> Estimate | None:
    """The seconds of a token of a prompt, in a whole batch; None as for `token_of`."""
    return candidate.seconds.prompt if candidate.rated and phase != "token" else None


def fit(
    wishes: Wishes,
    capture_of: Opened | None = None,
    processes: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Callable[[SearchProgress], None] = lambda progress: None,
    resume: Path | None = None,
    top: int = 5,
) -> Answer[FitShown]:
    """Search the best placement of a model, or of the graph that was captured of one, in so many processes. It is fine
    if something fits.

    `note` is told of devices that are not known. What is found is kept in the file `resume`, and not searched again
    where that has it. Raises InspectError.
    """
    try:
        return _fit(wishes, capture_of, processes or usable_processes(), note, progress, resume, top)
    except (CaptureError, SavedError) as error:
        raise InspectError(str(error)) from None
    except PlaceError as error:
        raise InspectError(f"{wishes.argument}: {error}", error.refused) from None


def _fit(
    wishes: Wishes,
    capture_of: Opened | None,
    processes: int,
    note: Callable[[str], None],
    progress: Callable[[SearchProgress], None],
    resume: Path | None,
    top: int,
) -> Answer[FitShown]:
    if wishes.common.split_mode == "tensor":
        raise InspectError("-sm tensor is for `place`: a search gives whole layers to GPUs")
    if wishes.common.devices:
        named_devices(wishes.common.devices)

    @cache
    def opened(options: CaptureOptions) -> Opened:
        if capture_of is not None:
            return capture_of
        scenario = capture(Path(wishes.argument), options, wishes.quantization).scenario
        return Opened(LoadedScenario(load_spec(scenario)), wishes.argument)

    note_once = cache(note)

    def devices(model: ScenarioSpec) -> list[BackendSpec]:
        return devices_of(model, wishes.common, len(wishes.ranges.tensor_split), note_once)

    first = opened(replace(wishes.base, n_ctx=512))
    model = first.model
    captures: Captures = searched_model(Path(wishes.argument), devices, wishes.base, wishes.quantization)
    stamp = 0, 0  # what changes with the model's file: its size, and when it was written
    if capture_of is not None:
        captures = one_model(model, devices)
    if not wishes.captured:
        told = Path(wishes.argument).stat()
        stamp = told.st_size, told.st_mtime_ns
    specs = devices(model)
    wish = Wish(wishes.objective, Request(cached=wishes.common.n_depth), _rates(specs))
    saved = Saved(resume, repr((wishes.argument, stamp, specs)))
    found = search(captures, wishes.space(model), wish, processes=processes, progress=progress, saved=saved)
    shown, words = found.best or found.nearest, ""
    if shown is None:
        capture_options, placed_as = wishes.least_options(), wishes.least()
    else:
        capture_options, placed_as = wishes.capture_options(shown), wishes.asked(shown)
        words = shell_words({**wishes.context(shown), **wishes.flags})
    placed = place(opened(capture_options), placed_as, words)
    phase = "both" if capture_of is None or len(model.graphs) > 1 else str(model.meta.get("phase", "prompt"))
    most = wishes.most_options()
    ranked = [r.candidate for r in found.ranked]
    record = FitShown(
        ggml=model.ggml,
        objective=wishes.objective,
        options=" ".join(filter(None, [asked(wishes.common), shell_words(wishes.flags)])),
        fits=found.best is not None,
        memory={b.name: b.memory for b in specs if b.memory is not None},
        candidates=[_row(wishes, phase, r.candidate, r.given_up) for r in found.ranked],
        pareto=[ranked.index(c) for c in found.pareto],
        proved=found.proved,
        counts=CountsRow(found.counts.placements, found.counts.planned, found.counts.captured),
        lines={} if found.best is None else _lines(wishes, found.best, model),
        again="" if shown is None else wishes.place_line(shown),
        devices=placed.facts.devices,
        tensors=placed.facts.tensors,
        warnings=placed.facts.warnings,
        nearest=UNSET if ranked or found.nearest is None else _row(wishes, phase, found.nearest, ()),
        wishes=wishes,
        found=found,
        placed=placed.facts,
        build=model.release.build,
        phase=phase,
        own=own_choice(wishes, lambda n_ctx: opened(replace(most, n_ctx=n_ctx))),
        top=top,
    )
    title = str(model.meta.get("model") or first.title)
    return Answer(record, title, plan=placed.plan, fine=found.best is not None)


def _rates(specs: Sequence[BackendSpec]) -> dict[str, Rates]:
    """The rates of devices that are known; a host of which nothing is said is some desktop's. Raises InspectError."""
    try:
        rates = {spec.name: found for spec in specs if (found := rates_of_backend(spec)) is not None}
    except Mistake as mistake:
        raise InspectError(f"--device: {mistake.message}") from None
    cpus = [spec.name for spec in specs if spec.family == "CPU" and spec.name not in rates]
    return {**rates, **dict.fromkeys(cpus, SOME_HOST)} if rates else {}


def _lines(wishes: Wishes, best: Candidate, model: ScenarioSpec) -> dict[str, str]:
    """The lines that run it, and before that make the file; none for a capture, whose model's file is not known."""
    if wishes.captured:
        return {}
    options = wishes.capture_options(best)
    place = best.choice.options(wishes.space(model).base, best.n_layer)
    file, made = wishes.argument, {}
    if wishes.quantization:
        kind = wishes.quantization.partition(":")[0]
        file = str(Path(file).with_name(f"{model_name(Path(file))}-{kind}.gguf"))
        made = {"llama-quantize": shlex.join(["llama-quantize", wishes.argument, file, kind])}
    return made | {
        tool: line(tool, file, options, place, best.gpus, model.release.build)
        for tool in TOOLS
        if can_run(tool, options)
    }


def _row(wishes: Wishes, phase: str, c: Candidate, given_up: tuple[str, ...]) -> CandidateRow:
    token, prompt = (None if s is None else SecondsRow(*s) for s in (token_of(c, phase), prompt_of(c, phase)))
    return CandidateRow(
        options=wishes.options(c),
        n_ctx=c.n_ctx,
        fits=c.fits,
        seconds_token=token,
        seconds_prompt_token=prompt,
        graphs=[PlacedGraph(*graph) for graph in c.graphs],
        parallel=c.parallel,
        devices=[
            BytesRow(
                device, *needs, needs.total, c.left.get(device), c.margins.get(device, 0) if device in c.left else None
            )
            for device, needs in c.needs.items()
        ],
        given_up=list(given_up),
        error=c.error or None,
    )
