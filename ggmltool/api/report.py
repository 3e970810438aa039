"""The page that explains a graph, as a value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.ask.checked import checked_methods
from ggmltool.ggml.printable import printable

if TYPE_CHECKING:
    from ggmltool.ask.report.document import ReportComparisonDocument, ReportDocument


@checked_methods
@dataclass(frozen=True, repr=False)
class Report:
    """A page: `html` is its text, `document` what it shows, `as_dict()` the same as `ggmltool report --json` prints."""

    document: ReportDocument | ReportComparisonDocument

    @cached_property
    def html(self) -> str:
        """The page, which needs no network."""
        from ggmltool.show.html import page

        return page(self.document, self.document.title)

    def save(self, path: str | Path) -> None:
        """Write the page. Raises InspectError if it cannot be written."""
        Path(path).write_text(self.html, "utf-8")

    def as_dict(self) -> dict[str, Any]:
        """What the page shows, as dicts, lists, texts and numbers."""
        from ggmltool.show.document import json_text

        found: dict[str, Any] = json.loads(json_text(self.document))
        return found

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame that can reach nothing else."""
        sandbox = 'sandbox="allow-scripts allow-downloads"'
        return f'<iframe {sandbox} width="100%" height="800" srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<report of {printable(self.document.title)}>"
