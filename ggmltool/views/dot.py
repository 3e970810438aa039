"""The graph as graphviz's dot: in ggml's own format, or with a cluster per split and the copies between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan
from ggmltool.ggml.tensor import FLAG_PARAM
from ggmltool.views.palette import Color, colors
from ggmltool.views.tensors import TensorInfo, Tensors
from ggmltool.views.text import dims, printable, size

_NO_BACKEND = Color("#808080", "#eeeeee", "")


def escaped(text: str, record: bool = False) -> str:
    """A name inside a quoted label; in a label of shape `record` also its own special characters."""
    out = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    if record:
        for special in "{}|<>":
            out = out.replace(special, "\\" + special)
    return out


def ggml_dot(nodes: Sequence[TensorInfo], leafs: Sequence[TensorInfo], tensors: Tensors) -> str:
    """What ggml_graph_dump_dot(graph, NULL, file) writes for a graph as it was built, before it is scheduled.

    Addresses are simulated. Characters that would break the file are escaped in names, which ggml does not do.
    """
    lines = ["digraph G {", "  newrank = true;", "  rankdir = TB;"]
    for i, info in enumerate(nodes):
        color = "yellow" if info.flags & FLAG_PARAM else "white"
        shape = _shape(info, 2 if info.ne[2:] == (1, 1) else 3)
        lines.append(_ggml_node(info, color, f"{_title(info)}|{i} {shape} | <x>{info.symbol}"))
    for i, info in enumerate(leafs):
        label = f"<x>{_title(info)}|CONST {i} {_shape(info, 2)}"
        n = info.ne[0] * info.ne[1] * info.ne[2] * info.ne[3]
        if n < 5 and info.has_data:
            label += f" | ({', '.join('#' * n)})"
        lines.append(_ggml_node(info, "pink", label))
    for infos, attributes in ((nodes, "arrowhead = vee; style = solid; "), (leafs, "")):
        for info in infos:
            lines += [
                f'  "{_pointer(tensors[src])}" -> "{_pointer(info)}" [ {attributes}label = "src {j}"; ]'
                for j, src in enumerate(info.src)
                if src is not None
            ]
    lines.append("}\n")
    return "\n".join(lines)


def _ggml_node(info: TensorInfo, color: str, label: str) -> str:
    return f'  "{_pointer(info)}" [ style = filled; fillcolor = {color}; shape = record; label="{label}"; ]'


def _pointer(info: TensorInfo) -> str:
    return f"{info.address:#x}"


def _title(info: TensorInfo) -> str:
    return f"{escaped(info.name, record=True)} ({info.type})" if info.name else f"({info.type})"


def _shape(info: TensorInfo, n: int) -> str:
    return f"[{', '.join(str(n) for n in info.ne[:n])}]"


def _leaf_name(leaf: LeafPlan, info: TensorInfo) -> str:
    """A leaf's name; ggml_build_forward_expand gives one without a name `leaf_<index>`."""
    return info.name or f"leaf_{leaf.index}"


def split_dot(plan: Plan, tensors: Tensors, title: str) -> str:
    """A cluster per split in its backend's colour, leafs around them, copies as dashed edges with their bytes."""
    inks = colors(name for name, _ in plan.backends)
    lines = [
        "digraph ggml {",
        f'  label="{escaped(title)}"; labelloc=t; fontname="Helvetica"; fontsize=18;',
        "  rankdir=TB; newrank=true; ranksep=0.35; nodesep=0.25;",
        '  node [fontname="Helvetica", fontsize=11, shape=box, style="filled,rounded", margin="0.12,0.06"];',
        '  edge [fontname="Helvetica", fontsize=9, color="#555555", arrowsize=0.6];',
    ]
    names = _Names(plan)
    lines += [
        "  " + _leaf(leaf, tensors[leaf.id], names, inks.get(leaf.backend or "", _NO_BACKEND)) for leaf in plan.leafs
    ]
    made: set[str] = set()
    for split in plan.splits:
        color = inks[split.backend]
        lines += [
            f"  subgraph cluster_{split.id} {{",
            f'    label="split #{split.id} · {escaped(split.backend)}"; fontcolor="{color.ink}"; fontsize=13;',
            f'    labeljust=l; style="rounded"; color="{color.ink}"; penwidth=1.6;',
        ]
        for copy in _copies_made(plan, split.inputs, split.backend):
            made.add(copy.name)
            lines.append(f"    {names[copy.name]} [{_copy_attributes(copy, color)}];")
        lines += [
            f"    {names[node.id]} [{_node_attributes(node, tensors[node.id], inks)}];"
            for node in plan.nodes[split.i_start : split.i_end]
        ]
        lines.append("  }")
    lines += [f"  {edge}" for edge in _edges(plan, tensors, names, made, inks)]
    lines.append("}\n")
    return "\n".join(lines)


