"""Since when ggml has what a scenario can say, and until when it had it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from ggmltool.data import load

if TYPE_CHECKING:
    from ggmltool.scenario.spec import TensorSpec


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """What an op has since a day: a source in slot `source`, or one of these `words` of op_params that is not `before`,
    values that the word always had.
    """

    what: str
    since: str
    source: int = -1
    words: tuple[int, ...] = ()
    before: tuple[int, ...] = (0,)

    def is_in(self, t: TensorSpec) -> bool:
        """Whether the node has it."""
        if self.source >= 0:
            return len(t.src) > self.source and t.src[self.source] is not None
        return any(len(t.op_params) > word and t.op_params[word] not in self.before for word in self.words)


class Days(Struct, frozen=True, forbid_unknown_fields=True):
    """Days as ggml's own repository has them (YYYY-MM-DD), for what came or went after January 2024.

    `ops` are those of ops and of functions of UNARY and GLU, `functions` those of further constructors of older ops,
    `parts` what older ops have since, `profiles` the kinds of backends. `keys` of a scenario say something about ggml
    since a day; `*` stands for any entry. `flags`: tensors are flagged as inputs and outputs; `test_nodes`:
    ggml_backend_compare_graph_backend takes names of nodes.
    """

    ops: dict[str, str]
    ops_until: dict[str, str]
    functions: dict[str, str]
    parts: dict[str, tuple[Part, ...]]
    types: dict[str, str]
    profiles: dict[str, str]
    keys: dict[str, str]
    keys_until: dict[str, str]
    flags: str
    eval_callback: str
    test_nodes: str


@cache
def days() -> Days:
    """All of them."""
    return load("since.toml", Days)
