"""How many calls of each op the tests give to the engine and to the library.

    python -m tests.conformance.checked

writes the numbers that `ggmltool ops` shows (`data/checked_ops.toml`); a test holds them against the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ggmltool.data
from ggmltool.ask.ops.record import CHECKED, op_facts
from ggmltool.ggml.op import GluOp, Op, UnaryOp
from ggmltool.ggml.releases.table import NEWEST
from tests.conformance.ops.sets import SETS
from tests.conformance.ops_case import Call
from tests.conformance.test_ops import COMPUTED
from tests.conformance.test_ops_custom import COMPUTED as CUSTOM

HEADER = """\
# How many calls of each op the tests give to the engine and to ggml's CPU backend, which do the same.
# Written by `python -m tests.conformance.checked`.

"""


def compared() -> Iterator[Call]:
    """The calls of all tables: those beside the rules of each family, and the sets."""
    yield from COMPUTED
    yield from CUSTOM
    for calls in SETS.values():
        yield from calls


def counts() -> dict[str, int]:
    """Calls by the lower-case name of their op; UNARY and GLU have those of their functions."""
    names = {c.name: f for f in op_facts(NEWEST) for c in f.constructors}
    names |= {other: f for f in op_facts(NEWEST) for group in f.other_names for other in group}
    found: Counter[str] = Counter()
    for case in compared():
        facts = names[case.fn]
        found[facts.name.lower()] += 1
        if facts.function_of is not None:
            found[facts.function_of.name.lower()] += 1
    order = [e.name.lower() for enum in (Op, UnaryOp, GluOp) for e in enum]
    return {name: found[name] for name in order if found[name]}


if __name__ == "__main__":
    path = Path(ggmltool.data.__file__).with_name(CHECKED)
    path.write_text(HEADER + "".join(f"{name} = {n}\n" for name, n in counts().items()), encoding="utf-8")
