"""Graph copies of 0.20.2: ggmltool/ggml/graph_copy.py."""

from ggmltool.ggml.graph_copy import Copier

__all__ = ["Copier"]
