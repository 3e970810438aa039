"""Programs whose devices lie, or do worse when they are asked: one clear message, and they end as they would alone."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from ggmltool.attach.calls import calls, visit
from ggmltool.attach.gdb.link import GdbLink, LinkLost
from ggmltool.attach.session import AttachSession
from ggmltool.state.errors import AttachError
from tests.attach.conftest import Attach, Looked
from tests.attach.programs import c_program
from tests.cli.conftest import Call
from tests.needs import made, needs_gcc, needs_gdb

pytestmark = [needs_gcc, needs_gdb]
ALLOC = ["ggml_backend_sched_alloc_graph"]


@cache
def hostile() -> str:
    return str(made(lambda: c_program(source="hostile")))


@cache
def unruly() -> str:
    return str(made(lambda: c_program(source="unruly")))


def attached(attach: Attach, how: str, folder: Path) -> tuple[Looked, Path]:
    """What attach says of the program, and the file that it saved."""
    saved = folder / "x.json"
    return attach("-o", saved, "--", hostile(), how, "--iterations", "2"), saved


WAYS = "throw,crowd,vfork,children,limits,user,confined"
"""Its device throws, it has many threads and children, is another user, and in a sandbox in which no file may be opened
and no memory mapped."""


@pytest.mark.parametrize(
    ("program", "how", "nth"),
    [*((hostile, how, 1) for how in ("crash", "abort", "trap", "fork,blocked,closed", "traceme")), (unruly, WAYS, 5)],
    ids=["crash", "abort", "trap", "fork", "traceme", "unruly"],
)
def test_what_a_program_does_when_it_is_asked_does_not_end_it(
    program: Callable[[], str], how: str, nth: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with AttachSession.launch([program(), how, "--iterations", str(nth)]) as session:
        *_, _ = islice(calls(session, "alloc"), nth)
        seen = visit(session)
    assert session.wait() == 0
    assert capfd.readouterr().out.splitlines()[-1] == "done"
    assert any("sandbox" in said for said in seen.before.unread) == (how == WAYS)
    assert any(seen.answers.supports.values())


def test_a_program_that_becomes_another_one_is_followed(capfd: pytest.CaptureFixture[str]) -> None:
    with AttachSession.launch([unruly(), "exec", "--iterations", "1"]) as session:
        *_, called = islice(calls(session, "alloc"), 4)
    assert called.number == 4
    assert session.wait() == 0
    assert capfd.readouterr().out.count("graph 0, scheduler 0") == 2


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'no such thing\x1b[2J'", "gdb has ended; .*did not start as gdb does; it said: no such thing.\\[2J"),
        ("head -c 100000 /dev/urandom >&$writes", "gdb has ended"),
        ('while read -r line <&$reads; do echo \'{"value": 1, "bytes": 0}\' >&$writes; done', "nonsense"),
    ],
)
def test_what_is_no_gdb_is_told(script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gdb"
    program.write_text(f'#!/bin/bash\nIFS=, read reads writes halts <<< "$GGMLTOOL_GDB"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(AttachError, match=said):
        AttachSession.launch(["true"])


def test_a_device_that_ends_the_program_is_told_in_one_line(attach: Attach, tmp_path: Path) -> None:
    looked, saved = attached(attach, "exit", tmp_path)
    assert looked == (1, "ggml 0.20.2\n", "Error: the program ended when a function of it was called\n")
    assert not saved.exists()


@pytest.mark.parametrize("how", ["hang", "lock"])
def test_a_device_that_does_not_answer_is_not_asked_again(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GdbLink.call, "__defaults__", (1.0, True))
    with AttachSession.launch([hostile(), how, "--iterations", "2"]) as session:
        session.stop_at(ALLOC)
        began = time.monotonic()
        seen = visit(session)
        assert time.monotonic() - began < 15
        assert seen.answers.left_out > 10
    assert session.wait() == 0


def test_sizes_that_no_tensor_has_are_left_out(attach: Attach, tmp_path: Path, call: Call) -> None:
    (status, _, said), saved = attached(attach, "sizes", tmp_path)
    assert status == 0
    assert "questions to the devices without an answer that can be used" in said
    assert call("plan", str(saved)).status == 0


def test_names_are_bounded_and_escaped_wherever_they_are_shown(attach: Attach, tmp_path: Path, call: Call) -> None:
    (status, _, said), saved = attached(attach, "names", tmp_path)
    assert status == 0
    assert "\x1b" not in said
    document = json.loads(saved.read_text())
    assert all(len(b["name"]) < 1000 and b["name"].isprintable() for b in document["backends"])
    for words in (["plan"], ["splits"], ["hash"], ["allocs"], ["buffers"], ["backends"], ["dot"]):
        shown = call(*words, str(saved))
        assert shown.status == 0
        assert "\x1b" not in shown.out
    page = tmp_path / "x.html"
    assert call("report", str(saved), "-o", str(page)).status == 0
    assert "<script>alert" not in page.read_text()


def test_the_python_of_gdb_is_not_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with AttachSession.launch([hostile(), "none", "--iterations", "1"]) as session:
        session.stop_at(ALLOC)
    assert session.wait() == 0


@pytest.mark.parametrize(
    "said", [b"", b"{", b"nonsense\n", b"[]\n", b"7\n", b"{}\n", b'{"value": 1}\n', b'{"value": 1, "bytes": "x"}\n']
)
def test_a_gdb_that_answers_nonsense_is_lost(said: bytes) -> None:
    with pytest.raises(LinkLost, match="gdb has ended"):
        GdbLink(io.BytesIO(), io.BytesIO(said)).ask("about")
