"""`dot`: the graph as text for Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from ggmltool.ask.moment import OfMoment
from ggmltool.ask.question import Exclusion, Option
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.state.errors import WrongUse

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.opened import Opened
    from ggmltool.inspect.watched import Watched


class Drawing(NamedTuple):
    """Text for Graphviz; what it is of, in words; how many nodes it has, 0 where it has few; the state that it shows,
    None for a graph as the scenario has it."""

    text: str
    title: str
    nodes: int = 0
    at: Watched | None = None


class Dot(OfMoment[str], frozen=True, kw_only=True):
    """Draw the graph: as text for Graphviz, or as a picture with -o graph.svg, .png, .pdf or .html.

    --style ggmltool draws a cluster per split in its backend's color, and the copies between splits as dashed arrows
    with their bytes. With --fold a whole model fits, too: consecutive layers with the same ops, shapes and backends are
    one box "× 10"; the types of their weights and the parameters of their ops may differ. --overview fits a screen: a
    box for what each layer does in each split, with the bytes that are copied before it.

    A GGML_SCHED_DEBUG=2 log can take the place of the scenario (with --style ggmltool); --graph is then a graph's
    number or a part of its title.

    \b
    Example:
      ggmltool dot --overview -o model.svg model.json.gz
      ggmltool dot --style ggmltool --fold -o model.svg model.json.gz
    """

    style: Annotated[
        Literal["ggml", "ggmltool"] | None,
        Option(
            "ggml's own drawing of the graph, or one with a cluster per split and the copies between them.",
            implied="ggml",
        ),
    ] = None
    around: Annotated[
        str | None, Option("Draw only the neighborhood of this node or leaf.", "ID", complete="tensors")
    ] = None
    radius: Annotated[int, Option("How many edges --around goes.", least=0)] = 2
    split: Annotated[
        int | None, Option("Draw only this split, with its sources (with --style ggmltool).", "N", least=0)
    ] = None
    fold: Annotated[bool, Option("Draw repeated layers once, with their count (with --style ggmltool).")] = False
    overview: Annotated[
        bool, Option("Draw a whole model on one screen: a column per layer, a box per split in it.")
    ] = False

    formats = ("dot", "svg", "png", "pdf", "html")
    formats_help = "Graphviz's text or a picture (default: from the file's name)."
    exclusions = (
        Exclusion("split", ("around", "overview")),
        Exclusion("around", ("overview",)),
        Exclusion("overview", ("fold",), "{} is another drawing than {}; choose one."),
        Exclusion("fold", ("split", "around"), "--fold draws the whole graph; leave out --split and --around."),
    )

    def in_style(self, default: str) -> str:
        """Its style, `default` where none is named. Raises WrongUse for what ggml's own drawing does not have."""
        if self.overview and self.style == "ggml":
            raise WrongUse("--overview is another drawing than --style ggml; choose one.")
        style = self.style or ("ggmltool" if self.overview else default)
        if style == "ggml" and self.split is not None:
            raise WrongUse("--split needs --style ggmltool; ggml's drawing has no splits.")
        if style == "ggml" and self.fold:
            raise WrongUse("--fold needs --style ggmltool; ggml's drawing has every node.")
        return style

    def draw(self, opened: Opened, default: str) -> Drawing:
        """The drawing of a scenario, in the `default` style where none is named. Raises InspectError for a part that is
        not there."""
        from ggmltool.ask.dot.splits import ggml_dot
        from ggmltool.inspect.built import built_graph, near
        from ggmltool.inspect.watched import graph_at, watch

        style, opened = self.in_style(default), self.of(opened)
        if style == "ggmltool":
            at = watch(opened, self.moment)
            if at.plan.error is not None and not at.plan.splits:
                raise at.refusal("there is no plan to draw:\n")
            return self.of_plan(at.plan, opened.tensors(at.graph), at.title, at)
        name = graph_at(opened, self.moment)
        tensors = opened.tensors(name)
        nodes, leafs = built_graph(opened.scenario, name, tensors)
        part = near([t.id for t in (*nodes, *leafs)], tensors, self.around, self.radius)
        text = ggml_dot(nodes, leafs, tensors, part)
        return Drawing(text, f"{opened.title}, graph {name}", len(nodes if part is None else part))

    def of_plan(self, plan: Plan, tensors: Tensors, title: str, at: Watched | None = None) -> Drawing:
        """The drawing of a plan, which may be that of a log."""
        from ggmltool.ask.dot.folded import fold_dot
        from ggmltool.ask.dot.overview import overview_dot
        from ggmltool.ask.dot.splits import split_dot
        from ggmltool.inspect.built import part_of

        if self.fold or self.overview:
            return Drawing((fold_dot if self.fold else overview_dot)(plan, tensors, title), title, 0, at)
        part = part_of(plan, tensors, self.around, self.radius, self.split)
        return Drawing(split_dot(plan, tensors, title, part), title, len(plan.nodes if part is None else part), at)
