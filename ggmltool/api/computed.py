"""Values by two sides, and the real library beside the engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ggmltool.api.result import Result

if TYPE_CHECKING:
    from ggmltool.ask.compare import Compare
    from ggmltool.ask.compare.record import Comparison
    from ggmltool.ask.verify.record import Verification
    from ggmltool.inspect.opened import Opened

_WORST = 10
"""Rows of the table of `compare`."""


def compare(opened: Opened, asked: Compare) -> Result[Comparison]:
    from ggmltool.ask.compare.text import compare_view

    found = asked.ask(opened)
    title = opened.title
    return Result(
        f"compare graph {found.graph} of {title}: {len(found.over)} of {len(found.nodes)} nodes off",
        found,
        lambda: found,
        partial(compare_view, found, title, _WORST),
        tuple(found.nodes),
    )


def verify(opened: Opened, values: bool | None, vulkan: bool) -> Result[Verification]:
    from ggmltool.ask.verify.record import verify as run_verify
    from ggmltool.ask.verify.text import verify_view

    found = run_verify(opened.scenario, values, vulkan=vulkan)
    return Result(
        f"verify {opened.title}: {len(found.differences)} differences",
        found,
        lambda: found,
        partial(verify_view, found, opened.title),
        tuple(found.differences),
    )
