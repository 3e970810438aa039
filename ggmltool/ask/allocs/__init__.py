"""`allocs`: the graph allocator's plan and how it came about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.answer import Answer
from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Exclusion, Option

if TYPE_CHECKING:
    from ggmltool.ask.allocs.record import AllocStory, AllocTable, FreeBlocks
    from ggmltool.inspect.opened import Opened


class Allocs(OfMoment["AllocTable | AllocStory | FreeBlocks"], frozen=True, kw_only=True):
    """Show where the graph allocator puts every node and its sources, and every leaf: node_allocs and leaf_allocs.

    Sources are `name buffer:offset+size_max`. Buffer -1 is ggml's mark for a view or a pre-allocated tensor. The nodes
    are the scheduler's, in its order: copies, and the dependencies before them, are among them, without a number of
    the graph.

    \b
    Example:
      ggmltool allocs graph.yaml
      ggmltool allocs --trace graph.yaml
      ggmltool allocs --free-blocks ffn_out graph.yaml
      ggmltool allocs --format gdb graph.yaml
      ggmltool allocs --after 3 graph.yaml
    """

    trace: Annotated[
        bool, Option("Show how the allocator got there, line by line, with the free blocks at each point.")
    ] = False
    free_blocks: Annotated[
        str | None,
        Option(
            "Draw what is where, and what is free, right after this node was allocated.", "NODE", complete="tensors"
        ),
    ] = None

    formats = ("text", "gdb", "json", "csv")
    formats_help = "Text (default), the structs as gdb prints them, or JSON or CSV with exact bytes."
    exclusions = (Exclusion("trace", ("free_blocks",)),)
    raises = "InspectError if the allocator never came to the node."

    def ask(self, opened: Opened) -> Answer[AllocTable | AllocStory | FreeBlocks]:
        """The plan, the story of it, or what lies where at a node."""
        from ggmltool.ask.allocs.record import AllocStory, AllocTable, FreeBlocks
        from ggmltool.inspect.allocator import watch_allocator

        found = watch_allocator(self.of(opened), self.moment, self.free_blocks)
        if self.free_blocks is not None:
            record = FreeBlocks.of(found, self.free_blocks)
            return answer(found.at, record, f"{found.heading} at {self.free_blocks}")
        if self.trace:
            return answer(found.at, AllocStory.of(found), found.heading)
        return answer(found.at, AllocTable.of(found), found.heading)
