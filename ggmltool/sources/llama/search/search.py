"""The search of `fit`: every setting's best placement, and the best of those."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.sources.llama.capture.capture import capture_many
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError, PlaceError
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.processes import as_they_come, can_fork
from ggmltool.sources.llama.search.candidates import (
    Candidate,
    Counts,
    Ranked,
    SearchProgress,
    SearchResult,
    costs_of,
    rank,
)
from ggmltool.sources.llama.search.setting_search import Best, SettingSearch, Wish
from ggmltool.sources.llama.search.space import Setting, Space, Vector, given_up
from ggmltool.version import __version__

Devices = Callable[[ScenarioSpec], Sequence[BackendSpec]]
"""The devices to place a captured model on."""


Captures = Callable[[Sequence[Setting]], Iterator[Placer | CaptureError]]
"""The models of these settings on the devices, in their order, each as it is asked for."""


def searched_model(
    path: Path, devices: Devices, base: CaptureOptions | None = None, quantization: str = ""
) -> Captures:
    """A GGUF file, or what llama-quantize would make of it, captured with each setting; `base` has what the settings do
    not say. What is no model is a CaptureError.
    """

    def placers(settings: Sequence[Setting]) -> Iterator[Placer | CaptureError]:
        options = [s.capture_options(base or CaptureOptions()) for s in settings]
        for captured in capture_many(path, options, quantization):
            if isinstance(captured, CaptureError):
                yield captured
            else:
                model = load_spec(captured.scenario)
                yield Placer(model, devices(model))

    return placers


def one_model(model: ScenarioSpec, devices: Devices) -> Captures:
    """A model that was captured before, which is the same with every setting."""
    placer = Placer(model, devices(model))

    def placers(settings: Sequence[Setting]) -> Iterator[Placer | CaptureError]:
        return (placer for _ in settings)

    return placers


class SavedError(PlaceError):
    """The file cannot be read or written, or belongs to another search; the message names it."""


LAYOUT = 3
MAX_BYTES = 64 << 20


class File(msgspec.Struct):
    """What the file holds."""

    version: int
    search: str
    found: list[Best]


@dataclass(slots=True)
class Saved:
    """The settings of a search that are done, in a file (None: nowhere).

    `about` tells the model and the devices, which a search does not know by name.
    """

    path: Path | None = None
    about: str = ""
    _file: File = field(default_factory=lambda: File(LAYOUT, "", []))

    def open(self, *asked: object) -> None:
        """Read the file, if there is one. Raises SavedError if it is none, or that of another search."""
        key = sha256(repr((__version__, self.about, asked)).encode()).hexdigest()[:16]
        self._file = File(LAYOUT, key, [])
        if self.path is None:
            return
        try:
            with self.path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise SavedError(f"the folder {self.path.parent} does not exist; make it first") from None
            return
        except OSError as error:
            raise SavedError(f"{self.path}: {error.strerror or error}") from None
        try:
            found = msgspec.json.decode(text[:MAX_BYTES], type=File)
        except msgspec.MsgspecError as error:
            raise SavedError(f"{self.path} is not what a search has saved: {error}") from None
        if found.version != LAYOUT:
            raise SavedError(f"{self.path} was saved by another version")
        if found.search != key:
            raise SavedError(f"{self.path} is of another search: other options, or another model or version")
        self._file = found

    def best(self, setting: Setting) -> Best | None:
        """What was found for a setting; None if it is still to be searched."""
        return next((best for best in self._file.found if best.setting == setting), None)

    def add(self, best: Best) -> None:
        """Note what was found; the file is whole at any time. Raises SavedError if it cannot be written."""
        self._file.found.append(best)
        if self.path is None:
            return
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            new.write_bytes(msgspec.json.encode(self._file))
            new.replace(self.path)
        except OSError as error:
            raise SavedError(f"{self.path}: {error.strerror or error}") from None


MOST_PLANS = 2000
"""Plans of one setting, at most."""

OnProgress = Callable[[SearchProgress], None]


def search(
    captures: Captures,
    space: Space,
    wish: Wish | None = None,
    *,
    processes: int = 1,
    progress: OnProgress = lambda progress: None,
    most: int = MOST_PLANS,
    saved: Saved | None = None,
) -> SearchResult:
    """The best placement of every setting of the space, the best of all first.

    Settings are searched side by side in so many processes, or the plans of the only one made so, each in at most so
    many plans. What is `saved` is not
    searched again, and what is found is added to it at once, so that a search that was ended can go on.

    Raises PlaceError for options that are wrong, CaptureError if no setting can be captured.
    """
    return _Search(captures, space, wish or Wish(), processes, progress, most, saved or Saved()).found()


@dataclass(slots=True)
class _Search:
    """One search. `bests` are of the settings that are done."""

    captures: Captures
    space: Space
    wish: Wish
    processes: int
    progress: OnProgress
    most: int
    saved: Saved
    wanted: list[Setting] = field(init=False)
    order: dict[Setting, int] = field(init=False)
    bests: dict[Setting, Best] = field(default_factory=dict)
    ruled_out: int = 0
    error: CaptureError | None = None

    def __post_init__(self) -> None:
        self.processes = self.processes if can_fork() else 1
        self.wanted = self.space.settings()
        self.order = {setting: i for i, setting in enumerate(self.wanted)}

    def found(self) -> SearchResult:
        self.saved.open(self.space, self.wish)
        self._search(sorted(self.wanted, key=lambda s: (s[1:], s.n_ctx == 0, s.n_ctx)))
        if self.wish.objective == "longest" and self.space.ctx_step:
            self._refine()
        if not self.bests and self.error is not None:
            raise self.error
        ranked = self.ranked()
        nearest = (b.nearest for b in self.bests.values() if b.nearest)
        pareto: list[Candidate] = []
        for c in sorted(ranked, key=lambda c: (c.seconds.of(self.wish.request), -c.n_ctx)):
            if not pareto or c.n_ctx > pareto[-1].n_ctx:
                pareto.append(c)
        return SearchResult(
            tuple(Ranked(c, given_up(c.setting, self.wanted)) for c in ranked),
            tuple(pareto),
            max(nearest, key=lambda c: c.room, default=None),
            self._counts(),
            all(b.proved for b in self.bests.values()),
        )

    def ranked(self) -> list[Candidate]:
        """What fits, the best first."""
        fitting = [b.candidate for b in self.bests.values() if b.candidate is not None]
        return sorted(fitting, key=lambda c: rank(self.wish.objective, c, c.seconds.of(self.wish.request)))

    def _search(self, settings: Sequence[Setting]) -> None:
        """Search these settings, as their captures come; each of them after shorter contexts of the same options."""
        for setting in settings:
            if (known := self.saved.best(setting)) is not None:
                self.bests[setting] = known
        left = [s for s in settings if s not in self.bests]
        self._tell()
        with closing(self._jobs(left)) as jobs:  # what captures ends here, too, whatever happens
            results: Iterable[Best] = map(self._work, jobs)
            if self.processes > 1 and len(self.wanted) > 1:
                results = (best for _, best in as_they_come(self._work, jobs, self.processes))
            for best in results:
                self.bests[best.setting] = best
                self.saved.add(best)
                self._tell()

    def _jobs(self, settings: Sequence[Setting]) -> Generator[tuple[Setting, Placer]]:
        if not settings:
            return
        for setting, placer in zip(settings, self.captures(settings), strict=True):
            if isinstance(placer, CaptureError):
                self.error = placer
            elif self._hopeless(setting):
                self.ruled_out += 1
            else:
                yield setting, placer

    def _work(self, job: tuple[Setting, Placer]) -> Best:
        setting, placer = job
        order = self.order.get(setting, len(self.order))
        limit = self._limit(setting)
        processes = self.processes if len(self.wanted) == 1 else 1
        search = SettingSearch(placer, setting, order, self.space, self.wish, self.most, limit, processes)
        return search.best()

    def _limit(self, setting: Setting) -> Vector | None:
        """What a setting's placements may cost to be the best of all; None if any cost may."""
        best = next(iter(self.ranked()), None)
        if best is None or (self.wish.objective == "longest" and not 0 < setting.n_ctx <= best.n_ctx):
            return None
        if self.wish.objective == "longest" and setting.n_ctx < best.setting.n_ctx:
            return ()
        return costs_of(self.wish.objective, best, best.seconds.of(self.wish.request))

    def _hopeless(self, setting: Setting) -> bool:
        """Whether the same with a shorter context does not fit.

        With more context caches and masks are larger, and all else is as large: each placement needs no less anywhere.
        """
        shorter = (b for s, b in self.bests.items() if s[1:] == setting[1:] and 0 < s.n_ctx < setting.n_ctx)
        return any(b.candidate is None and b.proved for b in shorter)

    def _refine(self) -> None:
        """Halve the way from the longest context that fits to the next one that does not."""
        step = self.space.ctx_step
        best = next(iter(self.ranked()), None)
        if best is None:
            return
        least = best.n_ctx
        most = min((s.n_ctx for s in self.wanted if s.n_ctx > least), default=least)
        while most - least > step:
            middle = least + max(step, (most - least) // 2 // step * step)
            setting = best.setting._replace(n_ctx=middle)
            self._search([setting])
            done = self.bests.get(setting)
            if done is not None and done.candidate is not None:
                least = middle
            else:
                most = middle

    def _counts(self) -> Counts:
        bests = self.bests.values()
        return Counts(
            sum(b.placements for b in bests),
            sum(b.planned for b in bests),
            len(bests),
            len(self.wanted),
            self.ruled_out,
        )

    def _tell(self) -> None:
        self.progress(SearchProgress(len(self.bests), self._counts(), next(iter(self.ranked()), None)))
