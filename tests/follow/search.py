"""Finds the rules that differ: random scenarios, switches turned one after the other, the smallest scenario of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations

from ggmltool.ggml.releases.release import Release
from tests.follow.library import Library
from tests.follow.scenarios import (
    Case,
    Kind,
    Observed,
    Turn,
    compared,
    explaining,
    observed,
    random_case,
    sign,
    switches_to_turn,
)
from tests.follow.shrink import smallest

CHUNK = 50
MOST_SMALLER = 2
"""Cases of one cause that are made smaller: the smallest of them is shown."""
MOST_ASKED = 5
"""Cases that differ at the same place which all switches are tried on."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What differs: switches that together make the engine equal (none are known: empty), and the smallest scenario.

    `seeds` are those that differ for this cause, `alternatives` are other switches that would do as well.
    """

    turns: tuple[Turn, ...]
    alternatives: tuple[Turn, ...]
    seeds: tuple[str, ...]
    smallest: Observed


@dataclass(slots=True)
class Found:
    """What came of all scenarios: `n` of each kind were run, `found` is the release with the switches turned."""

    n: Counter[Kind]
    found: Release
    rules: list[Rule] = field(default_factory=list)


class Search:
    """A search with a library, a release to start from, and processes."""

    def __init__(
        self, library: Library, like: Release, pool: Executor, seconds: float, say: Callable[[str], None]
    ) -> None:
        self.library = library
        self.like = like
        self.pool = pool
        self.seconds = seconds
        self.say = say

    def run(self, seeds: Mapping[Kind, range]) -> Found:
        """Run the scenarios of these seeds, and find out what is behind the differences."""
        chunks = [(kind, s[i : i + CHUNK]) for kind, s in seeds.items() for i in range(0, len(s), CHUNK)]
        jobs = [self.pool.submit(_random, self.library, self.like, *chunk) for chunk in chunks]
        differing = [o for job in jobs for o in job.result()]
        out = Found(Counter({kind: len(s) for kind, s in seeds.items()}), self.like)
        while differing:
            self.say(f"{len(differing)} scenarios differ")
            rule = self._rule_of_most(differing, out.found) or self._rule_of_smallest(differing, out.found)
            out.rules.append(rule)
            out.found = turned(out.found, rule.turns)
            differing = [o for o in self._still(differing, out.found) if name_of(o) not in rule.seeds]
        return out

    def _rule_of_most(self, differing: Sequence[Observed], base: Release) -> Rule | None:
        """The rule that the switch stands for which makes most of them equal, if one does."""
        turns = switches_to_turn(base)
        asked = [o for same in by_sign(differing).values() for o in same[:MOST_ASKED]]
        explained = list(self.pool.map(partial(_explaining, release=base, turns=turns), asked))
        counts = Counter(turn for some in explained for turn in some)
        if not counts:
            return None
        best = max(counts, key=lambda t: (counts[t], bool(t.releases)))
        self.say(f"{best}")
        same = [t for t in turns if t != best and all(t in some for some in explained if best in some)]
        left = {name_of(o) for o in self._still(differing, best.applied(base))}
        cases = sorted((o for o in differing if name_of(o) not in left), key=lambda o: o.size)
        starts = cases[:MOST_SMALLER]
        # It is shown by what differs from the release itself, without the switches before, if there is such a case.
        plain = [o for o in starts if not compared(o.case, best.applied(self.like), o.real)]
        if plain:
            base, starts = self.like, plain
        return Rule((best,), tuple(same), tuple(map(name_of, cases)), self._smallest(starts, (best,), base))

    def _rule_of_smallest(self, differing: Sequence[Observed], base: Release) -> Rule:
        """The rule behind cases that no switch makes equal: found where the smallest of them is, or not known."""
        place, cases = next(iter(by_sign(differing).items()))
        self.say(f"{place}: no switch makes these equal")
        small = self._smallest(cases[:MOST_SMALLER], (), base)
        turns = switches_to_turn(base)
        for some in chain(combinations(turns, 1), combinations(turns, 2)):
            if not compared(small.case, turned(base, some), small.real):
                return Rule(some, (), (name_of(small),), small)
        return Rule((), (), tuple(map(name_of, cases)), small)

    def _still(self, differing: Sequence[Observed], base: Release) -> list[Observed]:
        told = self.pool.map(partial(_compared, release=base), differing, chunksize=4)
        return [Observed(o.case, o.real, tuple(t)) for o, t in zip(differing, told, strict=True) if t]

    def _smallest(self, starts: Sequence[Observed], turns: tuple[Turn, ...], base: Release) -> Observed:
        small = self.pool.map(partial(_small, self.library, base, turns, self.seconds), starts)
        return min(small, key=lambda o: o.size)


def name_of(of: Observed) -> str:
    """What a case is called: its kind and seed."""
    return f"{of.case.kind} {of.case.seed}"


def by_sign(differing: Sequence[Observed]) -> dict[str, list[Observed]]:
    """The cases by where they differ first, the smallest first."""
    groups: dict[str, list[Observed]] = {}
    for o in sorted(differing, key=lambda o: o.size):
        groups.setdefault(sign(o.told[0]), []).append(o)
    return groups


def turned(release: Release, turns: Sequence[Turn]) -> Release:
    """The release with these switches turned."""
    for turn in turns:
        release = turn.applied(release)
    return release


def _random(library: Library, release: Release, kind: Kind, seeds: range) -> list[Observed]:
    cases = [random_case(kind, seed, release) for seed in seeds]
    return [o for o in observed(library, release, cases) if o is not None]


def _explaining(of: Observed, release: Release, turns: Sequence[Turn]) -> list[Turn]:
    return explaining(of, release, turns)


def _compared(of: Observed, release: Release) -> list[str]:
    return compared(of.case, release, of.real)


def _small(library: Library, base: Release, turns: Sequence[Turn], seconds: float, start: Observed) -> Observed:
    same: Callable[[Observed], bool]
    if turns:
        other = turned(base, turns)

        def same(o: Observed) -> bool:
            return not compared(o.case, other, o.real)
    else:
        wanted = sign(start.told[0])

        def same(o: Observed) -> bool:
            return sign(o.told[0]) == wanted

    def still(cases: Sequence[Case]) -> list[Observed | None]:
        return [o if o is not None and same(o) else None for o in observed(library, base, cases)]

    return smallest(start, still, seconds)