class _Names:
    """Short names for dot's nodes: the tensors' own could hold anything."""

    def __init__(self, plan: Plan) -> None:
        self._names: dict[str, str] = {}
        for prefix, ids in (
            ("n", [node.id for node in plan.nodes]),
            ("l", [leaf.id for leaf in plan.leafs]),
            ("c", [copy.name for copy in plan.copies]),
        ):
            for i, id in enumerate(ids):
                self._names.setdefault(id, f"{prefix}{i}")

    def __getitem__(self, id: str) -> str:
        return self._names[id]

    def __contains__(self, id: str) -> bool:
        return id in self._names


def _copies_made(plan: Plan, inputs: tuple[str, ...], backend: str) -> Iterator[CopyPlan]:
    """The copies that this split's inputs are copied to (one per input in use, also with pipeline copies)."""
    used = {src for node in plan.nodes for src in node.src}
    for copy in plan.copies:
        if copy.backend == backend and copy.of in inputs and copy.name in used:
            yield copy


def _label(*lines: str) -> str:
    return "\\n".join(escaped(line) for line in lines if line)


def _leaf(leaf: LeafPlan, info: TensorInfo, names: _Names, color: Color) -> str:
    where = f"{leaf.buffer}, {leaf.usage}" if leaf.buffer and leaf.usage not in (None, "any") else leaf.buffer or ""
    label = _label(_leaf_name(leaf, info), f"{info.type} {dims(info.ne)}", where)
    return (
        f'{names[leaf.id]} [label="{label}", shape=box, style="filled", fillcolor="#ffffff", color="{color.ink}", '
        f"fontsize=10];"
    )


def _copy_attributes(copy: CopyPlan, color: Color) -> str:
    return (
        f'label="{_label("copy of", copy.of)}", shape=box, style="filled,dashed", fillcolor="#ffffff", '
        f'color="{color.ink}", fontsize=10, tooltip="{escaped(copy.name)}"'
    )


def _node_attributes(node: NodePlan, info: TensorInfo, inks: dict[str, Color]) -> str:
    color = inks.get(node.backend or "", _NO_BACKEND)
    label = _label(node.name, node.op, f"{node.type} {dims(node.ne)}")
    tooltip = f"node {node.index}: {node.backend or 'no backend'}{f', {node.cause}' if node.cause else ''}"
    small = info.view_src is not None and node.op in ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE")
    fill = "#ffffff" if small else color.fill
    line = "dotted" if small else "solid"
    return (
        f'label="{label}", style="filled,rounded,{line}", fillcolor="{fill}", color="{color.ink}", '
        f'tooltip="{escaped(tooltip)}"'
    )


def _edges(plan: Plan, tensors: Tensors, names: _Names, made: set[str], inks: dict[str, Color]) -> Iterator[str]:
    for copy in plan.copies:
        if copy.name in made and copy.of in names:
            ink = inks[copy.backend].ink
            yield (
                f'{names[copy.of]} -> {names[copy.name]} [style=dashed, penwidth=1.6, color="{ink}", '
                f'fontcolor="{ink}", label=" {size(tensors[copy.of].nbytes)}"];'
            )
    for node in plan.nodes:
        written = tensors[node.id].src
        for j, src in enumerate(node.src):
            if src is not None and src not in made and src not in tensors:
                src = written[j]
            if src is not None and src in names and src != node.id:
                yield f"{names[src]} -> {names[node.id]};"
