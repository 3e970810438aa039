"""The command line, as the tests of commands call it."""

from __future__ import annotations

from tests.cli.conftest import call

__all__ = ["call"]
