"""What tests need that pip does not bring. Where it is missing they skip, or fail where CI is set (`.ci/run`)."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str, package: str) -> pytest.MarkDecorator:
    """Marks tests that start a program, which is in a package of the system."""
    missing = shutil.which(name) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"needs {name}: install the system's package {package}")


needs_dot = program("dot", "graphviz")
needs_groff = program("groff", "groff")
needs_bash = program("bash", "bash")
