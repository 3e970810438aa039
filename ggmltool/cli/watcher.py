"""The eval callback of `run`: tensors are shown or written to files as they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ggmltool.ask.run.record import WatchedRow
from ggmltool.ask.run.text import watched_view
from ggmltool.cli.dump import Dump
from ggmltool.cli.output import Output
from ggmltool.inspect.opened import Opened

if TYPE_CHECKING:
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run


class Watcher:
    """What `--watch` and `--dump` ask for.

    `patterns` are ids of nodes or globs; without any, all nodes that compute something are dumped and none is shown.
    `streamed` texts are printed at once, else they are kept in `texts`; `records` are the same for JSON.
    """

    def __init__(
        self, opened: Opened, patterns: Sequence[str], dump: Dump | None, output: Output, streamed: bool
    ) -> None:
        self.opened = opened
        self.patterns = patterns
        self.dump = dump
        self.output = output
        self.streamed = streamed
        self.texts: list[str] = []
        self.records: list[WatchedRow] = []
        self._computed = [(i, s.graph) for i, s in enumerate(opened.model.steps, 1) if s.kind == "compute" and s.graph]
        self._wanted = {graph: self._of_graph(graph) for _, graph in self._computed}
        self._at = (0, "")

    @property
    def prints(self) -> bool:
        """Whether it prints while the graph is computed."""
        return self.streamed and bool(self.patterns)

    def check(self) -> None:
        """Refuse a pattern that no node matches, and a dump that cannot be written. Raises ScenarioError, CliError."""
        from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted

        model = self.opened.model
        known = list(dict.fromkeys(n.id for _, graph in self._computed for n in model.graphs[graph].nodes))
        leafs = {t.id for t in model.tensors()}
        for pattern in self.patterns:
            if not any(_matches(id, pattern) for id in known):
                hint = did_you_mean(pattern, known)
                if pattern in leafs:
                    hint = f"{pattern} is never computed; `run -t {pattern}` shows it"
                raise ScenarioError(f"no computed node is called {quoted(pattern)}", model.source, None, hint)
        if self.dump is not None:
            self.dump.check((step, id) for step, graph in self._computed for id in sorted(self._wanted[graph]))

    def _of_graph(self, graph: str) -> set[str]:
        """The nodes of a graph that are wanted."""
        from ggmltool.ask.run.watched import computed_nodes

        nodes = self.opened.model.graphs[graph].nodes
        if not self.patterns:
            return computed_nodes(self.opened.model, graph)
        return {n.id for n in nodes if any(_matches(n.id, p) for p in self.patterns)}

    def watch(self, run: Run, step: int, graph: str) -> None:
        """Be asked about the nodes that the next compute step computes."""
        self._at = (step, graph)
        self._run = run
        run.set_eval_callback(self._callback)

    def _callback(self, t: Tensor, ask: bool) -> bool:
        if ask:
            return t.id in self._wanted[self._at[1]]
        self._take(t)
        return True

    def _take(self, t: Tensor) -> None:
        from ggmltool.ask.run.watched import values_if_known, watched_node

        step, graph = self._at
        node, values = watched_node(self._run, t, graph, step), values_if_known(self._run, t)
        if self.dump is not None and values is not None:
            self.dump.add(node, values)
        if not self.patterns:
            return
        self.records.append(WatchedRow.of(node, values))
        text = watched_view(node, values, len(self._computed) > 1, self.output.style) + "\n"
        if self.streamed:
            self.output.write(text)
        else:
            self.texts.append(text)


def _matches(id: str, pattern: str) -> bool:
    return id == pattern or fnmatchcase(id, pattern)
