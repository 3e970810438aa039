"""Published measurements of llama-bench as records, and the graphs that they are of.

`measurements.csv` has a row for each: the device and how many of it, the backend, the model, the test (pp: tokens of a
prompt, tg: tokens of an answer) behind `depth` tokens, the ubatch, flash attention, tokens a second and their standard
deviation, llama.cpp's build where it was said, and GB/s of memory that is not the usual one.

`source` is the document that the row was read in. llama.cpp's discussions could not be read themselves: their rows are
from documents that quote them, and say so (`… quoting llama.cpp discussion #15013`). `assumed` says what the document
does not and the row needs: which card of two of that name it was, flash attention or the ubatch where they are not
said, the size of a Mac's or a card's memory, by which it is named (nothing is computed from it here).

`half` says what a row is for: `fit` or `held`, by a hash of device and model, so that all tests of a model on a device
are on one side. `new` rows were found when everything had been chosen; they are fitted to no more than held ones.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ggmltool.estimate.forecast import nodes_of
from ggmltool.estimate.seconds import GraphWork
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.run.compiled import Compiled
from ggmltool.sources.llama.capture.capture import capture_many
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError
from tests.sources.real_models import bench_model

FILE = Path(__file__).parent / "measurements.csv"
DEEP, SHALLOW = 36_864, 8_192
"""Cells of the caches: for any depth, and for graphs without flash attention, which grow with them."""


class Graph(NamedTuple):
    """What a graph is captured with; a `ubatch` of 1 is a token of an answer."""

    model: str
    ubatch: int
    flash: bool


class Row(NamedTuple):
    """A measurement; `rate` is tokens a second, `bandwidth` GB/s of memory that is not the usual one, `assumed` what
    its source does not say."""

    device: str
    count: int
    backend: str
    model: str
    test: str
    depth: int
    ubatch: int
    flash: bool
    rate: float
    source: str
    assumed: str
    half: str
    bandwidth: float | None = None

    @property
    def fitted(self) -> bool:
        """Whether factors are fitted to it."""
        return self.half == "fit"

    @property
    def tokens(self) -> int:
        """How many tokens the test has."""
        return int(self.test[2:])

    @property
    def is_prompt(self) -> bool:
        """Whether the tokens are a prompt's, many at a time."""
        return self.test.startswith("pp")

    @property
    def graph(self) -> Graph:
        """The graph that the test computes."""
        return Graph(self.model, min(self.ubatch, self.tokens) if self.is_prompt else 1, self.flash)

    @property
    def batches(self) -> list[tuple[int, float]]:
        """Behind how many cached tokens the graph is computed, and how often; an answer's as if all were halfway."""
        if not self.is_prompt:
            return [(self.depth + self.tokens // 2, self.tokens)]
        size = self.graph.ubatch
        return [(self.depth + i * size, 1) for i in range(-(-self.tokens // size))]


@cache
def measurements() -> Sequence[Row]:
    """Every row of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                **{key: r[key] for key in ("device", "backend", "model", "test", "source", "assumed", "half")},
                **{key: int(r[key]) for key in ("count", "depth", "ubatch")},
                flash=r["fa"] == "1",
                rate=float(r["tps"]),
                bandwidth=float(r["bandwidth"]) if r["bandwidth"] else None,
            )
            for r in csv.DictReader(file)
        ]


class Graphs:
    """The graphs of rows, each model captured once with all that is asked of it."""

    def __init__(self, rows: Iterable[Row]) -> None:
        asked = sorted({row.graph for row in rows})
        self._nodes: dict[Graph, list[Tensor]] = {}
        self._works: dict[tuple[Graph, int], GraphWork] = {}
        for model in dict.fromkeys(graph.model for graph in asked):
            self._capture([graph for graph in asked if graph.model == model])

    def _capture(self, graphs: Sequence[Graph]) -> None:
        wanted = [_options(graph) for graph in graphs]
        for graph, captured in zip(graphs, capture_many(bench_model(graphs[0].model), wanted), strict=True):
            if isinstance(captured, CaptureError):
                raise captured
            model = load_spec(captured.scenario)
            self._nodes[graph] = nodes_of(Compiled(model), next(iter(model.graphs)))

    def work(self, graph: Graph, cached: int) -> GraphWork:
        """The work of a graph when so many tokens are cached."""
        if (graph, cached) not in self._works:
            self._works[graph, cached] = GraphWork(self._nodes[graph], cached)
        return self._works[graph, cached]


def _options(graph: Graph) -> CaptureOptions:
    token = graph.ubatch == 1
    return CaptureOptions(
        n_ctx=DEEP if graph.flash else SHALLOW,
        n_ubatch=max(graph.ubatch, 32),
        flash_attn="on" if graph.flash else "off",
        phase="token" if token else "prompt",
        n_tokens=graph.ubatch,
        n_seqs=1,
        n_outputs=1,
    )
