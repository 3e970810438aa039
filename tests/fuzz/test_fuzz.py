"""About a hundred cases of each kind, and the machinery that finds what is wrong with one."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import headers, shrink, workers
from tests.fuzz.case import KINDS, Case, Kind, make
from tests.fuzz.perform import Outcome, perform
from tests.fuzz.run import main
from tests.fuzz.shrink import smallest

CASES = {"scenario": 150, "attached": 60, "gguf": 120, "log": 120, "record": 100, "prompt": 80}
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded as Linux does it")


@ON_LINUX
@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_documented_comes_of_anything(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    """Documented exceptions, exit statuses 0, 1 and 2, five seconds, 1 GiB."""
    status = main(["--kind", kind, "--seeds", f"0:{CASES[kind]}", "--no-shrink"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert f"{kind}: {CASES[kind]} cases" in said
    assert "0 wrong" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_the_same_case_again(kind: Kind) -> None:
    for seed in range(40):
        one, other = make(kind, seed), make(kind, seed)
        assert (one.args, one.files, one.call, repr(one.value)) == (
            other.args, other.files, other.call, repr(other.value)
        ) or " at 0x" in repr(one.value)  # fmt: skip


@pytest.mark.parametrize("kind", ["scenario", "attached", "gguf", "log", "record"])
def test_many_cases_get_past_the_first_check(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shorts = [perform(make(kind, seed, "api")).short for seed in range(1000, 1120)]
    assert shorts.count("fine") > {"scenario": 15, "attached": 15, "gguf": 5, "log": 60, "record": 5}[kind]


def test_a_gguf_file_that_nothing_was_done_to_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from ggmltool.scenario.encoded import read_gguf_tensor

    raw = b"".join(field.raw() for field in headers.fields())
    Path("a.gguf").write_bytes(raw + bytes(-len(raw) % 32 + 256))
    assert all(read_gguf_tensor(Path("a.gguf"), name).ne[0] == ne[0] for name, (_, ne) in headers.TENSORS.items())


def _broken(case: Case) -> Outcome:
    """Stands in for what is done with a case: each call goes wrong in another way."""
    match case.call:
        case "die":
            os.abort()
        case "hang":
            while True:
                pass
        case "hog":
            return Outcome("wrong", "hog") if _takes(2 << 30) else Outcome("fine")
        case "x":
            return Outcome("wrong", "x is there") if "x" in case.value else Outcome("fine")
    return Outcome("fine")


def _takes(n: int) -> bool:
    try:
        bytearray(n)
    except MemoryError:
        return True
    return False


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "perform", _broken)
    monkeypatch.setattr(workers, "SECONDS", 0.2)
    monkeypatch.setattr(workers, "PATIENCE", 3)


@ON_LINUX
@pytest.mark.usefixtures("broken")
def test_a_case_that_dies_hangs_or_hogs_takes_only_itself_with_it() -> None:
    calls = {0: "fine", 1: "die", 2: "fine", 3: "hang", 4: "hog", 5: "fine"}
    found = workers.run(lambda n: Case("scenario", n, "api", calls[n]), range(6), 2)
    places = {done.number: done.outcome.place.partition("@")[0] for done in found}
    assert places == {0: "", 1: "SIGABRT", 2: "", 3: "hang", 4: "hog", 5: ""}


@ON_LINUX
@pytest.mark.usefixtures("broken")
def test_a_case_is_made_smaller_while_it_fails_in_the_same_place() -> None:
    value = {"a": [1, 2, {"b": 3}], "x": {"y": 1}, "z": None}
    assert smallest(Case("scenario", 0, "api", "x", value=value), "x is there").value == {"x": {}}


@ON_LINUX
@pytest.mark.usefixtures("broken")
def test_a_case_is_not_made_smaller_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "SECONDS", 0.3)
    case = Case("log", 0, "api", "x", (), "a", "nothing", {"a": b"x" * 100_000})
    start = time.monotonic()
    assert smallest(case, "x is there") == case
    assert time.monotonic() - start < 10
