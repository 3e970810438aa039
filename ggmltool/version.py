"""The tool's own version (the ggml release it follows is in `ggmltool.ggml.version`)."""

from __future__ import annotations

__version__ = "0.1.0"
