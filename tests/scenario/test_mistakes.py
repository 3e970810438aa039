"""Mistakes in scenarios: one message each, with its place and what would have been right."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import Mistake, Place, ScenarioError, nearest, quoted
from ggmltool.scenario.load import load_spec
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.model_file import check_gguf
from ggmltool.sources.sched_log.stream import open_log
from tests.scenario.texts import BASE, load_text

TOP = """\
ggmltool: 1
"""

IN_NODES: list[tuple[str, str]] = [
    # the node, and the message after "t.yaml:"
    ("h: mul_mat(y, x)", '21:18: source "y" does not exist'),
    ("h: mul_mat(a, Qcur-0~1)", '21:21: source "Qcur-0~1" does not exist; did you mean "Qcur-0~2"?'),
    ("h: alibi(x)", "21:10: alibi was an op of ggml until 2024-05-11; no version in ggmltool has it"),
    ("h: mulmat(a, x)", '21:10: "mulmat" is not an op; did you mean "mul_mat"?'),
    ("h: mul_mat(a)", "21:10: mul_mat takes 2 sources, not 1; it is mul_mat(a, b, prec=, hint=, prec_b=)"),
    ("h: mul_mat(a, null)", "21:10: source b of mul_mat cannot be null; it is mul_mat(a, b, prec=, hint=, prec_b=)"),
    ("h: add(x, x, f16, 3)", "21:25: add takes at most 3 arguments; it is add(a, b, type=)"),
    ("h: mul_mat(a, x, perc=f32)", '21:29: mul_mat has no parameter "perc"; did you mean "prec"?'),
    ("h: mul_mat(a, x, prec=f33)", '21:29: prec cannot be "f33"; did you mean "f32"?'),
    ("h: scale(x, s=0.5, s=1)", "21:28: s is given twice"),
    ("h: scale(x, s=0.5, 1)", "21:26: an argument without a name follows one with a name"),
    ("h: scale(x, s=abc)", '21:21: s must be a number, not the text "abc"'),
    ("h: scale(x)", "21:10: scale needs s; it is scale(a, s=, b=)"),
    ("h: permute(q, 0, 2, 1)", "21:10: permute needs axis3; it is permute(a, axis0=, axis1=, axis2=, axis3=)"),
    ("h: get_rows_inplace(x, pos)", "21:10: get_rows cannot work in place; leave out _inplace"),
    ("h: none(x)", "21:10: none has no short form; write it as {op: ..., src: [...], type: ..., ne: [...]}"),
    ("h: cast(x, f17)", '21:18: type "f17" is not a ggml type; did you mean "f16"?'),
    ("h: add(x, mul(x, x))", "21:17: calls do not nest; give mul(…) an id of its own"),
    ("h: add(x,, x)", '21:16: a value is missing before ","; write null for an empty source'),
    ("h: add(x, x", '21:18: ")" is missing; inside { } in YAML, put a short form in quotes'),
    ("{h: add(x, x)}", '21:16: ")" is missing; inside { } in YAML, put a short form in quotes'),
    ("h: 'add(x, it''s)'", '21:18: source "it\'s" does not exist'),
    ('h: "add(x,\\u0020\\u0079)"', '21:23: source "y" does not exist'),
    ("h: >\n  add(x,\n  y)", '23:9: source "y" does not exist'),
    ("h: add(x, h)", "21:17: a node cannot be a source of itself in add; only the node of a cast is: cast(x, type)"),
    ("h: add(x, y)\ny: add(x, h)",
     '21:17: source "y" comes after this node; a node uses tensors and nodes before it, so there are no cycles'),
    ("a: add(x, x)", '21:7: there is a tensor "a" already; ids are unique in a scenario'),
    ("h: sqr(x)\nh: sqr(x)", '22:7: the key "h" is there twice'),
    ("h: 5", "21:10: a node must be text or a map, not the number 5; for example mul_mat(a, x)"),
    ("h:", "21:9: a node must be text or a map, not null; for example mul_mat(a, x)"),
    ("h: [add, x]", "21:10: a node must be text or a map, not a list; for example mul_mat(a, x)"),
    ("h: add", '21:10: "add" is not a node; write op(source, ..., parameter=value)'),
    ("'': add(x, x)", "21:7: id must not be empty"),
    ('"\\e[31m": add(x, x)', '21:7: id "\\x1b[31m" has a control character; names are printable text'),
    (f"{'n' * 1001}: add(x, x)", f'21:7: id "{"n" * 60}…" has 1001 characters; at most 1000 are allowed'),
    ("h: f32[4, -3]", "21:17: ne[1] must be at least 0, not -3"),
    ("h: f32[4, 3000000000, 4000000000]", "21:13: ne [4, 3000000000, 4000000000] has more than 2^63-1 elements"),
    ("h: f32[3000000000000000000]", "21:13: a tensor f32[3000000000000000000] has more than 2^63-1 bytes"),
    ("h: f33[4]", '21:10: type "f33" is not a ggml type; did you mean "f32"?'),
    ("h: f32[]", "21:13: ne must have 1 to 4 extents, not 0"),
    ("h: f32[1, 2, 3, 4, 5]", "21:13: ne must have 1 to 4 extents, not 5"),
    ("h: f32[4, x]", '21:17: ne[1] must be an integer, not the text "x"'),
    ("h: f32[4.5]", "21:14: ne[0] must be an integer, not the number 4.5"),
    ("h: {type: f32}", "21:10: a tensor needs ne; for example {type: f32, ne: [4, 3]}"),
    ("h: {ne: [4]}", "21:10: a tensor needs a type; for example {type: f32, ne: [4, 3]}"),
    ("h: {type: f32, ne: [4], en: 3}", '21:31: a tensor has no key "en"; did you mean "ne"?'),
    ("h: {type: 5, ne: [4]}",
     "21:17: type must be the name of a ggml type, not the number 5; for example f32, f16, q4_K"),
    ("h: {type: f32, ne: four}", '21:26: ne must be a list, not the text "four"'),
    ("h: {type: f32, ne: [4, [2]]}", "21:30: ne[1] must be an integer, not a list"),
    ("h: {type: f32, ne: [4], nb: [4, -1]}", "21:39: nb[1] must be at least 0, not -1"),
    ("h: {type: f32, ne: [4], src: [x]}", "21:31: a tensor without op has no sources; give its op"),
    ("h: {type: f32, ne: [4], op_params: [1]}", "21:31: a tensor without op has no op_params; give its op"),
    ("h: {type: f32, ne: [4], view_offs: 1}", "21:31: view_offs needs a view_src"),
    ("h: {type: f32, ne: [4], view_src: xx}", '21:41: view_src "xx" does not exist; did you mean "x"?'),
    ("h: {op: mul_mat, src: [a, x], ne: [3, 9]}",
     "21:41: ne is [3, 9, 1, 1], but mul_mat gives [3, 8, 1, 1]; leave it out, or correct it"),
    ("h: {op: mul_mat, src: [a, x], type: f16}",
     "21:43: type is f16, but mul_mat gives f32; leave it out, or correct it"),
    ("h: {op: mul_mat, src: [a, x], nb: [4, 16]}",
     "21:41: nb is [4, 16, 128, 128], but mul_mat gives [4, 12, 96, 96]; leave it out, or correct it"),
    ("h: {op: reshape, src: [x], ne: [32], view_src: a}",
     '21:54: view_src is "a", but reshape gives "x"; leave it out, or correct it'),
    ("h: {op: reshape, src: [x], ne: [32], view_offs: 4}",
     "21:55: view_offs is 4, but reshape gives 0; leave it out, or correct it"),
    ("h: {op: mul_mat, src: [a, x], view_offs: 4}", "21:37: mul_mat makes no view here, so it has no view_offs"),
    ("h: {op: silu, src: [x], op_params: [8]}", "21:42: op is silu, but op_params say gelu"),
    ("h: {op: add, src: [x, x, x]}", "21:25: add takes 2 sources, not 3; it is add(a, b, type=)"),
    ("h: {op: add, src: [x, yy]}", '21:29: source "yy" does not exist'),
    ("h: {op: add, src: [x, 5]}", "21:29: src[1] must be text, not the number 5"),
    ("h: {op: add, src: 5}", "21:25: src must be a list, not the number 5"),
    ("h: {op: add, src: [x, h]}",
     "21:29: a node cannot be a source of itself in add; only the node of a cast is: cast(x, type)"),
    ("h: {op: ADD, src: [x, x]}", '21:15: "ADD" is not an op; did you mean "add"?'),
    ("h: {op: [add], src: [x, x]}", "21:15: op must be text, not a list"),
    ("h: {op: scale, src: [x], S: 3}", '21:32: scale has no parameter "S"; did you mean "s"?'),
    ("h: {op: scale, src: [x], s: 3, op_params: [1]}", "21:32: s and op_params are both given; give one of them"),
    ("h: {op: scale, src: [x], s: true}", "21:35: s must be a number, not true (a truth value)"),
    ("h: {op: scale, src: [x], op_params: [1.5]}", "21:44: op_params[0] must be an integer, not the number 1.5"),
    ("h: {op: scale, src: [x], op_params: [0x100000000]}",
     "21:44: op_params[0] must be at most 4294967295, not 4294967296"),
    ("h: {op: scale, src: [x], op_params: [" + "0, " * 16 + "1]}", "21:43: op_params has 17 words; at most 16"),
    ("h: {op: get_rows, src: [x, pos], inplace: true}", "21:40: get_rows cannot work in place"),
    ("h: {op: rope, src: [q, pos], n_dims: 64, mode: neo}", '21:54: mode cannot be "neo"; did you mean "neox"?'),
    ("h: {op: rope, src: [q, pos], n_dims: 6.5}", "21:44: n_dims must be an integer, not the number 6.5"),
    ("h: {op: flash_attn_back, src: [x], type: f32}",
     "21:10: flash_attn_back has no rule for its result here; give ne"),
    ("h: {op: sqr, src: [x], flags: [outptu]}", '21:38: a flag cannot be "outptu"; did you mean "output"?'),
    ("h: {op: sqr, src: [x], backend: CUDA1}",
     '21:39: backend cannot be "CUDA1"; CUDA1 is not in `backends`; add it there'),
    ("h: {op: sqr, src: [x], data: [1]}",
     "21:30: a node's values are what its op computes; write others with the step {set: ...}"),
    ('h: {op: sqr, src: [x], name: "a\\eb"}',
     '21:36: name "a\\x1bb" has a control character; names are printable text'),
    ("h: view(kv, [1, 1], [1, 2, 3, 4, 5])", "21:27: nb has 5 numbers; there are four dimensions"),
]  # fmt: skip

IN_FILES: list[tuple[str, str]] = [
    ("a: 1", "1:1: this is not a scenario: it has no format version; it starts with `ggmltool: 1`"),
    ("ggml_tool: 1", '1:1: this is not a scenario: it has no format version; did you mean "ggml_tool"?'),
    ("[1]", "1:1: a scenario must be a map, not a list"),
    ("ggmltool: 2", "1:11: this scenario has format 2; this ggmltool reads format 1"),
    ("ggmltool: one", '1:11: ggmltool (the format version) must be an integer, not the text "one"'),
    (TOP + "grahps: {}", '2:1: a scenario has no key "grahps"; did you mean "graphs"?'),
    (TOP + "name: [a]", "2:7: name must be text, not a list"),
    (TOP + "contexts: [a]", "2:11: contexts must be a map, not a list"),
    (TOP + "contexts: {c: 5}", "2:15: an entry of contexts must be a map, not the number 5"),
    (TOP + "contexts: {c: {tensros: {}}}", '2:16: a context has no key "tensros"; did you mean "tensors"?'),
    (TOP + "contexts: {c: {buft: GPU, tensors: {}}}", '2:22: buft cannot be "GPU"; did you mean "CPU"?'),
    (TOP + "contexts: {c: {usage: weight}}", '2:23: usage cannot be "weight"; did you mean "weights"?'),
    (TOP + "contexts: {c: {tensors: {t: 'f32[1]'}}, d: {tensors: {t: 'f32[1]'}}}",
     '2:55: there is a tensor "t" already; ids are unique in a scenario'),
    (TOP + "contexts: {c: {tensors: {t: {op: add}}}}",
     "2:30: a tensor of a context has no op; nodes belong to a graph"),
    (TOP + "graphs: {g: {nodes: [x]}}", "2:21: nodes must be a map, not a list"),
    (TOP + "graphs: {g: {nodes: {t: 'f32[1]'}, expand: [u]}}", '2:45: tensor "u" does not exist'),
    (TOP + "graphs: {g: {nodes: {t: 'f32[1]'}}, h: {nodes: {u: sqr(t)}}}",
     '2:56: source "t" is a node of graph "g", not of this one'),
    (TOP + "backends: []", "2:11: there must be a backend; for example [CPU]"),
    (TOP + "backends: CPU", '2:11: backends must be a list, not the text "CPU"'),
    (TOP + "backends: [CPU, CPU]", '2:17: two backends are called "CPU"'),
    (TOP + "backends: [5]", "2:12: a backend must be a name or a map, not the number 5"),
    (TOP + "backends: [{profile: CPU}]", "2:12: a backend needs a name; {name: ..., ...}"),
    (TOP + "backends: [{name: X, profile: CUDAA}]", '2:31: profile cannot be "CUDAA"; did you mean "CUDA"?'),
    (TOP + "backends: [{name: X, alignmnet: 3}]", '2:22: a backend has no key "alignmnet"; did you mean "alignment"?'),
    (TOP + "backends: [{name: X, alignment: 48}]", "2:33: alignment must be a power of two, not 48"),
    (TOP + "backends: [{name: X, max_size: 0}]", "2:32: max_size must be at least 1 byte"),
    (TOP + "backends: [{name: X, memory: 2GX}]",
     '2:30: memory must be a size in bytes, not the text "2GX"; for example 1024, 512MiB, 24GB'),
    (TOP + "backends: [{name: X, type: npu}]", '2:28: type cannot be "npu"; did you mean "gpu"?'),
    (TOP + "backends: [{name: X, host: maybe}]", '2:28: host must be true or false, not the text "maybe"'),
    (TOP + "backends: [{name: X, buft: Y}]", '2:28: there is no buffer type "Y"; there are CPU'),
    (TOP + "backends: [{name: X, supports: {only: [adds]}}]", '2:40: "adds" is not an op; did you mean "add"?'),
    (TOP + "backends: [{name: X, supports: {only: [], except: []}}]",
     "2:32: supports takes either only or except; {only: [op, ...]}, {except: [...]}, {rules: [...]} or {csv: FILE}"),
    (TOP + "backends: [{name: X, supports_bufts: [CPU, XX]}]", '2:44: there is no buffer type "XX"; did you mean "X"?'),
    (TOP + "backends: [{name: X, offload_min_batch: -1}]", "2:41: offload_min_batch must be at least 0, not -1"),
    (TOP + "buffer_types: {R: {alignment: 32}}", "2:19: a buffer type needs a device; one of CPU"),
    (TOP + "buffer_types: {R: {device: GPU}}", '2:28: device cannot be "GPU"; did you mean "CPU"?'),
    (TOP + "buffer_types: {R: {device: CPU0}}", '2:28: device cannot be "CPU0"; did you mean "CPU"?'),
    (TOP + "buffer_types: {CPU: {device: CPU}}", '2:16: "CPU" is a backend\'s own buffer type already'),
    (TOP + "scheduler: {graph_size: 0}", "2:25: graph_size must be at least 1, not 0"),
    (TOP + "scheduler: {paralell: true}", '2:13: scheduler has no key "paralell"; did you mean "parallel"?'),
    (TOP + "graphs: {main: {nodes: {}}}\nsteps: [aloc main]", '3:9: "aloc" is not a step; did you mean "alloc"?'),
    (TOP + "graphs: {main: {nodes: {}}}\nsteps: [alloc mian]", '3:15: there is no graph "mian"; did you mean "main"?'),
    (TOP + "graphs: {main: {nodes: {}}}\nsteps: [alloc]", "3:9: alloc needs a graph; for example `alloc main`"),
    (TOP + "graphs: {main: {nodes: {}}}\nsteps: [reset main]", "3:15: reset takes no graph; write `reset`"),
    (TOP + "graphs: {main: {nodes: {}}}\nsteps: [5]",
     "3:9: a step must be text or a map, not the number 5; for example `alloc main`"),
    (TOP + "graphs: {main: {nodes: {}}}\nsteps: [{gte: [x]}]", '3:10: a step has no key "gte"; did you mean "get"?'),
    (TOP + "graphs: {main: {nodes: {xy: 'f32[1]'}}}\nsteps: [{get: [xz]}]", '3:16: there is no tensor "xz"'),
    (TOP + "graphs: {main: {nodes: {xy: 'f32[1]'}}}\nsteps: [{set: {xy: [1, 2]}}]",
     "3:20: data has 2 values; f32[1] has 1 elements"),
    (TOP + "a: [", "2:5: this is not YAML: did not find expected node content (while parsing a flow node)"),
    (TOP + "\tb: 1", "2:1: tabs cannot indent YAML; use spaces"),
    (TOP + "a: *x", '2:4: no anchor "x" comes before this alias'),
    (TOP + "a: &x [*x]", '2:8: the alias "x" is inside its own anchor'),
    (TOP + "a: !!python/object:os.system x",
     '2:4: the tag "tag:yaml.org,2002:python/object:os.system" is not allowed; a scenario needs no tags'),
    (TOP + "? [a]\n: 1", "2:3: a list or map cannot be a key"),
    (TOP + "---\n" + TOP, "2:1: a second document starts here; a file holds one scenario"),
    (TOP + "a: " + "[" * 1_000_000, "2:53: this is nested too deeply; a scenario has at most ten levels"),
    (TOP + "a: " + "{a: " * 1_000, "2:200: this is nested too deeply; a scenario has at most ten levels"),
    (TOP + "a: \0", "2:4: this is not YAML: control characters are not allowed"),
]  # fmt: skip

IN_JSON: list[tuple[str, str]] = [
    ('{"ggmltool": 1,}', "1:16: this is not JSON: expecting property name enclosed in double quotes"),
    ('{"ggmltool": 1', "1:15: this is not JSON: expecting ',' delimiter"),
    ('{"ggmltool": 1, "name": "a", "name": "b"}', '1:30: the key "name" is there twice'),
    ('{"ggmltool": 1,\n "graphs": {"g": {"nodes": {"h": "sqr(x)"}}}}', '2:39: source "x" does not exist'),
    ('{"ggmltool": 1,\n "graphs": {"g": {"nodes": {"h": "sqr(\\"x\\")"}}}}', '2:39: source "x" does not exist'),
    ('{"ggmltool": 1,\n "graphs": {"g": {"nodes": {"h": {"op": "sqr", "src": ["x"]}}}}}',
     '2:56: source "x" does not exist'),
    ('{"ggmltool": 1, "a": ' + "[" * 1_000_000, "1:221: this is nested too deeply; a scenario has at most ten levels"),
    ('{"ggmltool": 1' + "0" * 5000 + "}", "1:14: this number is too long"),
    ('{"ggmltool": 1, "graphs": {"\\ud800": {}}}',
     "1:28: a name in graphs has half a character in it (a lone surrogate)"),
]  # fmt: skip

AS_DICT: list[tuple[Callable[[], Any], str]] = [
    (lambda: {1: 2}, "[1]: a scenario has a key that is not text: the number 1"),
    (
        lambda: {"ggmltool": 1, "contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [-1]}}}}},
        "contexts.c.tensors.x.ne[0]: ne[0] must be at least 0, not -1",
    ),
    (
        lambda: {"ggmltool": 1, "contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [10**400]}}}}},
        "contexts.c.tensors.x.ne[0]: ne[0] must be at most 9223372036854775807, not a number of 1329 bits",
    ),
    (
        lambda: {"ggmltool": 1, "graphs": {"g": {"nodes": {"x": object()}}}},
        "graphs.g.nodes.x: a node must be text or a map, not a object; for example mul_mat(a, x)",
    ),
    (
        lambda: {"ggmltool": 1, "graphs": {"g": {"nodes": {"\x1b[31m": "f32[1]"}}}},
        'graphs.g.nodes."\\x1b[31m": id "\\x1b[31m" has a control character; names are printable text',
    ),
]


@pytest.mark.parametrize(("node", "message"), IN_NODES, ids=[n[:60] for n, _ in IN_NODES])
def test_a_mistake_in_a_node(node: str, message: str) -> None:
    text = BASE + textwrap.indent(node, " " * 6)
    with pytest.raises(ScenarioError) as e:
        load_text(text)
    assert str(e.value) == f"t.yaml:{message}"


@pytest.mark.parametrize(("text", "message"), IN_FILES, ids=[t[len(TOP) :][:60] for t, _ in IN_FILES])
def test_a_mistake_in_a_file(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as e:
        load_text(text)
    assert str(e.value) == f"t.yaml:{message}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ggmltool: 1\nbackends:\n\t- CPU\n", "3:1"),
        ("ggmltool: 1\n\tname: x\n", "2:1"),
        ("ggmltool: 1\nbackends:\n-\tCPU\n- CPU\n", "3:2"),
        ("name: |\n\tx\n", "2:1"),
    ],
)
def test_a_tab_that_indents_is_named(text: str, place: str) -> None:
    with pytest.raises(ScenarioError) as e:
        load_text(text)
    assert str(e.value) == f"t.yaml:{place}: tabs cannot indent YAML; use spaces"


@pytest.mark.parametrize(("text", "message"), IN_JSON, ids=[t[:60] for t, _ in IN_JSON])
def test_a_mistake_in_json(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as e:
        load_text(text, "t.json")
    assert str(e.value) == f"t.json:{message}"


@pytest.mark.parametrize(("make", "message"), AS_DICT, ids=[m[:40] for _, m in AS_DICT])
def test_a_mistake_in_a_dict_says_its_path(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ScenarioError) as e:
        load_spec(make())
    assert str(e.value) == f"<dict>: {message}"


def test_the_line_of_a_mistake_comes_with_it() -> None:
    with pytest.raises(ScenarioError) as e:
        load_text(BASE + "      h: add(x, y)\n")
    assert (e.value.line_text, e.value.place) == ("      h: add(x, y)", Place(21, 17))


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ScenarioError, match="more than 2000000 values, those behind aliases counted each time"):
        load_text("\n".join(lines))


def test_the_nearest_name_is_found_among_many_and_whatever_the_case() -> None:
    names = [f"blk.{i}.attn_q.weight" for i in range(5000)]
    assert nearest("blk.77.attn_q.weigth", names) == "blk.77.attn_q.weight"
    assert nearest("CPU", ["gpu", "cpu"]) == "cpu"
    assert nearest("xyz", ["abc"]) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("matmul", "mul_mat"),
        ("MatMul_ID", "mul_mat_id"),
        ("softmax", "soft_max"),
        ("rmsnorm", "rms_norm"),
        ("mull", "mul"),
    ],
)
def test_the_words_of_a_name_may_be_in_any_order(name: str, meant: str) -> None:
    """matmul was taken for mul."""
    ops = ["mul", "mul_mat", "mul_mat_id", "soft_max", "norm", "rms_norm", "get_rows", "set_rows", "max"]
    assert nearest(name, ops) == meant


def test_a_file_that_is_not_there_names_the_one_that_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "npu.yaml").write_text("name: NPU0")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(Mistake) as mistake:
        read_devices(["npu.yam"])
    assert mistake.value.expected == 'did you mean "npu.yaml"?'
    for read in (lambda: read_devices(["nqu.yaml"]), lambda: ggmltool.load("nqu.yaml")):
        with pytest.raises(ScenarioError, match=r'did you mean "npu.yaml"'):
            read()
    with pytest.raises(ScenarioError, match=r'did you mean "notes.txt"'), open_log("note.txt", "note.txt"):
        pass
    with pytest.raises(CaptureError, match=r'there is no such file; did you mean "npu.yaml"'):
        check_gguf(Path("npu.yml"))
    assert [spec.name for spec in read_devices(["NPU0"])] == ["NPU0"]


def test_names_are_shown_short_and_harmless() -> None:
    assert quoted('a"b\x1b\n') == '"a\\"b\\x1b\\n"'
    assert quoted("n" * 100) == f'"{"n" * 60}…"'
