"""The assignments exactly as the ggml of January 2024 prints them after each pass of its scheduler."""

from __future__ import annotations

from ggmltool.ggml.sched.debug import DebugSplit, PassPrint
from ggmltool.views.plan.sched_debug import cut, fmt_size, node_line


def pass_print(printed: PassPrint, level: int = 2, causes: bool = True, title: bool = True) -> str:
    """sched_print_assignments after its title line; level 1 leaves the nodes out.

    ggml compiles the causes out unless one changes its source: `causes=False` gives the usual text.
    """
    parts = [f"PASS {printed.number} ASSIGNMENTS\n"] if title else []
    for split in printed.splits:
        parts.append(_header(split))
        if level > 1:
            parts += [node_line(node, causes, False) for node in split.nodes]
    if level > 1:
        parts += [node_line(node, causes, False) for node in printed.nodes]
    return "".join(parts)


def _header(split: DebugSplit) -> str:
    return (
        f"\n## SPLIT #{split.id}: {split.backend} # {len(split.inputs)} inputs: "
        + "".join(f"[{name} ({cut(fmt_size(nbytes), 5)})] " for name, nbytes in split.inputs)
        + "\n"
    )
