"""What a program's scheduler decided, in the shape of a plan: splits, nodes, leafs, copies, sizes of buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from ggmltool.attach.errors import AttachError
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.attach.write.names import ScenarioNames
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.rows import rows_of
from ggmltool.ggml.tensor import cut_name
from ggmltool.sources.graph_writer import without_controls


def decided(
    after: Snapshot, ids: Mapping[int, str], names: ScenarioNames, step: str = "alloc", answers: Answers | None = None
) -> dict[str, Any]:
    """What was decided, after a call of the scheduler, as `Plan.as_dict` has it. Raises AttachError.

    `ids` are those of the scenario by address, `names` its backends and buffer types; tensors have as much of their
    names as a scenario keeps. `alloc_size` is None where it was not asked.
    """
    state = after.state(ids)
    tensors = {a: structs.replace(t, name=cut_name(without_controls(t.name))) for a, t in state.tensors.items()}

    def size_of(address: int) -> int | None:
        buffer = after.buffers.get(after.tensors[address].buffer)
        return None if answers is None or buffer is None else answers.sizes.get((address, buffer.buft))

    backends = tuple((name, names.bufts[b]) for name, b in zip(names.backends, after.sched.bufts, strict=True))
    try:
        rows = rows_of(structs.replace(state, tensors=tensors), names.backends, names.bufts, size_of)
    except KeyError as missing:
        (address,) = missing.args
        raise AttachError(f"the scheduler names a tensor at {address:#x}, where nothing can be read") from None
    return Plan(None, step, True, backends, *rows, ggml=after.release).as_dict()
