"""The JSON Schema of a scenario, for editors and validators: drawn from the loader's own tables of keys and ops.

It says what can be said of one value by itself: keys, kinds of values, words, the forms of texts. What depends on other
values (whether names resolve, shapes fit, files are there, ggml asserts) only the loader knows. Whatever the loader
takes is valid.
"""

from __future__ import annotations

from ggmltool.scenario.kinds import Schema

__all__ = ["scenario_schema"]


def scenario_schema() -> Schema:
    """The schema (draft 2020-12) as a dict."""
    from ggmltool.scenario.schema.top import drawn

    return drawn()
