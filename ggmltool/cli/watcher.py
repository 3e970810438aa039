"""The eval callback of `run`: tensors are shown or written to files as they are computed."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ggmltool.cli.dump import Dump
from ggmltool.cli.output import Output
from ggmltool.inspect.opened import Opened
from ggmltool.views.compute.documents import WatchedRow
from ggmltool.views.compute.watch import WatchedNode, watched_view

if TYPE_CHECKING:
    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run import Run


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
        from ggmltool.scenario.errors import ScenarioError, nearest

        model = self.opened.model
        known = list(dict.fromkeys(n.id for _, graph in self._computed for n in model.graphs[graph].nodes))
        leafs = {t.id for t in model.tensors()}
        for pattern in self.patterns:
            if not any(_matches(id, pattern) for id in known):
                near = nearest(pattern, known)
                hint = f"did you mean {near}?" if near else ""
                if pattern in leafs:
                    hint = f"{pattern} is never computed; `run -t {pattern}` shows it"
                raise ScenarioError(f"no computed node is called {pattern}", model.source, None, hint)
        if self.dump is not None:
            self.dump.check((step, id) for step, graph in self._computed for id in sorted(self._wanted[graph]))

    def _of_graph(self, graph: str) -> set[str]:
        """The nodes of a graph that are wanted."""
        from ggmltool.ggml.op import VIEW_OPS

        nodes = self.opened.model.graphs[graph].nodes
        if not self.patterns:
            return {n.id for n in nodes if n.op not in VIEW_OPS}
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
        from ggmltool.ggml.errors import NotComputable
        from ggmltool.scenario.run import values_of

        node = self._node(t)
        try:
            values = values_of(t)
        except NotComputable:
            values = None
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

    def _node(self, t: Tensor) -> WatchedNode:
        from ggmltool.ggml.tensor import op_desc

        step, graph = self._at
        sched = self._run.start()
        return WatchedNode(
            t.id,
            op_desc(t),
            t.type.name,
            t.ne,
            tuple((s.label, s.type.name, s.ne) for s in t.src if s is not None),
            sched.names[sched.ids[t.index]],
            graph,
            step,
        )


def _matches(id: str, pattern: str) -> bool:
    return id == pattern or fnmatchcase(id, pattern)
