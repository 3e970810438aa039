"""The graph as graphviz's dot: in ggml's own format, or with a cluster per split and the copies between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.ggml.tensor import FLAG_PARAM
from ggmltool.inspect.copied import bytes_of
from ggmltool.scenario.tensor_info import TensorInfo, Tensors
from ggmltool.show.colors import NO_BACKEND, Color, colors
from ggmltool.show.text import dims, printable

LARGE = 200
"""Nodes beyond which a picture is laid out more simply: with all its care Graphviz takes minutes for a real model."""

LARGE_LAYOUT = "splines=line; nslimit=1; mclimit=0.2;"


def escaped(text: str, record: bool = False) -> str:
    """A name inside a quoted label, where Graphviz reads entities too; in a label of shape `record` also its own
    special characters."""
    out = printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    if record:
        for special in "{}|<>":
            out = out.replace(special, "\\" + special)
    return out


def ggml_dot(
    nodes: Sequence[TensorInfo], leafs: Sequence[TensorInfo], tensors: Tensors, part: frozenset[str] | None = None
) -> str:
    """What ggml_graph_dump_dot(graph, NULL, file) writes for a graph as it was built, before it is scheduled.

    `part` leaves out all but these tensors. Addresses are simulated.
    Characters that would break the file are escaped in names, which ggml does not do.
    """
    lines = ["digraph G {", "  newrank = true;", "  rankdir = TB;"]
    for i, info in _of(nodes, part):
        color = "yellow" if info.flags & FLAG_PARAM else "white"
        shape = _shape(info, 2 if info.ne[2:] == (1, 1) else 3)
        lines.append(_ggml_node(info, color, f"{_title(info)}|{i} {shape} | <x>{info.symbol}"))
    for i, info in _of(leafs, part):
        label = f"<x>{_title(info)}|CONST {i} {_shape(info, 2)}"
        n = info.ne[0] * info.ne[1] * info.ne[2] * info.ne[3]
        if n < 5 and info.has_data:
            label += f" | ({', '.join('#' * n)})"
        lines.append(_ggml_node(info, "pink", label))
    for infos, attributes in ((nodes, "arrowhead = vee; style = solid; "), (leafs, "")):
        for _, info in _of(infos, part):
            lines += [
                f'  "{_pointer(tensors[src])}" -> "{_pointer(info)}" [ {attributes}label = "src {j}"; ]'
                for j, src in enumerate(info.src)
                if src is not None and (part is None or src in part)
            ]
    lines.append("}\n")
    return "\n".join(lines)


def _of(infos: Sequence[TensorInfo], part: frozenset[str] | None) -> list[tuple[int, TensorInfo]]:
    """The tensors to be drawn, with their places in the graph."""
    return [(i, info) for i, info in enumerate(infos) if part is None or info.id in part]


def simpler_layout(text: str, n_nodes: int) -> str:
    """The text to be drawn, with the simple layout asked for where the graph is large."""
    return text.replace("{\n", f"{{\n  {LARGE_LAYOUT}\n", 1) if n_nodes > LARGE else text


def _ggml_node(info: TensorInfo, color: str, label: str) -> str:
    return f'  "{_pointer(info)}" [ style = filled; fillcolor = {color}; shape = record; label="{label}"; ]'


def _pointer(info: TensorInfo) -> str:
    return f"{info.address:#x}"


def _title(info: TensorInfo) -> str:
    return f"{escaped(info.name, record=True)} ({info.type})" if info.name else f"({info.type})"


def _shape(info: TensorInfo, n: int) -> str:
    return f"[{', '.join(str(n) for n in info.ne[:n])}]"


def split_dot(plan: Plan, tensors: Tensors, title: str, part: frozenset[str] | None = None) -> str:
    """A cluster per split in its backend's color, leafs around them, copies as dashed edges with their bytes.

    `part` leaves out all but these tensors.
    """
    drawing = _SplitDrawing(plan, tensors, part)
    lines = [
        "digraph ggml {",
        f'  label="{escaped(title)}"; labelloc=t; fontname="Helvetica"; fontsize=18;',
        f"  rankdir=TB; ranksep=0.35; nodesep=0.25; {LARGE_LAYOUT if len(plan.nodes) > LARGE else 'newrank=true;'}",
        '  node [fontname="Helvetica", fontsize=11, shape=box, style="filled,rounded", margin="0.12,0.06"];',
        '  edge [fontname="Helvetica", fontsize=9, color="#555555", arrowsize=0.6];',
        *(f"  {line}" for line in drawing.leafs()),
        *(f"  {line}" for split in plan.splits for line in drawing.cluster(split)),
        *(f"  {line}" for line in drawing.copy_edges()),
        *(f"  {line}" for line in drawing.edges()),
        "}\n",
    ]
    return "\n".join(lines)


class _SplitDrawing:
    """The parts of a drawing. Its nodes have short names of their own, since those of tensors could hold anything.

    A copy goes by the tensor it is of and its backend: its name is not unique where tensors share theirs.
    """

    def __init__(self, plan: Plan, tensors: Tensors, part: frozenset[str] | None = None) -> None:
        self.plan = plan
        self.tensors = tensors
        self.colors = colors(name for name, _ in plan.backends)
        self.names = {node.id: f"n{at}" for at, node in enumerate(plan.nodes)}
        self.names |= {leaf.id: f"l{leaf.index}" for leaf in plan.leafs}
        inputs = [(of, split.backend) for split in plan.splits for of in split.inputs]
        if part is not None:
            self.names = {id: name for id, name in self.names.items() if id in part}
            used = {
                (src, plan.splits[n.split].backend) for n in plan.nodes if n.id in part for src in tensors[n.id].src
            }
            inputs = [(of, backend) for of, backend in inputs if of in part and (of, backend) in used]
        self.copies = {key: f"c{i}" for i, key in enumerate(inputs)}

    def leafs(self) -> Iterator[str]:
        for leaf in self.plan.leafs:
            if leaf.id not in self.names:
                continue
            color = self.colors.get(leaf.backend or "", NO_BACKEND)
            info, where = self.tensors[leaf.id], leaf.buffer or ""
            if leaf.buffer and leaf.usage not in (None, "any"):
                where = f"{leaf.buffer}, {leaf.usage}"
            # ggml_build_forward_expand gives one without a name `leaf_<index>`.
            shape = f"{info.type} {dims(info.ne)}" if info.type else bytes_of([info])
            label = label_of(info.name or f"leaf_{leaf.index}", shape, where)
            look = f'shape=box, style="filled", fillcolor="#ffffff", color="{color.ink}", fontsize=10'
            yield f'{self.names[leaf.id]} [label="{label}", {look}];'

    def cluster(self, split: SplitPlan) -> Iterator[str]:
        color = self.colors.get(split.backend, NO_BACKEND)
        nodes = [node for node in self.plan.nodes[split.i_start : split.i_end] if node.id in self.names]
        copied = [of for of in split.inputs if (of, split.backend) in self.copies]
        if not nodes and not copied:
            return
        yield f"subgraph cluster_{split.id} {{"
        yield f'  label=""; style="rounded"; color="{color.ink}"; penwidth=1.6;'
        first = self.names[nodes[0].id] if nodes else self.copies[copied[0], split.backend]
        look = f'fontsize=13, fontcolor="{color.ink}"'
        yield f"  {title_node(f't{split.id}', f'split #{split.id} · {split.backend}', look, first)}"
        dashed = f'shape=box, style="filled,dashed", fillcolor="#ffffff", color="{color.ink}", fontsize=10'
        for of in copied:
            yield f'  {self.copies[of, split.backend]} [label="{label_of("copy of", of)}", {dashed}];'
        for node in nodes:
            yield f"  {self.names[node.id]} [{_node_attributes(node, self.tensors[node.id], self.colors)}];"
        yield "}"

    def copy_edges(self) -> Iterator[str]:
        for (of, backend), name in self.copies.items():
            ink = self.colors[backend].ink
            label = f'label=" {bytes_of([self.tensors[of]])}"' if of in self.tensors else ""
            if of in self.names:
                style = f'style=dashed, penwidth=1.6, color="{ink}", fontcolor="{ink}"'
                yield f"{self.names[of]} -> {name} [{style}, {label}];"

    def edges(self) -> Iterator[str]:
        """From each node's sources as written, or from their copies where the scheduler put one in their place."""
        for leaf in self.plan.leafs:
            viewed = self.tensors[leaf.id].view_src
            if leaf.id in self.names and viewed in self.names:
                yield f"{self.names[viewed]} -> {self.names[leaf.id]} [style=dotted];"
        for node in self.plan.nodes:
            if node.id not in self.names:
                continue
            backend = self.plan.splits[node.split].backend
            for written, src in zip(self.tensors[node.id].src, node.src, strict=False):
                if written is None or written == node.id:
                    continue
                copy = self.copies.get((written, backend)) if src != written else None
                if copy is not None or written in self.names:
                    yield f"{copy or self.names[written]} -> {self.names[node.id]};"


def title_node(name: str, title: str, look: str, first: str) -> str:
    """The title of a cluster as a node above its first one: edges go around nodes, but across labels of clusters."""
    node = f'{name} [label="{escaped(title)}", shape=plaintext, style="", margin="0,0", {look}];'
    return f"{node} {name} -> {first} [style=invis, weight=30];"


def label_of(*lines: str) -> str:
    """Lines inside a quoted label."""
    return "\\n".join(escaped(line) for line in lines if line)


def _node_attributes(node: NodePlan, info: TensorInfo, inks: dict[str, Color]) -> str:
    color = inks.get(node.backend or "", NO_BACKEND)
    label = label_of(node.name, info.op, f"{node.type} {dims(node.ne)}" if node.type else bytes_of([info]))
    tooltip = f"node {node.index}: {node.backend or 'no backend'}{f', {node.cause}' if node.cause else ''}"
    small = info.view_src is not None and node.op in ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE")
    fill = "#ffffff" if small else color.fill
    line = "dotted" if small else "solid"
    return (
        f'label="{label}", style="filled,rounded,{line}", fillcolor="{fill}", color="{color.ink}", '
        f'tooltip="{escaped(tooltip)}"'
    )
