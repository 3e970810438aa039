"""Values by two sides, and the real library beside the engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ggmltool.api.result import Result

if TYPE_CHECKING:
    from ggmltool.inspect.compared import ComparedGraph
    from ggmltool.inspect.opened import Opened
    from ggmltool.inspect.verified import Verified

_WORST = 10
"""Rows of the table of `compare`."""


def compare(
    opened: Opened,
    graph: str | None,
    backends: str | Sequence[str] | None,
    real: str | None,
    values: str | Path | None,
    eval_log: str | Path | None,
    tolerance: float | None,
    inject: Sequence[str],
    tensor: Sequence[str],
    seed: int | None,
    zeros: bool,
) -> Result[ComparedGraph]:
    from ggmltool.inspect.compared import Asked, compared_graph
    from ggmltool.inspect.ready import check_weights
    from ggmltool.views.compute.compare import compare_view
    from ggmltool.views.compute.documents import CompareDocument

    name = opened.scenario.graph_name(graph)
    two = backends if isinstance(backends, str | None) else ",".join(backends)
    made_up = None if zeros else 1 if seed is None else seed
    asked = Asked(
        name, two, real, _path(values), _path(eval_log), tolerance, tuple(inject),
        tuple(tensor), made_up, zeros or seed is not None,
    )  # fmt: skip
    if not zeros and seed is None and values is None and eval_log is None:
        check_weights(opened.model, [name], (), "plan()")
    found = compared_graph(opened, asked)
    title = opened.title
    return Result(
        f"compare graph {name} of {title}: {len(found.over)} of {len(found.nodes)} nodes off",
        found,
        partial(CompareDocument.of, opened.model.ggml, found),
        partial(compare_view, found, title, _WORST),
        tuple(found.nodes),
    )


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def verify(opened: Opened, values: bool | None, vulkan: bool) -> Result[Verified]:
    from ggmltool.inspect.verified import verify as run_verify
    from ggmltool.views.diff.documents import VerifyDocument
    from ggmltool.views.diff.verify import debug_text, verify_view

    found = run_verify(opened.scenario, values, debug_text, vulkan=vulkan)
    return Result(
        f"verify {opened.title}: {len(found.differences)} differences",
        found,
        partial(VerifyDocument.of, found),
        partial(verify_view, found, opened.title),
        tuple(found.differences),
    )
