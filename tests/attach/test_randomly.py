"""A few random graphs in a program: the plan is what its scheduler decided, and it prints what it prints alone."""

from __future__ import annotations

import pytest

from tests import needs
from tests.attach.randomly import alone, by_number, command, looked_at, survivors

pytestmark = needs.program("gdb", "gdb")


@pytest.mark.parametrize(("release", "seeds"), [("0.20.2", (1,)), ("0.26", (2,))])
def test_random_graphs_without_a_scheduler_are_planned_as_the_program_decides(
    release: str, seeds: tuple[int, ...]
) -> None:
    needs.library(release)
    arguments = command(seeds, release, module="tests.attach.alone")
    ran = looked_at(arguments, "alone")
    assert (ran.output, ran.status) == alone(arguments)
    assert [(c.number, c.verified.first) for c in ran.compared if not c.verified.same] == []
    assert len(ran.compared) >= len(seeds)


@pytest.mark.parametrize(("release", "way"), [("0.20.2", "pid"), ("0.26", "launch")])
def test_random_graphs_are_planned_as_the_program_decides(release: str, way: str) -> None:
    needs.library(release)
    lived = survivors([2], release)
    assert lived
    arguments = command(lived, release)
    output, status = alone(arguments)
    ran = by_number(arguments, output) if way == "pid" else looked_at(arguments)
    assert (ran.output, ran.status) == (output, status)
    assert [(c.number, c.verified.first) for c in ran.compared if not c.verified.same] == []
    assert len(ran.compared) == output.count(b"\n{")
