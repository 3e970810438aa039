"""`ops`: the ops of ggml, and one of them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from ggmltool.ask.ops.record import OpList


def ops(name: str | None = None) -> Answer[OpList] | Answer[Any]:
    """All ops, or one in full: "rope", "ROPE", a function ("silu") or a constructor ("rope_ext").

    Raises InspectError if there is none of that name.
    """
    from msgspec import UNSET
    from msgspec.structs import asdict, replace

    from ggmltool.ask.ops.record import OneOp, OpList, example_result, find_op, op_facts, op_info
    from ggmltool.ggml.releases.table import DEFAULT

    if name is None:
        return Answer(OpList(ggml=DEFAULT.name, ops=tuple(op_info(facts) for facts in op_facts())))
    info = op_info(find_op(name))
    info = replace(info, result=example_result(info) or UNSET)
    return Answer(OneOp(ggml=DEFAULT.name, **asdict(info)), info.name)
