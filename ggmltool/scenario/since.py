"""Since when ggml has what a scenario can say, and until when it had it."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from ggmltool.data import load


class Days(Struct, frozen=True, forbid_unknown_fields=True):
    """Days as ggml's own repository has them (YYYY-MM-DD), for what came or went after January 2024.

    Those of ops stand at their constructors. `profiles` are the kinds of backends, `keys` of a scenario say something
    about ggml since a day; `*` stands for any entry. `flags`: tensors are flagged as inputs and outputs; `test_nodes`:
    ggml_backend_compare_graph_backend takes names of nodes.
    """

    ops_until: dict[str, str]
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
