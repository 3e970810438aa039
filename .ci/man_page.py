"""Puts the manual page into the wheel: made from the help while the wheel is built, installed as share/man/man1."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPageHook(BuildHookInterface[Any]):
    """A build hook of hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the page where the builder finds it."""
        sys.path.insert(0, self.root)
        try:
            from ggmltool.cli.reference import manual_page
        finally:
            sys.path.remove(self.root)
        self.folder = TemporaryDirectory()
        page = Path(self.folder.name) / "ggmltool.1"
        page.write_text(manual_page(), "utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/ggmltool.1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel has the page now."""
        self.folder.cleanup()
