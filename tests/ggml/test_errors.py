"""What ggml says when it refuses."""

from __future__ import annotations

import pytest

from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, GgmlFailed, NotComputable
from ggmltool.inspect.errors import InspectError, StepRefused
from ggmltool.scenario.errors import ScenarioError


def test_an_assertion_prints_as_ggmls_does() -> None:
    error = GgmlAssert("ggml_f", "a == b", "they differ")
    assert error.message == "GGML_ASSERT(a == b) failed"
    assert error.as_dict() == {
        "kind": "abort",
        "function": "ggml_f",
        "condition": "a == b",
        "message": "GGML_ASSERT(a == b) failed",
        "explanation": "they differ",
    }


def test_an_abort_has_no_condition() -> None:
    assert GgmlAbort("ggml_f", "not enough space").as_dict()["condition"] is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [(GgmlAssert, "abort"), (GgmlAbort, "abort"), (GgmlFailed, "failed"), (NotComputable, "failed")],
)
def test_all_are_errors_of_ggml_of_a_kind(error: type[GgmlError], kind: str) -> None:
    made = error("ggml_f", "x")
    assert isinstance(made, GgmlError)
    assert made.kind == kind
    assert made.where == ""


def test_no_error_steers_a_terminal() -> None:
    """X5: names from outside reach the texts of errors, and are shown as escapes there."""
    hostile = "a\u202eb\x1b[2J\0"
    for error in (
        InspectError(hostile),
        StepRefused({"message": hostile, "explanation": f"{hostile}\n{hostile}"}, hostile),
        ScenarioError(hostile, hostile, expected=hostile),
        GgmlFailed(hostile, hostile, explanation=f"{hostile}\n{hostile}"),
    ):
        assert all(line.isprintable() for line in str(error).split("\n")), type(error)
