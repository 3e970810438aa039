"""`report`: a page that explains a graph."""

from __future__ import annotations

from typing import Any

from ggmltool.ask.moment import OfMoment


class ReportQuestion(OfMoment[Any], frozen=True, kw_only=True):
    """Write a page that explains a graph: one HTML file that needs no network.

    It has the memory map of every compute buffer, with a slider that steps through every decision; the graph with its
    splits and folded layers; the story of every tensor; splits with what they copy and why they begin; what to change;
    limits; which backend supports which op; and the scenario itself. With --compare or its kin two plans stand side by
    side, and the first node where they part is marked.

    \b
    Example:
      ggmltool report -o report.html moe
      ggmltool report --after 2 -o report.html outgrown
      ggmltool report --compare-no-pipeline -o report.html pipeline
    """

    only_python = ()
    formats = ("html", "json")
    formats_help = "A page (default), or the JSON that is in it."
