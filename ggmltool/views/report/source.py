"""The scenario in a report: its text, and the file to plan it again."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING

from ggmltool.scenario.dump import dump
from ggmltool.views.report.document import SourceRow

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec

SHOWN = 40_000
"""Characters of a scenario that a page shows."""
CARRIED = 400_000
"""Characters of the compressed scenario that a page carries."""


def source_row(model: ScenarioSpec) -> SourceRow:
    """The scenario in its long form as JSON, a line for each tensor and node."""
    text = scenario_text(model)
    shown = text if len(text) <= SHOWN else text[: text.rindex("\n", 0, SHOWN) + 1]
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return SourceRow(shown, len(text), "scenario.json.gz", packed if len(packed) <= CARRIED else "")


def scenario_text(model: ScenarioSpec) -> str:
    """The scenario in its long form, everything explicit."""
    lines: list[str] = []
    _write(dump(model), 0, "", lines)
    return "\n".join(lines) + "\n"


def _write(value: object, depth: int, before: str, lines: list[str]) -> None:
    """Objects and lists in lines of their own down to the third level, below it in one line."""
    indent = " " * depth
    if depth < 4 and isinstance(value, (dict, list)) and value and not _is_flat(value):
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        lines.append(indent + before + opening)
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for key, item in items:
            _write(item, depth + 1, "" if key is None else f"{json.dumps(key)}: ", lines)
            lines[-1] += ","
        lines[-1] = lines[-1].removesuffix(",")
        lines.append(indent + closing)
    else:
        lines.append(indent + before + json.dumps(value))


def _is_flat(value: dict[str, object] | list[object]) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return not any(isinstance(item, (dict, list)) for item in items)
