"""Random cases of which some have what a test is about: seeds are drawn until there are enough of those."""

from __future__ import annotations

from collections.abc import Iterator

MOST = 20
"""Times as many seeds as were asked for, at most: a generator that makes none of use is found out."""


class Drawn:
    """All of `seeds` and `also`, and those behind them until `least` were of use: a test counts these in `found`."""

    def __init__(self, seeds: range, least: int, *also: int) -> None:
        self.seeds = seeds
        self.also = also
        self.least = least
        self.found = 0

    def __iter__(self) -> Iterator[int]:
        yield from (*self.seeds, *self.also)
        for seed in range(self.seeds.stop, self.seeds.stop + MOST * len(self.seeds)):
            if self.found >= self.least:
                return
            yield seed
        assert self.found >= self.least, f"{self.found} of the seeds from {self.seeds.start} on are of use"
