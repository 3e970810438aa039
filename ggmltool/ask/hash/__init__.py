"""`hash`: the hash tables of allocator and scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Exclusion, Option

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.hash.record import HashTable, SchedTable
    from ggmltool.inspect.opened import Opened


class Hash(OfMoment["HashTable | SchedTable"], frozen=True, kw_only=True):
    """Show the allocator's hash-node table: slot, uses left, views left, and the planned place of every tensor.

    Slots follow from simulated addresses of the tensors. A pre-allocated tensor or a view stays at offset 0 of buffer 0
    and is never `allocated`; neither is a tensor that was freed or taken over in place.

    \b
    Example:
      ggmltool hash graph.yaml
      ggmltool hash --at ffn_out graph.yaml
      ggmltool hash --before ffn_out --format gdb graph.yaml
      ggmltool hash --after 3 graph.yaml
    """

    at: Annotated[
        str | None,
        Option("Show the table right after this node was allocated (default: at the end).", "NODE", complete="tensors"),
    ] = None
    before: Annotated[
        str | None, Option("Show the table right before this node was allocated.", "NODE", complete="tensors")
    ] = None
    sched: Annotated[bool, Option("Show the scheduler's table: backend, cause and copies of every tensor.")] = False

    formats = ("text", "gdb", "json", "csv")
    formats_help = "Text (default), the structs as gdb prints them, or JSON or CSV with exact bytes."
    exclusions = (
        Exclusion("at", ("before",)),
        Exclusion("at", ("sched",), "{} is for the allocator's table, not for {}."),
        Exclusion("before", ("sched",), "{} is for the allocator's table, not for {}."),
    )
    raises = "InspectError if the allocator never came to the node."

    def ask(self, opened: Opened) -> Answer[HashTable | SchedTable]:
        """The table that is asked for, at the moment."""
        opened = self.of(opened)
        if self.sched:
            from ggmltool.ask.hash.record import sched_table
            from ggmltool.inspect.watched import watch

            watched = watch(opened, self.moment)
            return answer(watched, sched_table(watched))
        from ggmltool.ask.hash.record import hash_table
        from ggmltool.inspect.allocator import watch_allocator

        found = watch_allocator(opened, self.moment, self.before or self.at, self.before is not None)
        then = f" when {self.at} was allocated" if self.at is not None else ""
        then = f" before {self.before}" if self.before is not None else then
        return answer(found.at, hash_table(found, self.at, self.before), found.heading + then)
