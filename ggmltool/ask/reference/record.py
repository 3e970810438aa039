"""What there is to read: samples with what they teach, pages of the manual, schemas."""

from __future__ import annotations

import gzip
from typing import Literal

from ggmltool.scenario.samples import sample_name, samples
from ggmltool.show.document import Document, Row


class SampleInfo(Row):
    """A sample: its name, its file, and what it shows."""

    name: str
    file: str
    shows: str


class Samples(Document, kw_only=True):
    """`sample --json`: the scenarios that ship with ggmltool."""

    view = "samples"
    kind: Literal["samples"] = "samples"
    samples: tuple[SampleInfo, ...]


class TopicInfo(Row):
    """A page of the manual."""

    topic: str
    title: str


class Topics(Document, kw_only=True):
    """`help --json`: the pages of the manual."""

    view = "topics"
    kind: Literal["topics"] = "topics"
    topics: tuple[TopicInfo, ...]


class Page(Document, kw_only=True):
    """`help TOPIC --json`: a page of the manual, as Markdown."""

    view = "page"
    kind: Literal["page"] = "page"
    topic: str
    text: str


class SchemaInfo(Row):
    """A name that `ggmltool schema` takes, and what the schema is of."""

    name: str
    about: str


class Schemas(Document, kw_only=True):
    """`schema --json`: the schemas that there are."""

    view = "schemas"
    kind: Literal["schemas"] = "schemas"
    schemas: tuple[SchemaInfo, ...]


def teaches(text: str) -> str:
    """The first sentence of the comment that a sample begins with; "" if it begins with none.

    >>> teaches("# Two devices: one splits. And more.\\n# Learn here: …\\n")
    'Two devices: one splits'
    """
    first = text.split("\n", 1)[0]
    return first.lstrip("# ").split(". ")[0].rstrip(". ") if first.startswith("#") else ""


def sample_infos() -> Samples:
    """Every sample, by name."""
    infos = []
    for path in samples():
        if path.suffix == ".yaml":
            shows = teaches(path.read_text("utf-8"))
        else:  # a captured graph, whose name stands in the second line of its file
            with gzip.open(path, "rt", encoding="utf-8") as file:
                _, line = file.readline(), file.readline()
            name = line.partition('": "')[2].rstrip('",\n')
            shows = f"A real model: {name}"
        infos.append(SampleInfo(sample_name(path), path.name, shows))
    return Samples(samples=tuple(infos))
