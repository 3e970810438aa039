"""What a plan does not say of a tensor: its bytes, where it comes from, its own sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.tensor import Dims, dims

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec, TensorSpec


class TensorInfo(NamedTuple):
    """A tensor of the scenario.

    `nbytes` is ggml_nbytes, `op` ggml_op_desc (the function's name for UNARY and GLU), `symbol` ggml's sign for the
    op in drawings, `flags` the bits of ggml_tensor_flag.
    `src` are the ids of its sources as written, before the scheduler put copies in their place; `address` is where
    the tensor's struct lies (simulated), `has_data` whether it has memory before the graph is allocated.

    A log knows less: there `type` is "", and `nbytes` can be `slack` bytes too small, since ggml prints whole K and M.
    """

    id: str
    name: str
    type: str
    ne: Dims
    nbytes: int
    op: str = "NONE"
    symbol: str = "none"
    flags: int = 0
    src: tuple[str | None, ...] = ()
    view_src: str | None = None
    address: int = 0
    has_data: bool = False
    slack: int = 0

    @property
    def shape(self) -> str:
        """`f32[4, 3]`; "" if it is not known."""
        return f"{self.type}{dims(self.ne)}" if self.type else ""


Tensors = Mapping[str, TensorInfo]
"""The tensors of a graph and of the contexts, by id."""


def tensor_infos(model: ScenarioSpec, graph: str) -> dict[str, TensorInfo]:
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
