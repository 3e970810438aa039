"""`explain`: why a node is where it is, why a split begins, whether a plan serves another, what a message means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.answer import Answer
from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Argument, R
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.explain.message import ExplainedMessage, NoMessage
    from ggmltool.ask.explain.node import ExplainedNode
    from ggmltool.ask.explain.realloc import ExplainedRealloc, Side
    from ggmltool.ask.explain.split import ExplainedSplit
    from ggmltool.inspect.opened import Opened


class Explain(OfMoment[R], frozen=True):
    """Explain a decision of ggml: which rules were asked, which one decided, and what would change it.

    \b
    WHAT is one of these:
      NODE     why it runs on its backend: every rule that was asked, what each
               backend answers, and changes that would move it
      split N  why a new split begins there, what it copies and for which nodes,
               and changes that make fewer splits
      realloc A B
               would the memory planned for A serve B? A and B are graphs of the
               scenario, or two scenarios (FILE:GRAPH, or --graph for both)
      error TEXT
               what a message of ggml or llama.cpp means, what causes it, what to
               do. TEXT is a line of a log, a part of one, a file, or `-` for
               standard input
    A node called `split`, `realloc` or `error` is `node NAME`. Every change that
    is shown was verified by planning.

    \b
    Example:
      ggmltool explain kq graph.yaml
      ggmltool explain split 1 graph.yaml
      ggmltool explain realloc prompt token graph.yaml
      ggmltool explain error "tensor buffer not set"
    """

    only_python = ()


class ExplainNode(Explain["ExplainedNode"], frozen=True):
    """Why a node is on its backend: every rule that was asked, what each backend answers, what would move it."""

    name: Annotated[str, Argument("NODE")]

    def ask(self, opened: Opened) -> Answer[ExplainedNode]:
        """The answer. Raises InspectError if the graph has no such tensor."""
        from ggmltool.ask.explain.node import explain_node

        return answer(*explain_node(self.of(opened), self.moment, self.name))


class ExplainSplit(Explain["ExplainedSplit"], frozen=True):
    """Why a split begins, what it copies and for whom, and what makes fewer splits."""

    number: Annotated[int, Argument("N")]

    def ask(self, opened: Opened) -> Answer[ExplainedSplit]:
        """The answer. Raises InspectError if the plan has no such split."""
        from ggmltool.ask.explain.split import explain_split

        if self.number < 0:
            raise InspectError(f"a split has a number from 0 on, not {self.number}")
        return answer(*explain_split(self.of(opened), self.moment, self.number))


def realloc_of(first: Side, second: Side, title: str) -> Answer[ExplainedRealloc]:
    """Whether the memory planned for one graph serves another. Raises StepRefused where ggml fails on a graph."""
    from ggmltool.ask.explain.realloc import explain_realloc

    return Answer(explain_realloc(first, second), title, f"{first.called} {second.called}")


def message_of(text: str) -> Answer[ExplainedMessage | NoMessage]:
    """What a message means; if none is known of these words, the nearest ones, and the answer is not fine."""
    from ggmltool.ask.explain.message import ExplainedMessage, NoMessage
    from ggmltool.inspect.messages.match import find, find_all, nearest

    found = find(text)
    if found is None:
        return Answer(NoMessage.of(nearest(text)), fine=False)
    others = [m for m in find_all(text) if m.key != found.key]
    return Answer(ExplainedMessage.of(found, others), found.key)
