"""ggml's dot format: the same text as ggml_graph_dump_dot writes, but for the addresses."""

from __future__ import annotations

import re
from pathlib import Path

import ggmltool
from ggmltool.ask.dot.splits import ggml_dot
from ggmltool.inspect.built import built_graph
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.tensors import Builder
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.tensor_info import tensor_infos
from tests.conformance.releases import release_of

SMALL = """\
ggmltool: 1
backends: [CPU]
contexts:
  weights:
    buft: CPU
    tensors: {scalar: 'f32[1]', four: 'f16[2, 2]', five: 'q8_0[32, 5]', w: {type: f32, ne: [4], flags: [param]}}
  inputs: {tensors: {x: 'f32[4, 3, 2]', nameless: {type: f32, ne: [4], name: ''}}}
graphs:
  main:
    nodes:
      a: mul(x, w)
      b: {op: add, src: [a, nameless], name: ''}
      c: cast(b, f16)
      d: gelu(b)
      e: scale(x, s=2)
      f: cpy(e, x)
      g: sum(five)
      h: add(four, scalar)
"""


def dump(lib: Lib, model: ScenarioSpec, graph: str, path: Path) -> None:
    """ggml_graph_dump_dot of the graph, its contexts that have a buffer type allocated on the CPU."""
    builder = Builder(lib)
    known: dict[str, int] = {}
    for context in model.contexts:
        made = builder.context(len(context.tensors))
        builder.tensors(made, context.tensors, known)
        if context.buft is not None:
            lib.allocate(made)
    spec = model.graphs[graph]
    size = len(spec.nodes) + len(known) + 1
    made = builder.context(len(spec.nodes), size)
    builder.tensors(made, spec.nodes, known)
    lib.ggml_graph_dump_dot(builder.graph(made, spec, known, size), 0, str(path).encode())


def without_addresses(text: str) -> str:
    """The text with every address replaced by its number in the order of appearance."""
    numbers: dict[str, str] = {}
    return re.sub(r"0x[0-9a-f]+", lambda m: numbers.setdefault(m[0], f"t{len(numbers)}"), text)


def test_the_text_of_all_kinds_of_tensors_is_that_of_the_real_library(tmp_path: Path, lib: Lib) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    check_text(lib, path, tmp_path)


def test_the_text_of_a_sample_is_that_of_the_real_library(sample: Path, tmp_path: Path, lib: Lib) -> None:
    check_text(lib, sample, tmp_path)


def check_text(lib: Lib, path: Path, tmp_path: Path) -> None:
    scenario = ggmltool.load(path, ggml=release_of(lib).name)
    graph = scenario.graph_name()
    done = lib.run_forked(lambda: dump(lib, scenario.model, graph, tmp_path / "real.dot"))
    assert not isinstance(done, Abort), done
    infos = tensor_infos(scenario.model, graph)
    nodes, leafs = built_graph(scenario, graph, infos)
    ours = ggml_dot(nodes, leafs, infos)
    assert without_addresses(ours) == without_addresses((tmp_path / "real.dot").read_text("utf-8"))
