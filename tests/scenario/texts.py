"""Scenarios for the loader's tests: a base with tensors of many shapes, and nodes put on top of it."""

from __future__ import annotations

import textwrap

from ggmltool.scenario.load import load_document
from ggmltool.scenario.spec import ScenarioSpec, TensorSpec
from ggmltool.scenario.text.text import parse_document

BASE = """\
ggmltool: 1
backends: [CUDA0, CPU]
contexts:
  w:
    tensors:
      a: f32[4, 3]
      x: f32[4, 8]
      q: f32[64, 8, 4]
      k: f32[64, 32, 8]
      kv: f16[64, 32, 4]
      rows: f32[64, 4, 4]
      mask: f32[64, 32]
      pos: i32[4]
      idx: i64[4]
      leaf 6 (view): f32[4, 8]
      blk.0.attn_q.weight: f32[4, 8]
      Qcur-0~2: f32[4, 8]
graphs:
  main:
    nodes:
"""


def load_text(text: str, source: str = "t.yaml") -> ScenarioSpec:
    """A model from YAML, or from JSON where `source` ends in .json."""
    return load_document(parse_document(text, source, "json" if source.endswith(".json") else "yaml", None))


def load_nodes(*nodes: str) -> list[TensorSpec]:
    """The nodes of a graph on the base's tensors."""
    return load_text(BASE + textwrap.indent("\n".join(nodes), " " * 6)).graphs["main"].nodes


def load_node(*nodes: str) -> TensorSpec:
    """The last of the nodes."""
    return load_nodes(*nodes)[-1]
