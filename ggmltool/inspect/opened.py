"""A scenario with how its user calls it, and when it is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ggmltool.show.text import count
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ggml.events import Event, Listener
    from ggmltool.scenario.scenario import LoadedScenario
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.scenario.tensor_info import Tensors


class Advance(Protocol):
    """Called when some of the work is done: `n` more of the total."""

    def __call__(self, n: int = 1, /) -> None: ...


class Progress(Protocol):
    """Makes the block that work is done in; the block calls what it gets. `total` is how much there is of `unit`."""

    def __call__(self, label: str, total: int = 0, unit: str = "") -> AbstractContextManager[Advance]: ...


@contextmanager
def _unseen(label: str, total: int = 0, unit: str = "") -> Iterator[Advance]:
    yield lambda n=1, /: None


def _unsaid(text: str) -> None:
    """Nobody listens."""


class Work(NamedTuple):
    """Where it is said how far the work is, and what else is worth knowing; by default nowhere. `of_command`: it is a
    command's; `checks_memory`: it is refused where it needs more memory than is free."""

    progress: Progress = _unseen
    note: Callable[[str], None] = _unsaid
    of_command: bool = False
    checks_memory: bool = False


UNSEEN = Work()


class Moment(NamedTuple):
    """When to look: after a step of the scenario's own, by its number, else after `step` of `graph` (None: the first)
    on a fresh scheduler.
    """

    graph: str | None = None
    step: str = "alloc"
    after: int | None = None


class WhatIf(NamedTuple):
    """Options of the scheduler that stand in for those of the scenario; None: as the scenario says."""

    parallel: bool | None = None
    op_offload: bool | None = None

    def __str__(self) -> str:
        """As they are written: `--pipeline --no-op-offload`."""
        values = {"pipeline": self.parallel, "op-offload": self.op_offload}
        given = [(name, value) for name, value in values.items() if value is not None]
        return " ".join(f"--{name}" if value else f"--no-{name}" for name, value in given)

    @property
    def opposite(self) -> WhatIf:
        """The same options, each the other way round."""
        return WhatIf(*(None if value is None else not value for value in self))


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded scenario. `argument` is how the user would name it again, `options` those that stand in for its own.

    `log` is given the lines that ggml logs; with `debug` those of a debug build, too. `work` says how far work is.
    """

    scenario: LoadedScenario
    argument: str = ""
    options: str = ""
    log: Callable[[Iterable[str]], None] | None = None
    debug: bool = False
    work: Work = UNSEEN
    _tensors: dict[str, Tensors] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def model(self) -> ScenarioSpec:
        return self.scenario.model

    @property
    def title(self) -> str:
        """What headings call it: with the ggml that decides, if it is not the newest, and the options."""
        from ggmltool.ggml.releases.table import DEFAULT

        name = "standard input" if self.argument == "-" else Path(self.argument).name
        own = "" if self.model.release is DEFAULT or "--ggml" in self.options else f"ggml {self.model.ggml}"
        return ", ".join(part for part in (self.model.name or name, own, self.options) if part)

    @property
    def again(self) -> str:
        """How the user would name it again, behind a command."""
        return f"{self.options} {self.argument}".lstrip()

    def tensors(self, graph: str) -> Tensors:
        """What views want to know of the tensors of the contexts and of one graph, by id."""
        from ggmltool.scenario.tensor_info import tensor_infos

        if graph not in self._tensors:
            self._tensors[graph] = tensor_infos(self.model, graph)
        return self._tensors[graph]

    def what_if(self, options: WhatIf) -> Opened:
        """The same scenario with other options of the scheduler. Raises InspectError for one that its ggml lacks."""
        given = {name: value for name, value in options._asdict().items() if value is not None}
        if not given:
            return self
        from ggmltool.scenario.scenario import LoadedScenario
        from ggmltool.scenario.versions import days, lacks

        for name in given:
            since = days().keys.get(f"scheduler.{name}", "")
            if lacks(self.model.release, since):
                raise InspectError(f"ggml {self.model.ggml} has no {name}; available since {since}")
        model = replace(self.model, scheduler=replace(self.model.scheduler, **given))
        scenario = LoadedScenario(model)
        scenario.on_debug = self.scenario.on_debug
        return replace(self, scenario=scenario, options=" ".join(filter(None, (self.options, str(options)))))

    def listener(self, listener: Listener | None) -> Listener | None:
        """What hears the engine's events: `listener`, and with `debug` the log."""
        log = self.log
        if log is None or not self.debug:
            return listener
        from ggmltool.ggml.events import Logged

        def hear(event: Event) -> None:
            if isinstance(event, Logged) and event.level == "debug":
                log([event.text])
            if listener is not None:
                listener(event)

        return hear

    def logged(self, lines: Iterable[str]) -> None:
        """Hand on what ggml logged."""
        if self.log is not None:
            self.log(lines)

    def refuse_older(self, why: str) -> None:
        """Refuse a scenario that is for a ggml older than all that llama.cpp's rules are of. Raises InspectError."""
        from ggmltool.ggml.releases.table import RELEASES

        if self.model.release.library is None:
            *_, first = (release.name for release in RELEASES.values() if release.library is not None)
            raise InspectError(f"the scenario is for ggml {self.model.ggml}, and {why} {first} and later")


def environment_number(name: str) -> int:
    """What ggml reads of a variable of the environment when the scheduler is made; 0 where it is no number."""
    said = os.environ.get(name, "")
    return int(said) if said.isdecimal() and len(said) < 9 else 0


_NAMES = {"server": "llama-server", "cli": "llama-cli", "library": "the library"}


def answers_for(meta: Mapping[str, object]) -> str:
    """A line of a capture's `meta`, "" if nothing is known; captures that do not say are the library's.

    >>> answers_for({"program": "server", "n_seq_max": 1, "n_outputs": 1, "n_tokens": 512, "phase": "prompt"})
    'for llama-server, 1 sequence: logits of 1 of 512 tokens'
    """
    n_outputs, n_tokens, n_seqs = (meta.get(key) for key in ("n_outputs", "n_tokens", "n_seq_max"))
    program = _NAMES.get(str(meta.get("program", "library")))
    if not isinstance(n_outputs, int) or not isinstance(n_tokens, int) or not isinstance(n_seqs, int):
        return ""
    if program is None or meta.get("phase") == "tokens":
        return ""
    return f"for {program}, {count(n_seqs, 'sequence')}: logits of {n_outputs} of {count(n_tokens, 'token')}"
