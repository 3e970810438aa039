"""`fit`: the best way to put a model on devices, as it is placed in full, and the lines that run it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ask.fit.wishes import OwnChoice, Wishes, own_choice, shell_words
from ggmltool.ask.place.options import asked, devices_of, named_devices
from ggmltool.ask.place.record import Found as PlacedFound
from ggmltool.ask.place.record import PlacedGraph, PlacedRow, UseRow, place, placed_rows, use_rows
from ggmltool.estimate.forecast import SOME_HOST
from ggmltool.estimate.rates import rates_of_backend
from ggmltool.estimate.records import Estimate, Rates
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario
from ggmltool.show.document import ReleaseDocument, Row, part
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError, PlaceError
from ggmltool.sources.llama.model_file import model_name
from ggmltool.sources.llama.place.options import Tool, can_run, line
from ggmltool.sources.llama.search.anatomy import Request
from ggmltool.sources.llama.search.candidates import Candidate, Found, Progress
from ggmltool.sources.llama.search.search import Captures, ModelFile, OneModel, Saved, SavedError, Wish, search
from ggmltool.sources.llama.search.sweep import usable_processes
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.estimate.records import Estimate
    from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
    from ggmltool.sources.llama.search.candidates import Candidate
    from ggmltool.sources.llama.search.sweep import Bytes

TOOLS: tuple[Tool, ...] = ("llama-server", "llama-cli")


class Fit(NamedTuple):
    """What was found. `placed` is the best placement, or what is nearest, as `place` has it; `lines` run the best, by
    tool, and `again` shows it. `fixed` are options that all placements have, `memory` is what devices have free;
    `build` is llama.cpp's; `phase` says which graphs there are: of a `prompt`, of a `token`, or `both`. `own` is what
    llama.cpp would choose.
    """

    wishes: Wishes
    title: str
    fixed: str
    memory: Mapping[str, int]
    found: Found
    placed: PlacedFound
    lines: Mapping[str, str]
    again: str
    ggml: str
    build: str
    phase: str
    own: OwnChoice | None

    def token(self, candidate: Candidate) -> Estimate | None:
        """The seconds of a generated token; None where no rates are known, or no graph of few tokens was captured."""
        return candidate.seconds.token if candidate.rated and self.phase != "prompt" else None

    def prompt(self, candidate: Candidate) -> Estimate | None:
        """The seconds of a token of a prompt, in a whole batch; None as for `token`."""
        return candidate.seconds.prompt if candidate.rated and self.phase != "token" else None

    @property
    def shown(self) -> Candidate | None:
        """The best, or what is nearest."""
        return self.found.best or self.found.nearest


def fit(
    wishes: Wishes,
    capture_of: Opened | None = None,
    processes: int | None = None,
    note: Callable[[str], None] = lambda text: None,
    progress: Callable[[Progress], None] = lambda progress: None,
    resume: Path | None = None,
) -> Fit:
    """Search the best placement of a model, or of the graph that was captured of one, in so many processes.

    `note` is told of devices that are not known. What is found is kept in the file `resume`, and not searched again
    where that has it. Raises InspectError.
    """
    try:
        return _fit(wishes, capture_of, processes or usable_processes(), note, progress, resume)
    except (CaptureError, SavedError) as error:
        raise InspectError(str(error)) from None
    except PlaceError as error:
        raise InspectError(f"{wishes.argument}: {error}", error.refused) from None


def _fit(
    wishes: Wishes,
    capture_of: Opened | None,
    processes: int,
    note: Callable[[str], None],
    progress: Callable[[Progress], None],
    resume: Path | None,
) -> Fit:
    if wishes.common.split_mode == "tensor":
        raise InspectError("-sm tensor is for `place`: a search gives whole layers to GPUs")
    if wishes.common.device:
        named_devices(wishes.common.device)
    opened = capture_of or _captured(wishes, replace(wishes.base, n_ctx=512))
    model, told = opened.model, set[str]()

    def once(text: str) -> None:
        if text not in told:
            told.add(text)
            note(text)

    def devices(model: ScenarioSpec) -> list[BackendSpec]:
        return devices_of(model, wishes.common, len(wishes.ranges.tensor_split), once)

    captures: Captures = ModelFile(Path(wishes.argument), devices, wishes.base, wishes.quantization)
    if capture_of is not None:
        captures = OneModel(model, devices)
    specs = devices(model)
    wish = Wish(wishes.objective, Request(cached=wishes.common.n_depth), _rates(specs))
    saved = Saved(resume, repr((wishes.argument, _stamp(wishes), specs)))
    found = search(captures, wishes.space(model), wish, processes=processes, progress=progress, saved=saved)
    shown = found.best or found.nearest
    return Fit(
        wishes,
        str(model.meta.get("model") or opened.title),
        " ".join(filter(None, [asked(wishes.common), shell_words(wishes.flags)])),
        {b.name: b.memory for b in specs if b.memory is not None},
        found,
        _placed(wishes, shown, capture_of),
        {} if found.best is None else _lines(wishes, found.best, model),
        "" if shown is None else wishes.place_line(shown),
        model.ggml,
        model.release.build,
        "both" if capture_of is None or len(model.graphs) > 1 else str(model.meta.get("phase", "prompt")),
        own_choice(wishes, _openers(wishes, capture_of)),
    )


def _stamp(wishes: Wishes) -> tuple[int, int]:
    """What changes with the model's file: its size, and when it was written."""
    if wishes.captured:
        return 0, 0
    told = Path(wishes.argument).stat()
    return told.st_size, told.st_mtime_ns


