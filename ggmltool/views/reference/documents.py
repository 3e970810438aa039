"""The JSON of what is known without a graph: samples, pages of the manual, schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ggmltool.views.document import Document, Row


class SchemaInfo(Row):
    """A name that `ggmltool schema` takes, and what the schema is of."""

    name: str
    about: str


class SchemasDocument(Document, kw_only=True):
    """`schema --json`: the schemas that there are."""

    kind: Literal["schemas"] = "schemas"
    schemas: tuple[SchemaInfo, ...]

    @classmethod
    def of(cls, schemas: Mapping[str, str]) -> SchemasDocument:
        """What each schema is of, by its name."""
        return cls(schemas=tuple(SchemaInfo(name, about) for name, about in schemas.items()))
