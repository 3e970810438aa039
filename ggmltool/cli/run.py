"""`ggmltool run`: the steps of a scenario, and the values that come out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggmltool.ask.run.text import StepReport, steps_view
from ggmltool.cli.command import Command
from ggmltool.cli.complete import complete_nodes, complete_tensors
from ggmltool.cli.options import (
    ggml_option,
    json_option,
    memory_option,
    output_option,
    scenario_argument,
    work_option,
    zeros_option,
)
from ggmltool.cli.output import Output, log_lines, note
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.ready import check_run, tell_of_undone
from ggmltool.inspect.use_after_free import FreedMemoryUse, uses_after_free, uses_view
from ggmltool.scenario.tensor_info import tensor_infos
from ggmltool.show.text import count, shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.run.next_token import NextToken
    from ggmltool.ask.run.record import GraphTimes
    from ggmltool.cli.watcher import Watcher
    from ggmltool.ggml.releases.release import Release
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import Step


@click.command(cls=Command)
@scenario_argument
@click.option(
    "-t",
    "--tensor",
    multiple=True,
    metavar="ID",
    shell_complete=complete_tensors,
    help="Show this tensor instead of the outputs; may be given more than once.",
)
@click.option(
    "--watch",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_nodes,
    help=(
        "Show this node, or all that match a glob (`'ffn_*'`), as soon as it is computed. May be given more than once."
    ),
)
@click.option(
    "--dump",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write every node, or those of --watch, to .npy files in this folder; --force overwrites.",
)
@click.option("--compute/--no-compute", default=True, help="Compute (default), or only plan and allocate.")
@click.option(
    "--times", is_flag=True, help="Show the time each backend spent on copies and on computing (ggml 2024-01)."
)
@zeros_option
@memory_option
@work_option
@ggml_option
@json_option
@output_option
def run(
    scenario: str | None,
    tensor: tuple[str, ...],
    watch: tuple[str, ...],
    dump: Path | None,
    compute: bool,
    times: bool,
    zeros: bool,
    json: bool,
    release: Release | None,
    output: Output,
) -> int:
    """Run the steps of a scenario, compute on the simulated devices, and show the outputs.

    Weights (contexts with `usage: weights`) must have values; otherwise nothing is computed, unless --zeros is given.
    Other tensors without data are zero, and are named.

    The outputs are the nodes flagged output, else the last node. For a captured prompt, the likeliest next tokens are
    shown, too, with their text. With --json: the plans of all reserve and alloc steps, and the outputs as nested lists.

    --watch and --dump see nodes as ggml's eval callback does (ggml_backend_sched_set_eval_callback): each split is
    computed in parts that end with a wanted node. A file has the name of its node, with everything but letters, digits
    and ._-~ escaped as in a URL; manifest.json says what is in each. Values are float32, as arrays of shape ne
    reversed; integers keep their type.

    \b
    Example:
      ggmltool run -t q -t k --json model.yaml
      ggmltool run --watch 'attn_*' --dump tensors model.yaml
      ggmltool run --ggml 2024-01 --times model.yaml
    """
    if (watch or dump is not None) and not compute:
        raise click.UsageError("--watch and --dump need computed nodes; leave out --no-compute.")
    if times and not compute:
        raise click.UsageError("--times needs computed nodes; leave out --no-compute.")
    opened = open_scenario(scenario, release)
    watcher = _watcher(opened, watch, dump, output, streamed=output.path is None and not json)
    result = _Result(opened, tensor, compute, watcher)
    result.check_wanted()
    if times:
        result.check_times()
    if watcher is not None:
        watcher.check()
    if compute:
        check_run(opened, zeros)
    try:
        result.do_steps()
    finally:
        if watcher is not None and watcher.dump is not None:
            watcher.dump.finish(opened.title, opened.model.ggml)
    if json:
        from ggmltool.ask.run.record import RunDocument
        from ggmltool.show.values import nested

        outputs = {id: None if values is None else nested(values) for id, values in result.values.items()}
        watched = watcher.records if watcher is not None and watch else None
        plans, spent = result.run.plans, result.times if times else None
        output.write_document(
            RunDocument.of(
                opened.model.ggml, plans, outputs, result.error, watched, result.next_token(), spent, result.freed
            )
        )
    else:
        from ggmltool.ask.run.record import times_text

        parts = [times_text(t) for t in result.times] if times else []
        output.write("".join([*parts, *(watcher.texts if watcher is not None else []), result.text(output)]))
    return 1 if result.error or result.freed else 0


def _watcher(
    opened: Opened, watch: tuple[str, ...], dump: Path | None, output: Output, streamed: bool
) -> Watcher | None:
    """The eval callback, where somebody wants to see nodes."""
    if not watch and dump is None:
        return None
    from ggmltool.cli.dump import Dump
    from ggmltool.cli.errors import CliError
    from ggmltool.cli.watcher import Watcher
    from ggmltool.scenario.since import days
    from ggmltool.scenario.versions import lacks

    if lacks(opened.model.release, days().eval_callback):
        message = f"ggml {opened.model.ggml} has no eval callback; it came on {days().eval_callback}"
        raise CliError(f"{message}, which --watch and --dump need; -t shows tensors")

    several = sum(step.kind == "compute" for step in opened.model.steps) > 1
    return Watcher(opened, watch, Dump(dump, output.force, several) if dump is not None else None, output, streamed)


_UNDONE = {"compute": "not computed", "set": "not written"}
"""What a step does without --compute."""


class _Result:
    """A run under way: what each step did, and the values so far, by id."""

    def __init__(self, opened: Opened, wanted: tuple[str, ...], compute: bool, watcher: Watcher | None) -> None:
        self.opened = opened
        self.watcher = watcher
        self.wanted = wanted
        self.compute = compute
        self.run: Run = opened.scenario.start(opened.listener(None), values=compute)
        self.reports: list[StepReport] = []
        self.values: dict[str, NDArray[Any] | None] = {}
        self.error: dict[str, Any] | None = None
        self.times: list[GraphTimes] = []

    @property
    def freed(self) -> list[FreedMemoryUse]:
        """What the steps so far used of memory that was freed."""
        return uses_after_free(self.run)

    def check_times(self) -> None:
        """Refuse --times of a ggml that keeps none. Raises CliError."""
        from ggmltool.cli.errors import CliError
        from ggmltool.ggml.releases.table import RELEASES

        if not self.opened.model.release.keeps_times:
            did = next(release.name for release in RELEASES.values() if release.keeps_times)
            message = f"ggml {self.opened.model.ggml} keeps no times per backend"
            raise CliError(f"{message}; ggml {did} does: --ggml {did}")

    def check_wanted(self) -> None:
        """Refuse a tensor that no graph has before any work is done. Raises ScenarioError."""
        from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted

        known = [id for graph in self.opened.scenario.compiled.graphs.values() for id in graph.ids]
        for id in self.wanted:
            if id not in known:
                raise ScenarioError(
                    f"no tensor is called {quoted(id)}", self.opened.model.source, None, did_you_mean(id, known)
                )

    def do_steps(self) -> None:
        for number, step in enumerate(self.opened.model.steps, 1):
            n_freed = len(self.freed)
            report = self._do(step, number)
            uses = self.freed[n_freed:]
            # What rests on freed memory has no value, now or from before.
            rests = {id for use in uses for id in use.results}
            self.values.update(dict.fromkeys(self._shown(step, rests)))
            self.reports.append(report._replace(number=number, uses_freed=bool(uses)))
            if report.plan is not None:
                log_lines(report.plan.log)
            if report.failure:
                self.error = dict(report.failure)
                return

    def _do(self, step: Step, number: int) -> StepReport:
        from ggmltool.ggml.errors import GgmlError
        from ggmltool.ggml.plan import Plan

        if not self.compute and step.kind == "get":
            return self._check_get(step)
        if step.kind == "compute" and step.graph is not None and self.compute:
            self.run.number = number
            graph = self.run.held or step.graph
            try:
                if self.watcher is not None:
                    self.watcher.watch(self.run, number, graph)
                self._warn_of_old_copies(step.graph, number)
                values = self._compute(graph)
            except GgmlError as error:
                return StepReport(str(step), error=tuple(error.as_dict().items()))
            self.values.update(values)
            did = f"computed {', '.join(values) or 'nothing'}"
            if graph != step.graph:
                did += f": the scheduler holds {graph}"
            return StepReport(str(step), did)
        done = self.run.step(step, number)
        if isinstance(done, Plan):
            undone = tell_of_undone(self.run, step, self.opened.work)
            return (
                StepReport(str(step), undone, plan=done)
                if done.step == step.kind
                else StepReport(str(step), error=done.error)
            )
        if isinstance(done, dict):
            self.values.update(done)
            return StepReport(str(step), f"read {count(len(done), 'tensor')}")
        return StepReport(str(step), "done" if self.compute else _UNDONE.get(step.kind, "done"))

    def _check_get(self, step: Step) -> StepReport:
        """A get of which nothing is read: whether its tensors have memory."""
        from ggmltool.ggml.errors import GgmlError

        try:
            for id in step.tensors:
                self.run.check_get(id)
        except GgmlError as error:
            return StepReport(str(step), error=tuple(error.as_dict().items()))
        return StepReport(str(step), "not read")

    def _shown(self, step: Step, ids: set[str]) -> list[str]:
        """Those of some tensors whose values are shown after a step, or were before."""
        if not ids:
            return []
        from ggmltool.inspect.built import output_ids

        asked: Sequence[str] = step.tensors or self.wanted
        if not asked and step.graph is not None:
            asked = output_ids(self.opened.scenario, self.run.held or step.graph)
        return [id for id in (*self.values, *asked) if id in ids]

    def _compute(self, graph: str) -> dict[str, NDArray[Any]]:
        """The values of the graph's outputs, or of those asked for that it has; shows how far it is."""
        scenario = self.opened.scenario
        wanted = [id for id in self.wanted if id in scenario.compiled.graphs[graph].ids] if self.wanted else None
        prints = self.watcher is not None and self.watcher.prints
        n_nodes = len(self.opened.model.graphs[graph].nodes)
        with progress(f"computing {graph}", n_nodes, "nodes", show=not prints) as advance:
            values = scenario.outputs(self.run, graph, wanted, advance)
        self._keep_times(graph)
        return values

    def _warn_of_old_copies(self, graph: str, number: int) -> None:
        """Say where a build is split a second time, which ggml takes without a word."""
        copies = self.run.old_copies(graph)
        if copies:
            them = f"{count(len(copies), 'copy')} of the first time ({shortened(copies, 4)})"
            note(
                f"Step {number}, compute {graph}, splits a build of the graph that was split before: its sources are "
                f"{them}. Nothing is copied into them now, and other tensors may use their memory. Build the graph "
                f"anew after a reset (`alloc {graph}`), or leave out the reset."
            )

    def _keep_times(self, graph: str) -> None:
        from ggmltool.ask.run.record import BackendTime, GraphTimes

        if self.opened.model.release.keeps_times:
            times = tuple(BackendTime(*t) for t in self.run.times)
            self.times.append(GraphTimes(graph, self.run.start().n_splits, times))

    def text(self, output: Output) -> str:
        from ggmltool.show.values import matrix_view

        model = self.opened.model
        graphs = [step.graph for step in model.steps if step.graph is not None] or list(model.graphs)
        infos = {id: info for graph in reversed(graphs) for id, info in tensor_infos(model, graph).items()}
        backends = [name for name, _ in self.run.plans[0].backends] if self.run.plans else []
        parts = [steps_view(self.reports, backends, infos, self.opened.title, output.style)]
        parts += ["\n", text] if (text := uses_view(self.freed, output.style)) else []
        for id, values in self.values.items():
            if values is None:
                continue
            parts += ["\n", matrix_view(id, infos[id].type if id in infos else str(values.dtype), values, output.style)]
        found = self.next_token()
        if found is not None:
            from ggmltool.ask.run.text import next_token_view

            parts += ["\n", next_token_view(found, output.style)]
        return "".join(parts)

    def next_token(self) -> NextToken | None:
        """What the logits of a captured prompt say; None if there are none."""
        if not self.values:
            return None
        from ggmltool.ask.run.next_token import next_token

        return next_token(self.opened.model, {id: v for id, v in self.values.items() if v is not None})
