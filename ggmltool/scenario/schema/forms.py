"""What schemas are put together from: maps with known keys, maps by id, what the manual says about a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from ggmltool.scenario.kinds import Keys, Schema, nullable
from ggmltool.scenario.values import MAX_ID

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "scenario.md"
NO_CONTROLS = r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f])"
"""Text without control characters."""
FALSY: Schema = {"enum": [None, False, 0, "", [], {}]}
NULL: Schema = {"type": "null"}


@cache
def _rows(section: str, head: str) -> dict[str, dict[str, str]]:
    """The manual's table in a section, by the first column, whose heading is `head`: each row by the others."""
    _, _, rest = _PAGE.read_text("utf-8").partition(f"\n## {section}\n")
    _, _, table = rest.partition("\n## ")[0].partition(f"| {head} |")
    heads, _, *lines = table.partition("\n\n")[0].splitlines()
    columns = [column.strip() for column in heads.strip("| ").split("|")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {key.strip("`"): dict(zip(columns, cells, strict=False)) for key, *cells in rows}


def described(section: str, schemas: Mapping[str, Schema], head: str = "key") -> dict[str, Schema]:
    """The schemas of keys, with what the manual's table in this section says of each."""
    rows = _rows(section, head)
    out = {}
    for key, schema in schemas.items():
        row = rows.get(key, {})
        text = row.get("meaning", row.get("what it is", ""))
        if row.get("default", "").startswith("`"):
            text += f". Default: {row['default']}"
        out[key] = {"description": text, **schema} if text else schema
    return out


def closed(known: Iterable[str], schemas: Mapping[str, Schema], **more: object) -> Schema:
    """A map with these keys, which are all that the loader knows there, and no others."""
    if set(known) != set(schemas):
        raise ValueError(f"the keys are {sorted(known)}, not {sorted(schemas)}")
    return {"type": "object", "properties": dict(schemas), "additionalProperties": False, **more}


def of_keys(keys: Keys, section: str, required: Iterable[str] = (), **more: object) -> Schema:
    """A map whose keys the loader reads by a table; those that need not be there may be null."""
    needed = list(required)
    schemas = {key: kind.schema() if key in needed else nullable(kind.schema()) for key, kind in keys.items()}
    more = {"required": needed, **more} if needed else more
    return closed(keys, described(section, schemas), **more)


def by_id(schema: Schema, printable: bool = True) -> Schema:
    """A map of ids to something."""
    names: Schema = {"minLength": 1, "maxLength": MAX_ID}
    return {
        "type": "object",
        "propertyNames": {**names, "pattern": NO_CONTROLS} if printable else names,
        "additionalProperties": schema,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
