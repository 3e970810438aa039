"""The scenario that a command works on, and what its views need to know of its tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ggmltool.cli.output import current_settings, note
from ggmltool.cli.waiting import WRITER, waiting_for
from ggmltool.scenario.samples import DEFAULT, ENDINGS, find_sample, sample_name, samples_folder, scenario_path
from ggmltool.views.tensors import TensorInfo

if TYPE_CHECKING:
    from ggmltool.cli.options import WhatIf
    from ggmltool.scenario.model import Model, TensorSpec
    from ggmltool.scenario.scenario import Scenario
    from ggmltool.scenario.text import Readable

MINE = "graph.yaml"
"""The file that is taken where nobody names one."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded scenario. `argument` is how the user would name it again, `options` those that stand in for its own."""

    scenario: Scenario
    argument: str
    options: str = ""

    @property
    def model(self) -> Model:
        return self.scenario.model

    @property
    def title(self) -> str:
        """What headings call it: with the ggml that decides, where it is not the newest, and the options."""
        from ggmltool.ggml.version import VERSION

        name = "standard input" if self.argument == "-" else Path(self.argument).name
        own = "" if self.model.ggml == VERSION or "--ggml" in self.options else f"ggml {self.model.ggml}"
        return ", ".join(part for part in (self.model.name or name, own, self.options) if part)

    @property
    def again(self) -> str:
        """How the user would name it again, behind a command."""
        return f"{self.options} {self.argument}".lstrip()

    def what_if(self, options: WhatIf) -> Opened:
        """The same scenario with other options of the scheduler."""
        given = {name: value for name, value in options._asdict().items() if value is not None}
        if not given:
            return self
        self._check_switches(given)
        from ggmltool.scenario.scenario import Scenario

        model = replace(self.model, scheduler=replace(self.model.scheduler, **given))
        return Opened(Scenario(model), self.argument, " ".join(filter(None, (self.options, str(options)))))

    def _check_switches(self, names: Iterable[str]) -> None:
        """Refuse options of a scheduler that has none of the name. Raises CliError."""
        from ggmltool.cli.errors import CliError
        from ggmltool.scenario.versions import KEYS_SINCE, lacks

        for name in names:
            since = KEYS_SINCE.get(("scheduler", name), "")
            if lacks(self.model.release, since):
                raise CliError(f"ggml {self.model.ggml} has no {name}; it exists since {since}")


def refuse_older(opened: Opened, why: str) -> None:
    """Refuse a scenario that is for an older ggml, for commands that know only today's. Raises CliError."""
    from ggmltool.cli.errors import CliError
    from ggmltool.ggml.version import VERSION

    if opened.model.ggml != VERSION:
        raise CliError(f"the scenario is for ggml {opened.model.ggml}, and {why} {VERSION}")


def open_scenario(argument: str | None, ggml: str | None = None) -> Opened:
    """Load the scenario that the command line names: a file, `-` or a sample; by default graph.yaml, else a sample.

    Raises ScenarioError for a mistake in it, and for a name that is neither a file's nor a sample's.
    """
    if argument is not None:
        return opened(scenario_path(argument), argument, ggml=ggml)
    path = default_scenario()
    if path == MINE:
        note(f"No scenario named, taking {MINE}")
        return opened(path, path, ggml=ggml)
    name = sample_name(Path(path))
    note(f"No scenario named, taking the sample {name}")
    return opened(path, name, ggml=ggml)


def open_for(name: str, scenario: str | None, usage: str) -> Opened:
    """Load the scenario in which something called `name` is looked for, as `open_scenario` does.

    Raises CliError where no scenario is named and the name is that of a file of one: then the other word is missing,
    as `usage` says.
    """
    if scenario is None and name.endswith(ENDINGS):
        from ggmltool.cli.errors import CliError

        raise CliError(f"{name} is a scenario; say what to look for in it: `ggmltool {usage} {name}`")
    return open_scenario(scenario)


def opened(path: str, argument: str, stream: Readable | None = None, ggml: str | None = None) -> Opened:
    """Load a scenario that the user names `argument`, as the release `ggml`, by default the one that --ggml says.

    `stream` is its content where that was opened already. Raises as `open_scenario` does.
    """
    from ggmltool.scenario.load import load_model
    from ggmltool.scenario.scenario import Scenario

    ggml = ggml or current_settings().ggml
    with waiting_for(path, WRITER):
        model = load_model(path, stream=stream, ggml=ggml)
    if model.left_out:
        note(f"ggml {model.ggml} knows nothing of {', '.join(dict.fromkeys(model.left_out))}; left out")
    return Opened(Scenario(model), argument, "" if ggml is None else f"--ggml {ggml}")


def default_scenario() -> str:
    """graph.yaml in the current folder, else the sample."""
    return MINE if Path(MINE).is_file() else str(samples_folder() / DEFAULT)


def is_scenario(argument: str) -> bool:
    """Whether a word on the command line names a scenario, where it could also name something else."""
    return (
        argument == "-" or argument.endswith(ENDINGS) or os.path.lexists(argument) or find_sample(argument) is not None
    )


def tensor_infos(model: Model, graph: str) -> dict[str, TensorInfo]:
    """What views want to know of the tensors of the contexts and of one graph, by id.

    Addresses are simulated: each context has an arena of its own, as does the graph.
    """
    from ggmltool.scenario.arenas import FIRST, STEP

    infos: dict[str, TensorInfo] = {}
    release = model.release
    arenas = [(c.tensors, c.buft is not None) for c in model.contexts]
    for number, (tensors, allocated) in enumerate([*arenas, (model.graphs[graph].nodes, False)]):
        address = FIRST + number * STEP + release.object_size
        for tensor in tensors:
            infos[tensor.id] = _info(tensor, address, allocated)
            address += release.tensor_overhead()
    return infos


def _info(t: TensorSpec, address: int, allocated: bool) -> TensorInfo:
    from ggmltool.ggml.op import KEY_NAMES, SYMBOLS, op_key
    from ggmltool.ggml.tensor import cut_name, nbytes_of

    nbytes = nbytes_of(t.type, t.ne, t.nb)
    return TensorInfo(
        id=t.id,
        name=cut_name(t.name),
        type=t.type.name,
        ne=t.ne,
        nbytes=nbytes,
        op=KEY_NAMES[op_key(t.op, t.op_params)].upper(),
        symbol=SYMBOLS[t.op],
        flags=t.flags,
        src=t.src,
        view_src=t.view_src,
        address=address,
        has_data=allocated and nbytes > 0,
    )


def built_graph(
    scenario: Scenario, graph: str, infos: Mapping[str, TensorInfo]
) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """The nodes and the leafs of a graph as ggml_build_forward_expand leaves it: in its order, with its names."""
    built = scenario.start().build(graph)
    nodes, leafs = (
        [infos[t.id]._replace(name=t.name, has_data=t.data != 0) for t in tensors]
        for tensors in (built.nodes, built.leafs)
    )
    return nodes, leafs


def output_ids(scenario: Scenario, graph: str) -> list[str]:
    """The nodes of a graph that are flagged output, else the last node."""
    from ggmltool.ggml.tensor import FLAG_OUTPUT

    nodes = scenario.start().build(graph).nodes
    return [t.id for t in nodes if t.flags & FLAG_OUTPUT] or [t.id for t in nodes[-1:]]
