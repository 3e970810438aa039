"""A whole model as a picture: repeated layers once, a cluster per split, copies as dashed edges with their bytes."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

from ggmltool.ask.dot.splits import LARGE_LAYOUT, escaped, label_of, title_node
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.fold import Fold, Folded, Item, fold_plan, layers, masked, unfolded
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import NO_BACKEND, colors
from ggmltool.show.text import count, dims, printable, shortened, size

_LARGE = 400
"""Drawn nodes beyond which the layout is simpler: Graphviz takes minutes for twice as many."""

_TOLD = 'style=dotted, penwidth=1.4, color="#222222"'
_BETWEEN = "weight=40, minlen=2"
"""Edges between sections leave room for the small boxes above the first node, else sections stand side by side."""

_FOLD = 'style="rounded,filled"; fillcolor="#f5f5f5"; color="#888888"; penwidth=2.5;'
_VIEWS = ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE")


def fold_dot(plan: Plan, tensors: Tensors, title: str) -> str:
    """The plan as Graphviz's text, its repeated layers folded."""
    drawing = _FoldDrawing(plan, tensors, fold_plan(plan, tensors))
    plain = [section for section in sorted(set(drawing.section.values())) if section % 2 == 0]
    layout = LARGE_LAYOUT if drawing.drawn > _LARGE else "newrank=true;"
    lines = [
        "digraph ggml {",
        f'  label="{escaped(title)}\\n{plan_summary(plan, tensors)}\\n "; labelloc=t; fontname="Helvetica";',
        f"  fontsize=16; rankdir=TB; ranksep=0.22; nodesep=0.15; {layout}",
        '  node [fontname="Helvetica", fontsize=10, shape=box, style="filled,rounded"];',
        '  node [margin="0.09,0.04", height=0.2];',
        '  edge [fontname="Helvetica", fontsize=8, color="#666666", arrowsize=0.5];',
        *(f"  {line}" for line in drawing.legend()),
        *(f"  {line}" for section in plain for line in drawing.small_boxes(section)),
        *(f"  {line}" for line in drawing.parts(drawing.folded.items)),
        *(f"  {line}" for line in drawing.edges()),
        "}\n",
    ]
    return "\n".join(lines)


def plan_summary(plan: Plan, tensors: Tensors) -> str:
    """What the whole graph holds, on one line."""
    nbytes = sum(tensors[of].nbytes for split in plan.splits for of in split.inputs)
    copied = sum(len(split.inputs) for split in plan.splits)
    parts = [
        count(len(plan.nodes), "node"),
        count(len(plan.leafs), "leaf"),
        count(len(plan.splits), "split"),
        f"{count(copied, 'input')} copied, {size(nbytes)}" if copied else "nothing copied",
    ]
    return " · ".join(parts)


