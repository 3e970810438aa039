"""The scenario that a command works on, and what its views need to know of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ggmltool.cli.output import note
from ggmltool.scenario.samples import DEFAULT, samples_folder
from ggmltool.views.tensors import TensorInfo

if TYPE_CHECKING:
    from ggmltool.scenario.model import Model, TensorSpec
    from ggmltool.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded scenario; `argument` is how the user would name it again."""

    scenario: Scenario
    argument: str

    @property
    def model(self) -> Model:
        return self.scenario.model

    @property
    def title(self) -> str:
        """What headings call it."""
        if self.model.name:
            return self.model.name
        return "standard input" if self.argument == "-" else Path(self.argument).name


def open_scenario(argument: str | None) -> Opened:
    """Load the scenario that the command line names: a file, `-`, or by default graph.yaml here, else a sample."""
    from ggmltool import load

    if argument is None:
        argument = default_scenario()
        note(f"No scenario named, taking {argument}")
    return Opened(load(argument), argument)


def default_scenario() -> str:
    """graph.yaml in the current folder, else the sample."""
    if Path("graph.yaml").is_file():
        return "graph.yaml"
    return str(samples_folder() / DEFAULT)


def tensor_infos(model: Model, graph: str) -> dict[str, TensorInfo]:
    """What views want to know of the tensors of the contexts and of one graph, by id.

    Addresses are simulated: each context has an arena of its own, as does the graph.
    """
    from ggmltool.ggml.version import OBJECT_SIZE, tensor_overhead
    from ggmltool.scenario.arenas import FIRST, STEP

    infos: dict[str, TensorInfo] = {}
    arenas = [(c.tensors, c.buft is not None) for c in model.contexts]
    for number, (tensors, allocated) in enumerate([*arenas, (model.graphs[graph].nodes, False)]):
        address = FIRST + number * STEP + OBJECT_SIZE
        for tensor in tensors:
            infos[tensor.id] = _info(tensor, address, allocated)
            address += tensor_overhead()
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
