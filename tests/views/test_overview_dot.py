"""The overview of a hand-made plan looks as accepted, whatever its names are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replace_struct

from ggmltool.views.plan.overview_dot import MOST_ROWS, overview_dot
from tests.golden import check_golden
from tests.views.plans import TENSORS, TWO_DEVICES

GOLDEN = Path(__file__).parent / "golden"


def test_two_devices_look_as_accepted() -> None:
    check_golden(GOLDEN / "overview.dot", overview_dot(TWO_DEVICES, TENSORS, "two devices"))


def test_a_long_column_goes_on_beside_itself() -> None:
    """As many splits as nodes, on two backends in turns."""
    node, split = TWO_DEVICES.nodes[0], TWO_DEVICES.splits[0]
    n = 2 * MOST_ROWS + 1
    backends = [name for name, _ in TWO_DEVICES.backends]
    many = replace(
        TWO_DEVICES,
        nodes=tuple(replace_struct(node, index=i, split=i) for i in range(n)),
        splits=tuple(
            replace_struct(split, id=i, backend=backends[i % 2], i_start=i, i_end=i + 1, inputs=()) for i in range(n)
        ),
    )
    text = overview_dot(many, TENSORS, '"]; evil [label="')
    assert text.count('label="continued"') == 2
    assert 'label="graph"' in text
    assert '\\"]; evil [label=\\"' in text
    assert text.count("node: ") == n
    assert "what is copied" not in text
