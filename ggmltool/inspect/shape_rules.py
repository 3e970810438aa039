"""What the constructor of each op asks of the shapes and types of its sources, and what comes out."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ggmltool.data import load


class ShapeRule(NamedTuple):
    """What a constructor asks, each in a line, and the type and extents of its result."""

    asks: tuple[str, ...]
    gives: str


@cache
def shape_rules() -> dict[str, ShapeRule]:
    """The rules by the constructor's name; constructors whose results follow from parameters alone have none."""
    rules = load("shape_rules.toml", dict[str, str])
    return {name: _rule(rule) for names, rule in rules.items() for name in names.split(", ")}


def _rule(text: str) -> ShapeRule:
    asks, _, gives = text.partition("->")
    return ShapeRule(tuple(part.strip() for part in asks.split(";") if part.strip()), gives.strip())