def _openers(wishes: Wishes, capture_of: Opened | None) -> Callable[[int], Opened]:
    """What gives the capture with a context of so many tokens, of the setting that was wanted most."""
    most = wishes.most_options()

    @cache
    def opened(n_ctx: int) -> Opened:
        return capture_of or _captured(wishes, replace(most, n_ctx=n_ctx))

    return opened


def _rates(specs: Sequence[BackendSpec]) -> dict[str, Rates]:
    """The rates of devices that are known; a host of which nothing is said is some desktop's. Raises InspectError."""
    try:
        rates = {spec.name: found for spec in specs if (found := rates_of_backend(spec)) is not None}
    except Mistake as mistake:
        raise InspectError(f"--device: {mistake.message}") from None
    cpus = [spec.name for spec in specs if spec.family == "CPU" and spec.name not in rates]
    return {**rates, **dict.fromkeys(cpus, SOME_HOST)} if rates else {}


def _captured(wishes: Wishes, options: CaptureOptions) -> Opened:
    scenario = capture(Path(wishes.argument), options, wishes.quantization).scenario
    return Opened(Scenario(load_spec(scenario)), wishes.argument)


def _placed(wishes: Wishes, candidate: Candidate | None, capture_of: Opened | None) -> PlacedFound:
    """The candidate as `place` shows it, with every tensor; None: the least that was allowed."""
    if candidate is None:
        return place(capture_of or _captured(wishes, wishes.least_options()), wishes.least()[1], wishes.least()[0])
    opened = capture_of or _captured(wishes, _capture_options(wishes, candidate))
    asked, common = wishes.asked(candidate)
    words = shell_words({**wishes.context(candidate), **wishes.flags})
    return place(opened, common, asked, words)


def _capture_options(wishes: Wishes, candidate: Candidate) -> CaptureOptions:
    return replace(candidate.setting.capture_options(wishes.base), n_ctx=candidate.n_ctx)


def _lines(wishes: Wishes, best: Candidate, model: ScenarioSpec) -> dict[str, str]:
    """The lines that run it, and before that make the file; none for a capture, whose model's file is not known."""
    if wishes.captured:
        return {}
    options = _capture_options(wishes, best)
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
    """What was found, with the search; `top` placements are shown."""

    fit: Fit
    top: int

    def document(self) -> FitTable:
        """As numbers and words."""
        return part(self, FitTable)

    def rows(self) -> tuple[Candidate, ...]:
        """The best placement of each setting, the best of all first."""
        return tuple(ranked.candidate for ranked in self.fit.found.ranked)

    @classmethod
    def of(cls, fit: Fit, top: int = 5) -> FitShown:
        """What was found."""
        found = fit.found
        ranked = [r.candidate for r in found.ranked]
        placed = fit.placed.placed
        return cls(
            ggml=fit.ggml,
            objective=fit.wishes.objective,
            options=fit.fixed,
            fits=found.best is not None,
            memory=dict(fit.memory),
            candidates=[_row(fit, r.candidate, r.given_up) for r in found.ranked],
            pareto=[ranked.index(c) for c in found.pareto],
            proved=found.proved,
            counts=CountsRow(found.counts.placements, found.counts.planned, found.counts.captured),
            lines=dict(fit.lines),
            again=fit.again,
            devices=use_rows(placed),
            tensors=placed_rows(placed),
            warnings=list(placed.warnings),
            fit=fit,
            top=top,
            nearest=UNSET if ranked or found.nearest is None else _row(fit, found.nearest, ()),
        )


def fit_of(fit: Fit, top: int = 5) -> Answer[FitShown]:
    """What was found as an answer: it is fine if something fits."""
    return Answer(FitShown.of(fit, top), fit.title, plan=fit.placed.plan, fine=fit.found.best is not None)


def _row(fit: Fit, c: Candidate, given_up: tuple[str, ...]) -> CandidateRow:
    return CandidateRow(
        options=fit.wishes.options(c),
        n_ctx=c.n_ctx,
        fits=c.fits,
        seconds_token=_seconds(fit.token(c)),
        seconds_prompt_token=_seconds(fit.prompt(c)),
        graphs=[PlacedGraph(*graph) for graph in c.graphs],
        parallel=c.parallel,
        devices=[_bytes(device, needs, c) for device, needs in c.needs.items()],
        given_up=list(given_up),
        error=c.error or None,
    )


def _seconds(seconds: Estimate | None) -> SecondsRow | None:
    return None if seconds is None else SecondsRow(*seconds)


def _bytes(device: str, needs: Bytes, c: Candidate) -> BytesRow:
    left = c.left.get(device)
    return BytesRow(device, *needs, needs.total, left, None if left is None else c.margins.get(device, 0))
