"""Which JSON documents there are, and the schema of each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec

from ggmltool.ask.reference.record import SchemaInfo, Schemas
from ggmltool.show.document import Document, document_in, printed

_MODULES = (
    "ask.plan.record",
    "ask.splits.record",
    "ask.splits.tally",
    "ask.splits.copied",
    "ask.splits.passes",
    "ask.graph.record",
    "ask.splits.seconds",
    "ask.buffers.record",
    "ask.lifetime.record",
    "ask.allocs.record",
    "ask.hash.record",
    "ask.context.record",
    "ask.tensor.record",
    "ask.explain.node",
    "ask.explain.split",
    "ask.explain.realloc",
    "ask.explain.message",
    "ask.check.record",
    "ask.supports.record",
    "ask.run.record",
    "ask.trace.record",
    "ask.compare.record",
    "ask.diff.record",
    "ask.verify.record",
    "ask.log.record",
    "ask.report.document",
    "ask.place.record",
    "ask.sweep.record",
    "ask.fit.record",
    "ask.backends.record",
    "ask.ops.record",
    "ask.types.record",
    "ask.reference.record",
    "ask.attach.calls",
    "ask.attach.verified",
    "ask.attach.end",
    "ask.attach.records",
)
"""Where the records of questions stand."""


def kinds() -> dict[str, tuple[type[Document], ...]]:
    """The documents of each kind, in the order of their modules; a kind can have several forms."""
    out: dict[str, tuple[type[Document], ...]] = {}
    for module in _MODULES:
        for cls in _documents(f"ggmltool.{module}"):
            kind = _kind(cls)
            out[kind] = (*out.get(kind, ()), cls)
    return out


def _documents(module: str) -> Iterator[type[Document]]:
    for value in vars(import_module(module)).values():
        is_record = isinstance(value, type) and issubclass(value, Document) and value.__module__ == module
        if is_record and value.document is Document.document and document_in(value) is value:
            yield printed(value)


def _kind(cls: type[Document]) -> str:
    kind = next(field for field in msgspec.structs.fields(cls) if field.name == "kind").default
    if not isinstance(kind, str):
        raise TypeError(f"{cls.__name__} has no kind")
    return kind


def about(forms: tuple[type[Document], ...]) -> str:
    """What a kind is, in a line."""
    return (forms[0].__doc__ or "").partition("\n")[0].replace("`", "")


def schema_of(kind: str, forms: tuple[type[Document], ...]) -> dict[str, Any]:
    """The JSON Schema of a kind of document: `anyOf` if it has several forms."""
    refs, parts = msgspec.json.schema_components(forms, ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    for form, ref in zip(forms, refs, strict=True):
        written = [field.encode_name for field in msgspec.structs.fields(form) if field.default is not msgspec.UNSET]
        parts[ref["$ref"].rpartition("/")[2]]["required"] = written
    for name, row in _rows(forms):
        if name in parts:
            for part, field in zip(parts[name]["prefixItems"], msgspec.structs.fields(row), strict=True):
                part["title"] = field.name
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ggmltool:schema:{kind}:1",
        "title": f"ggmltool: {kind}",
        **(refs[0] if len(refs) == 1 else {"anyOf": list(refs)}),
        "$defs": parts,
    }


def _rows(forms: tuple[type[Document], ...]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The rows that are written as arrays, of which a schema has no names."""
    for form in forms:
        for name, value in vars(import_module(form.__module__)).items():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__struct_config__.array_like:
                yield name, value


def schemas() -> Schemas:
    """What each schema is of."""
    known = {"scenario": "A scenario file.", **{kind: about(forms) for kind, forms in kinds().items()}}
    return Schemas(schemas=tuple(SchemaInfo(*named) for named in known.items()))