class _FoldDrawing:
    """The lines of the drawing.

    To keep edges short, leafs and shared copies have a box in each section that reads them. A section is a fold, or
    what is between two folds.
    """

    def __init__(self, plan: Plan, tensors: Tensors, folded: Folded) -> None:
        self.plan = plan
        self.tensors = tensors
        self.folded = folded
        self.colors = colors(name for name, _ in plan.backends)
        self.place = {node.id: node.index for node in plan.nodes}
        self.leaf = {leaf.id: leaf for leaf in plan.leafs}
        self.clusters = 0
        self.section = _sections(folded.items)
        self.copied = {key: (folded.key_of[of], backend) for (of, backend), key in folded.copies.items()}
        self.readers: dict[str, list[str]] = {}
        for start, end in folded.edges:
            self.readers.setdefault(start, []).append(end)
        self.boxes: dict[int, list[str]] = {}
        self.made: dict[str, int] = {}
        self.drawn = len(self.section)
        self.told = self._told()
        self._place_boxes()

    def _place_boxes(self) -> None:
        """Find where each copy is made, and which boxes each section gets besides its nodes."""
        placed: set[tuple[str, int]] = set()

        def place(key: str, section: int) -> None:
            if (key, section) not in placed:
                placed.add((key, section))
                self.boxes.setdefault(section, []).append(key)

        for key in dict.fromkeys(self.folded.copies.values()):
            readers = self.readers.get(key)
            if not readers:
                continue
            self.made[key] = self.section[readers[0]]
            source, _ = self.copied[key]
            if source.startswith("l"):
                place(source, self.made[key])
            if len(readers) > 1:
                for reader in readers:
                    place(key, self.section[reader])
        for start, end in self.folded.edges:
            if start.startswith("l"):
                place(start, self.section[end])

    def _told(self) -> dict[tuple[str, str], str]:
        """Edges told in words beside their reader, since their line would cross the picture.

        Those from one repetition to the next, and all but the first of a node into another section.
        """
        told = {}
        entered: set[tuple[str, int]] = set()
        for start, end in self.folded.edges:
            if not start.startswith("n"):
                continue
            ids, section = self.folded.members[start], self.section[end]
            if int(start[1:]) >= int(end[1:]):
                told[start, end] = f"before: {self._one_name(ids)}"
            elif (start, section) in entered:
                told[start, end] = f"{'first: ' if len(self.folded.members[end]) > 1 else ''}{self._one_name(ids[-1:])}"
            elif self.section[start] != section:
                entered.add((start, section))
        return told

    def legend(self) -> Iterator[str]:
        rows = [
            f'<tr><td bgcolor="{c.fill}" color="{c.ink}" border="1" width="20"></td>'
            f'<td align="left">{html.escape(printable(name))}</td></tr>'
            for name, c in self.colors.items()
        ]
        signs = [("□", "weights, inputs, views", True)]
        signs.append(("- - -", "copied between devices", bool(self.made)))
        signs.append(("· · ·", "from afar: a node before, the repetition before", bool(self.told)))
        rows += [f'<tr><td>{sign}</td><td align="left">{text}</td></tr>' for sign, text, there in signs if there]
        table = f'<table border="0" cellborder="0" cellspacing="2" cellpadding="1">{"".join(rows)}</table>'
        yield f'legend [shape=box, style="rounded", color="#bbbbbb", fontsize=9, label=<{table}>];'

    def parts(self, items: Sequence[Item], within: int | None = None) -> Iterator[str]:
        """Nodes and folds in order, in clusters by split; `within`: the split whose cluster is open around them."""
        open_split = None
        for item in items:
            split = self._only_split(item)
            if split != open_split or split is None:
                if open_split is not None:
                    yield "}"
                open_split = None
                if split is not None and split != within:
                    yield from self._split_cluster(item if isinstance(item, int) else item.start)
                    open_split = split
            if isinstance(item, int):
                yield self._node(item)
            else:
                yield from self._fold_cluster(item, split)
        if open_split is not None:
            yield "}"

    def _only_split(self, item: Item) -> int | None:
        """The split that a node is in; of a fold, the one that all its nodes are in."""
        if isinstance(item, int):
            return self.plan.nodes[item].split
        first = self.plan.nodes[item.start].split
        return first if self.plan.splits[first].i_end >= item.end else None

    def _split_cluster(self, first: int) -> Iterator[str]:
        ids = [self.plan.nodes[self.place[id]].split for id in self.folded.members[f"n{first}"]]
        backend = self.plan.splits[ids[0]].backend
        ink = self.colors[backend].ink
        label = f"{'split' if len(set(ids)) == 1 else 'splits'} {split_numbers(ids)} · {backend}"
        look = f'fontsize=11, fontcolor="{ink}"'
        yield from self._cluster(label, f'style="rounded"; color="{ink}"; penwidth=1.4;', look, first)

    def _cluster(self, title: str, attributes: str, look: str, first: int) -> Iterator[str]:
        self.clusters += 1
        yield f"subgraph cluster_{self.clusters} {{"
        yield f'  label=""; {attributes}'
        yield f"  {title_node(f't{self.clusters}', title, look, f'n{first}')}"

    def _fold_cluster(self, run: Fold, split: int | None) -> Iterator[str]:
        nodes = self.plan.nodes[run.start : run.end]
        used = {src for node in nodes for src in self.tensors[node.id].src if src is not None and src in self.leaf}
        weights = [id for id in used if self.leaf[id].usage == "weights"]
        nbytes = sum(self.tensors[id].nbytes for id in weights)
        facts = [
            f"× {run.times}",
            layers(self.tensors[id].name for id in weights) or layers(node.name for node in nodes),
            count(len(nodes), "node"),
            f"{size(nbytes)} of weights" if nbytes else "",
        ]
        look = 'fontsize=15, fontcolor="#222222"'
        yield from self._cluster(" · ".join(fact for fact in facts if fact), _FOLD, look, run.start)
        yield from self.small_boxes(self.section[f"n{run.start}"]) if run in self.folded.items else ()
        yield from self.parts(run.body, split)
        yield "}"

    def _node(self, index: int) -> str:
        ids = self.folded.members[f"n{index}"]
        names = [self._name(id) for id in ids]
        node, info = self.plan.nodes[index], self.tensors[ids[0]]
        color = self.colors.get(node.backend or "", NO_BACKEND)
        tooltip = escaped(shortened(names, 4) + (f": {node.cause}" if node.cause else ""))
        if node.op in _VIEWS and info.view_src is not None:
            label, look = label_of(f"{info.op} {dims(node.ne)}"), 'fillcolor="#ffffff", fontsize=8, height=0.15'
        else:
            label = label_of(masked(names) if self._named(ids) else "", f"{info.op} {node.type} {dims(node.ne)}")
            look = f'fillcolor="{color.fill}"'
        return f'n{index} [label="{label}", {look}, color="{color.ink}", tooltip="{tooltip}"];'

    def small_boxes(self, section: int) -> Iterator[str]:
        """Leafs and copies that a section reads, and nodes whose edges are told in words."""
        for (start, end), words in self.told.items():
            if self.section[end] == section:
                yield f'{start}_{end} [label="{label_of(words)}", shape=plaintext, style="", fontsize=9];'
        for key in self.boxes.get(section, ()):
            ids = self.folded.members[key]
            if key.startswith("l"):
                ink = self.colors.get(self.leaf[ids[0]].backend or "", NO_BACKEND).ink
                yield f'{key}_{section} [{self._small(ids)}, style="filled", color="{ink}"];'
            else:
                ink = self.colors[self.copied[key][1]].ink
                yield f'{key}_{section} [{self._small(ids, "copy of ")}, style="filled,dashed", color="{ink}"];'

    def _small(self, ids: Sequence[str], word: str = "") -> str:
        """The attributes of a small box for leafs or copies: names, types, bytes."""
        infos = [self.tensors[id] for id in ids]
        names = [self._name(id) for id in ids]
        name = masked(names) or shortened(names, 2)
        types = ", ".join(dict.fromkeys(info.type for info in infos))
        label = label_of(f"{word}{name}", f"{types} {dims(infos[0].ne)} · {self._bytes(ids)}")
        return f'label="{label}", fillcolor="#ffffff", fontsize=8, margin="0.05,0.02", height=0.15'

    def _name(self, id: str) -> str:
        """ggml's name for a tensor; the graph gives a leaf without one `leaf_<index>`."""
        if id in self.place:
            return self.plan.nodes[self.place[id]].name
        return self.tensors[id].name or f"leaf_{self.leaf[id].index}"

    def _named(self, ids: Sequence[str]) -> bool:
        """Whether these nodes have names of their own, other than `node_<index>`."""
        return all(self._name(id) != f"node_{self.place[id]}" for id in ids)

    def _one_name(self, ids: Sequence[str]) -> str:
        """What to call nodes that are drawn as one: by their names, else by the op of the last."""
        if not self._named(ids):
            return (
                f"{self.tensors[ids[-1]].op}, node {self.place[ids[-1]]}" if len(ids) == 1 else self.tensors[ids[0]].op
            )
        return masked([self._name(id) for id in ids]) or self._name(ids[0])

    def _bytes(self, ids: Sequence[str]) -> str:
        each = [self.tensors[id].nbytes for id in ids]
        if len(each) == 1:
            return size(each[0])
        return f"{len(each)} × {size(each[0])}" if len(set(each)) == 1 else f"{size(sum(each))} in {len(each)}"

    def edges(self) -> Iterator[str]:
        for key, section in self.made.items():
            if len(self.readers[key]) > 1:
                yield self._copy_edge(key, f"{key}_{section}", section)
        for (start, end), n in self.folded.edges.items():
            section = self.section[end]
            total = len(self.folded.members[end])
            if start.startswith("n"):
                if (start, end) in self.told:
                    yield f"{start}_{end} -> {end} [{_TOLD}];"
                else:
                    yield f"{start} -> {end} [{'weight=4' if self.section[start] == section else _BETWEEN}];"
            elif start.startswith("c") and len(self.readers[start]) == 1:
                yield self._copy_edge(start, end, section)
            else:
                part = f' [label=" {n} of {total}"]' if n < total else ""
                yield f"{start}_{section} -> {end}{part};"

    def _copy_edge(self, key: str, end: str, section: int) -> str:
        source, backend = self.copied[key]
        ink = self.colors[backend].ink
        start = f"{source}_{section}" if source.startswith("l") else source
        look = f'style=dashed, penwidth=1.6, color="{ink}", fontcolor="{ink}"'
        return f'{start} -> {end} [{look}, label=" {escaped(self._bytes(self.folded.members[key]))}"];'


def _sections(items: Sequence[Item]) -> dict[str, int]:
    """The section of every drawn node, by key."""
    out: dict[str, int] = {}
    section = 0
    for item in items:
        if isinstance(item, int):
            out[f"n{item}"] = section
        else:
            out |= {f"n{i}": section + 1 for i, _ in unfolded([item])}
            section += 2
    return out


def split_numbers(splits: Iterable[int]) -> str:
    """Which splits a part stands for: `#4`, `#3 and #18`, `#3, #18 … #138`."""
    ids = list(dict.fromkeys(splits))
    if len(ids) < 3:
        return " and ".join(f"#{id}" for id in ids)
    return f"#{ids[0]}, #{ids[1]} … #{ids[-1]}"
