"""GGML_SCHED_DEBUG in the environment: with -v every command that splits a graph prints the splits, as ggml does."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call, call

__all__ = ["call"]


@pytest.mark.parametrize("command", ["run", "plan", "trace"])
def test_every_split_is_printed_with_its_nodes(call: Call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    printed = call("splits", "--debug", "2", "--no-causes", "--format", "text", "pipeline").out
    assert printed.startswith("\n## SPLIT #0: GPU0 # 1 inputs: [x (   2K)] \nnode #  0 (   MUL_MAT)")
    monkeypatch.setenv("GGML_SCHED_DEBUG", "2")
    err = call(command, "-v", "pipeline").err
    assert printed in err
    if command == "run":
        assert err.count("## SPLIT #0") == 2


def test_level_1_prints_headers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_SCHED_DEBUG", "1")
    err = call("plan", "-v", "pipeline").err
    assert "## SPLIT #1: GPU1 # 1 inputs: [act (   2K)] " in err
    assert "node #" not in err


@pytest.mark.parametrize(("value", "words"), [("2", ["plan", "pipeline"]), ("no", ["plan", "-v", "pipeline"])])
def test_nothing_is_printed_unless_asked(
    call: Call, monkeypatch: pytest.MonkeyPatch, value: str, words: list[str]
) -> None:
    monkeypatch.setenv("GGML_SCHED_DEBUG", value)
    assert "SPLIT" not in call(*words).err
