"""What a search finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ggmltool.sources.llama.needs import GraphCost, least_room
from ggmltool.sources.llama.search.choice import Choice
from ggmltool.sources.llama.search.space import Setting
from ggmltool.sources.llama.search.speed import Seconds
from ggmltool.sources.llama.sweep import Bytes


class Candidate(NamedTuple):
    """A placement that was planned, and what it came to.

    `setting` and `choice` are what was asked for; `n_ctx` and `n_seq` what the context has, `n_layer` the layers of the
    model; `order` is the setting's place among all, the most wanted first. `needs`, `left` and `margins` are bytes by
    device; `gpus` name the GPUs, those without layers too. `seconds` are rough where `rated` is False: the rates of
    some device are not known. `parallel` says whether there are pipeline copies, `with_copies` what they would need
    where they do not fit. `error` is ggml's message if there is no plan.
    """

    setting: Setting
    choice: Choice
    order: int
    n_ctx: int
    n_seq: int
    n_layer: int
    gpus: tuple[str, ...]
    needs: Mapping[str, Bytes]
    left: Mapping[str, int]
    margins: Mapping[str, int]
    graphs: tuple[GraphCost, ...]
    seconds: Seconds
    rated: bool
    parallel: bool
    with_copies: Mapping[str, int]
    error: str

    @property
    def room(self) -> int:
        """What the fullest device has left beyond its margin, below 0 if it lacks some; 0 if no memory is known."""
        return least_room(self.left, self.margins)

    @property
    def fits(self) -> bool:
        return not self.error and self.room >= 0

    @property
    def splits(self) -> int:
        return sum(graph.splits for graph in self.graphs)

    @property
    def words(self) -> Mapping[str, str]:
        """The options of the placement, by name."""
        return self.choice.words(self.n_layer)


class Ranked(NamedTuple):
    """The best candidate of a setting, and what it has less of than the most wanted setting."""

    candidate: Candidate
    given_up: tuple[str, ...]


class Counts(NamedTuple):
    """How many placements there are, and how many of them were planned, in settings that were captured; how many
    settings were wanted, and how many of them were ruled out by others.
    """

    placements: int = 0
    planned: int = 0
    captured: int = 0
    settings: int = 0
    ruled_out: int = 0


class Progress(NamedTuple):
    """How far a search is, for somebody who waits: settings that are done, counts, and the best so far."""

    done: int
    counts: Counts
    best: Candidate | None


class Tensor(NamedTuple):
    """A weight or a cache of the best candidate, with the device it is on."""

    name: str
    type: str
    nbytes: int
    device: str


class Found(NamedTuple):
    """The result of a search.

    `ranked` has the best candidate of every setting that fits, the best of all first. `pareto` are those of them than
    which none has both a longer context and fewer seconds, the fastest first. `nearest` is what lacks the least, where
    nothing fits. `biggest` are the largest tensors of each device in the best candidate. `proved`: nothing that was
    left out can be better but for room; else the search ended at its limit of plans.
    """

    ranked: tuple[Ranked, ...]
    pareto: tuple[Candidate, ...]
    nearest: Candidate | None
    biggest: Mapping[str, tuple[Tensor, ...]]
    counts: Counts
    proved: bool

    @property
    def best(self) -> Candidate | None:
        return self.ranked[0].candidate if self.ranked else None
