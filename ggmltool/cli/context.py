"""`ggmltool context`: what lies where in the arenas of the contexts."""

from __future__ import annotations

import click

from ggmltool.cli.complete import complete_contexts
from ggmltool.cli.moment import Look, moment_command
from ggmltool.cli.options import DOCUMENTS
from ggmltool.inspect.contexts import contexts_at
from ggmltool.views.memory.objects import contexts_view, print_objects


@moment_command("table", "ggml", *DOCUMENTS, help="A table (default), the text of ggml_print_objects, JSON or CSV.")
@click.option(
    "--only",
    metavar="CONTEXT",
    shell_complete=complete_contexts,
    help="Show only this context (default: all).",
)
def context(look: Look, only: str | None) -> int:
    """Show the object map of each context: offset, size, type and tensor, and the layout of the cgraph.

    After the contexts of the file come `graph NAME`, with the nodes and the cgraph, and `scheduler`, with its copies
    and dependencies. Addresses are simulated; offsets and sizes are ggml's.

    \b
    Example:
      ggmltool context graph.yaml
      ggmltool context --only inputs --format ggml graph.yaml
    """
    watched = look.watch()
    contexts, facts = contexts_at(watched, only)
    if look.json:
        from ggmltool.views.memory.documents import ContextDocument

        return look.answer(watched, ContextDocument.of(watched.plan, contexts, facts))
    if look.format == "ggml":
        return look.answer(watched, "".join(map(print_objects, contexts)))
    return look.answer(watched, contexts_view(contexts, facts, watched.title, watched.heading, look.style))
