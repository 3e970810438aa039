"""What was found, as text of 80 columns and as a document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from ggmltool.ask.diff.rules import changes
from ggmltool.ask.diff.side import SWITCHES
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.release import Release
from tests.follow.layouts import Field
from tests.follow.scenarios import Turn
from tests.follow.search import Found, Rule
from tests.follow.tables import TableDifference

WIDTH = 80
MOST_TOLD = 3
"""Differences that are named of one scenario."""


@dataclass(slots=True)
class Report:
    """All that was compared; `search` is None where the structs are too strange to run anything."""

    library: str
    like: Release
    fields: list[Field] = field(default_factory=list)
    tables: list[TableDifference] = field(default_factory=list)
    n_calls: int = 0
    search: Found | None = None
    refused: str = ""

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return bool(
            self.refused
            or self.tables
            or any(f.differs for f in self.fields)
            or (self.search is not None and self.search.rules)
        )

    def text(self) -> str:
        """For a terminal."""
        lines = [*_wrapped(f"{self.library}, compared with ggmltool's ggml {self.like.name}"), ""]
        lines += _structs(self.fields)
        if self.refused:
            lines += ["", *_wrapped(self.refused)]
        lines += ["", *_tables(self.tables, self.n_calls)]
        if self.search is not None:
            lines += ["", *_rules(self.search)]
        return "\n".join(lines) + "\n"

    def document(self) -> dict[str, Any]:
        """For programs."""
        out: dict[str, Any] = {
            "library": self.library,
            "ggml": self.like.name,
            "differs": self.differs,
            "structs": [f._asdict() for f in self.fields if f.differs],
            "tables": [t._asdict() for t in self.tables],
        }
        if self.refused:
            out["refused"] = self.refused
        if self.search is not None:
            out["scenarios"] = dict(self.search.n)
            out["rules"] = [_rule_document(rule) for rule in self.search.rules]
        return out


def _structs(fields: Sequence[Field]) -> Iterator[str]:
    wrong = [f for f in fields if f.differs]
    lost = [f"{f.struct}.{f.name}" for f in fields if f.found is None and f.expected is not None]
    n = sum(f.found is not None for f in fields)
    yield f"Structs: {n} fields found, {len(wrong) or 'none'} elsewhere than ggmltool has them"
    for f in wrong:
        expected = "has none" if f.expected is None else f"has it at {f.expected:#x}"
        yield from _item(f"{f.struct}.{f.name} is at {f.found:#x}; ggmltool {expected}")
    if lost:
        yield from _item(f"not found: {', '.join(lost)}")


def _tables(found: Sequence[TableDifference], n_calls: int) -> Iterator[str]:
    calls = f" and {n_calls} calls of constructors" if n_calls else ""
    yield f"Functions, tables{calls}: {len(found) or 'no'} differences"
    for name, text in found:
        yield from _item(f"{name}: {text}")


def _rules(found: Found) -> Iterator[str]:
    n = ", ".join(f"{n} {'planned' if kind == 'plans' else 'computed'}" for kind, n in found.n.items())
    if not found.rules:
        yield f"Random scenarios ({n}): no difference"
        return
    yield from _wrapped(f"Random scenarios ({n}): {len(found.rules)} rules differ")
    for i, rule in enumerate(found.rules, 1):
        yield ""
        yield from _rule(i, rule)


def _rule(i: int, rule: Rule) -> Iterator[str]:
    heads = [_turn(turn) for turn in rule.turns] or ["no known rule"]
    yield from _wrapped(f"{i}. {' and '.join(heads)}", "   ")
    for turn in rule.turns:
        change = next((c for c in changes() if c.key == SWITCHES.get(turn.field)), None)
        if change is not None:
            yield from _item(f"{change.key}: before {change.since}, {change.before}; since then, {change.now}")
    if rule.alternatives:
        yield from _item(f"these would do as well: {'; '.join(map(_turn, rule.alternatives))}")
    yield from _item(f"{len(rule.seeds)} of the scenarios: {_some(rule.seeds)}")
    yield from _item("the smallest found:")
    for told in rule.smallest.told[:MOST_TOLD]:
        yield from _item(textwrap.shorten(told, 3 * WIDTH), "     ")
    for line in _yaml(rule).splitlines():
        yield f"     {line}"


def _turn(turn: Turn) -> str:
    value = turn.value
    if isinstance(value, frozenset):
        value = ", ".join(sorted(Op(op).name for op in value)) or "none"
    releases = f", as in {', '.join(turn.releases)}" if turn.releases else ", as in no release"
    return f"{turn.field}: {value}{releases}"


class _Line(dict[str, Any]):
    """A map that stands on one line."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Line, lambda dumper, value: dumper.represent_mapping("tag:yaml.org,2002:map", value, True))


def _yaml(rule: Rule) -> str:
    out = {key: value for key, value in rule.smallest.case.document.items() if key not in ("name", "meta")}
    out["backends"] = [_line(backend) for backend in out["backends"]]
    out["contexts"] = {name: {**c, "tensors": _lines(c["tensors"])} for name, c in out["contexts"].items()}
    out["graphs"] = {name: {**g, "nodes": _lines(g["nodes"])} for name, g in out["graphs"].items()}
    # PyYAML ends a line behind the word that passes the width.
    return yaml.dump(out, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH - 26)


def _line(value: Any) -> Any:
    return _Line(value) if isinstance(value, dict) else value


def _lines(tensors: dict[str, Any]) -> dict[str, Any]:
    return {id: _line(t) for id, t in tensors.items()}


def _some(seeds: Sequence[str], most: int = 6) -> str:
    return ", ".join(seeds[:most]) + (", …" if len(seeds) > most else "")


def _rule_document(rule: Rule) -> dict[str, Any]:
    return {
        "switches": [{"rule": t.field, "value": _plain(t.value), "releases": list(t.releases)} for t in rule.turns],
        "alternatives": [{"rule": t.field, "value": _plain(t.value)} for t in rule.alternatives],
        "seeds": list(rule.seeds),
        "differences": list(rule.smallest.told),
        "debug": rule.smallest.case.debug,
        "scenario": rule.smallest.case.document,
    }


def _plain(value: object) -> object:
    return sorted(Op(op).name for op in value) if isinstance(value, frozenset) else value


def _item(text: str, indent: str = "   ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
