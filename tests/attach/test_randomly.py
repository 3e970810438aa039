"""A few random graphs in a program: the plan is what its scheduler decided, and it prints what it prints alone."""

from __future__ import annotations

import pytest

from tests import needs
from tests.attach.randomly import alone, by_number, command, looked_at, survivors

pytestmark = needs.program("gdb", "gdb")


@pytest.mark.parametrize(
    ("release", "seed", "way"),
    [("0.20.2", 1, "alone"), ("0.26", 2, "alone"), ("0.20.2", 2, "pid"), ("0.26", 2, "launch")],
)
def test_random_graphs_are_planned_as_the_program_decides(release: str, seed: int, way: str) -> None:
    """`alone`: without a scheduler."""
    needs.library(release)
    if way == "alone":
        arguments = command([seed], release, module="tests.attach.alone")
    else:
        assert survivors([seed], release)
        arguments = command([seed], release)
    output, status = alone(arguments)
    ran = by_number(arguments, output) if way == "pid" else looked_at(arguments, "alone" if way == "alone" else "alloc")
    assert (ran.output, ran.status) == (output, status)
    assert [(c.number, c.verified.first) for c in ran.compared if not c.verified.same] == []
    assert ran.compared
    if way != "alone":
        assert len(ran.compared) == output.count(b"\n{")
