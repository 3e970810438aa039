"""Every figure that the sessions with gdb and debug builds printed, and how it comes out of a command.

The tables are `walkthroughs.yaml` for commands and `sessions.yaml` for the debugger; the sessions themselves are not
part of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.ggml.version import POINTER_SIZE
from tests.cli import sessions
from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "walkthroughs"
TABLE: dict[str, Any] = yaml.safe_load((HERE / "walkthroughs.yaml").read_text("utf-8"))
SCREENS = {screen["name"]: screen for screen in TABLE["screens"]}
FIGURES = [(screen, figure) for screen in TABLE["screens"] for figure in screen["figures"]]
SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"
PRINTED = re.compile(
    r"\$\d+ = |Value returned is|ggml_\w+: |register_\w+: |!{7} node|\+{11} splits|#\d+ .*(0x|ggml)|"
    r"n_(nodes|leafs) = \d+$| - +\d+: \["
)
"""Lines of the sessions on which something was printed."""


DIFFERS = {
    "allocator": ("a chunk stands beside each offset", "in chunks"),
    "priority": ("prints use= and c= before the sources", "copies in two dimensions, and graph_optimize"),
    "buffer-not-set": ("logs the second only for a buffer that had a size before",),
    "missing-op": ("spread a backend over all that had none (causes 2.1 to 2.4)",),
    "inplace": ("only since early 2025",),
    "arena": ("takes 336 bytes", "prints 384", "takes 96, not 80", "(82576 bytes, not 65640)"),
}
"""Where today's ggml differs from that of a session, as the comment of the sample says."""


def squeezed(text: str) -> str:
    """One space for every run of spaces, line ends and the lines of a tree; wrapped text becomes one line."""
    return re.sub(r"[\s│├└─]+", " ", text)


@pytest.mark.parametrize("sample", DIFFERS)
def test_a_sample_says_where_its_ggml_differs_from_that_of_the_session(sample: str) -> None:
    comment = re.sub(r"\n# ", " ", (SAMPLES / f"{sample}.yaml").read_text("utf-8"))
    assert [said for said in DIFFERS[sample] if said not in comment] == []


def arguments(screen: dict[str, Any]) -> list[object]:
    """The command line; the last word that names a sample is that sample's file."""
    command: list[object] = screen["run"].split()
    path = SAMPLES / f"{command[-1]}.yaml"
    if path.is_file():
        command[-1] = path
    if "ggml" in screen:
        command[1:1] = ["--ggml", screen["ggml"]]
    return command


def is_shown(figure: dict[str, Any], shown: str) -> bool:
    """Where ours is the text of the session itself, lines and spaces may fall otherwise."""
    if "ours" in figure:
        return squeezed(figure["ours"]) in shown
    return squeezed(figure["prints"]).replace(" ", "") in shown.replace(" ", "")


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_what_the_session_printed(call: Call, name: str) -> None:
    screen = SCREENS[name]
    result = call(*arguments(screen), columns=120)
    assert result.status == screen.get("status", 0), result.err
    logged = result.err if "-v" in screen["run"].split() else ""
    check_golden(GOLDEN / f"{name}.txt", result.out + logged)
    shown = squeezed(result.out + result.err)
    missing = [figure for figure in screen["figures"] if not is_shown(figure, shown)]
    assert missing == [], missing


def test_screens_have_names_of_their_own_and_every_golden_file_is_of_one() -> None:
    assert len(SCREENS) == len(TABLE["screens"])
    assert {path.stem for path in GOLDEN.iterdir()} == set(SCREENS)


class Distance(NamedTuple):
    """How far apart two addresses of a session lie: `seed` and `line` of the higher one, and our bytes."""

    seed: int
    line: int
    higher: int
    lower: int
    ggml: str
    nbytes: Callable[[Release], int]


DISTANCES = {
    "the sources a and b of mul": Distance(
        2, 1314, 0x7FFFF66001D0, 0x7FFFF6600060, "2025-03", lambda r: r.tensor_overhead()
    ),
    "l_a and l_b": Distance(2, 828, 0x7FFFCB6001D0, 0x7FFFCB600060, "2025-03", lambda r: r.tensor_overhead()),
    "a, and the nodes of its graph: a, b and mul come before the cgraph": Distance(
        2, 1347, 0x7FFFF6600500, 0x7FFFF6600060, "2025-03", lambda r: 3 * r.tensor_overhead() + r.cgraph_size
    ),
    "the buffer's base and b": Distance(
        2, 1230, 0x555555705560, 0x555555705540, "2025-03", lambda r: r.tensor_alignment
    ),
    "c, and what stands before it in its context": Distance(
        1, 216, 0x7FFFC966F1D0, 0x7FFFC966F060, "2025-03", lambda r: r.tensor_overhead()
    ),
    "the arena and its first object's data": Distance(
        3, 253, 0x7FFFF6BA0030, 0x7FFFF6BA0010, "2024-01", lambda r: r.object_size
    ),
    "a cgraph and its nodes": Distance(3, 255, 0x7FFFF6BA0080, 0x7FFFF6BA0030, "2024-01", lambda r: r.cgraph_size),
    "nodes and leafs": Distance(3, 285, 0x7FFFF6BA4080, 0x7FFFF6BA0080, "2024-01", lambda r: 2048 * POINTER_SIZE),
    "a tensor and its data, which the context holds": Distance(
        3, 692, 0x7FFFF6A001A0, 0x7FFFF6A00030, "2024-01", lambda r: r.tensor_size
    ),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_addresses_lie_as_far_apart_as_ours(name: str) -> None:
    _, _, higher, lower, ggml, nbytes = DISTANCES[name]
    assert higher - lower == nbytes(RELEASES[ggml])


def test_the_slot_of_a_follows_from_its_address() -> None:
    """`p ggml_hash(t) % galloc->hash_set->size` printed 1, and a lay at 0x7ffff6600060."""
    assert HashSet(3).find_or_insert(0x7FFFF6600060) == 1


def seed_lines(number: int) -> list[str]:
    (path,) = SEEDS.glob(f"{number:03}_*.txt")
    return path.read_text("utf-8", "replace").splitlines()


needs_seeds = pytest.mark.skipif(not SEEDS.is_dir(), reason="the sessions lie beside the repository, not in it")


@needs_seeds
def test_the_table_quotes_the_sessions_as_they_are() -> None:
    wrong = []
    for _, figure in FIGURES:
        text = "".join(line + " " for line in seed_lines(figure["seed"])[figure["line"] - 1 :][:20])
        if re.sub(r"\s", "", figure["prints"]) not in re.sub(r"\s", "", text):
            wrong.append(figure)
    assert wrong == []
    for seed, line, higher, lower, _, _ in DISTANCES.values():
        assert f"{higher:#x}" in " ".join(seed_lines(seed)[line - 1 : line + 1])
        assert f"{lower:#x}" in "".join(seed_lines(seed))


def printed_lines() -> Iterator[tuple[int, int]]:
    for seed in (1, 2, 3):
        for number, line in enumerate(seed_lines(seed), 1):
            if PRINTED.match(line.strip()):
                yield seed, number


@needs_seeds
def test_every_line_that_the_sessions_printed_is_in_the_table() -> None:
    known = {(figure["seed"], figure["line"]) for _, figure in FIGURES}
    known |= {(m["seed"], line) for m in TABLE["machine"] for line in m["lines"]}
    assert [at for at in printed_lines() if at not in known] == []


@needs_seeds
def test_the_first_session_is_the_beginning_of_the_second() -> None:
    first = seed_lines(0)
    assert first[:112] == seed_lines(1)[:112]


SESSIONS = {session["name"]: session for session in sessions.TABLE["sessions"]}
ADDRESS = re.compile("0x[1-9a-f][0-9a-f]*")


def test_every_command_of_the_sessions_is_held_or_named() -> None:
    for seed, lines in sessions.COMMANDS.items():
        held = {figure.line for figures in sessions.FIGURES.values() for figure in figures if figure.seed == seed}
        left = set(sessions.LEFT[seed])
        assert not held & left
        refused = {row["line"] for row in sessions.TABLE["refused"]} if seed == 3 else set()
        assert sorted(held | left | refused) == lines
        assert {row["line"] for row in sessions.TABLE["partly"] if row["seed"] == seed} <= held


@pytest.mark.parametrize("name", SESSIONS)
def test_the_debugger_repeats_a_session(call: Call, name: str) -> None:
    session = SESSIONS[name]
    script, sample = SAMPLES / "sessions" / f"{name}.gdb", SAMPLES / f"{session['sample']}.yaml"
    done = call("debug", "--ggml", session["ggml"], "-q", "--batch", "--echo", "-x", script, sample)
    assert (done.status, done.err) == (0, "")
    check_golden(GOLDEN.parent / "sessions" / f"{name}.txt", done.out)
    answers = answers_of(done.out)
    for figure in sessions.FIGURES[name]:
        answer = answers[figure.asks or figure.command][figure.nth - 1]
        told = stack(answer) if figure.command == "bt" else ADDRESS.sub("0x1", answer)
        assert sessions.is_printed(figure.prints, told), (figure, answer)


def answers_of(out: str) -> dict[str, list[str]]:
    """What was printed to each command, without the numbers of values."""
    answers: dict[str, list[str]] = {}
    for part in out.split("(ggml) ")[1:]:
        command, _, answer = part.partition("\n")
        answers.setdefault(command, []).append(re.sub(r"^\$\d+ = ", "", answer.rstrip("\n")))
    return answers


def stack(answer: str) -> str:
    """The frames of a backtrace inside of the program, with the arguments that are no pointers."""
    frames = re.sub(r"^#\d+ +| at event \d+$| <[^>]*>", "", answer, flags=re.MULTILINE)
    return re.sub("=0x[0-9a-f]+", "", frames).rpartition("\nmain () at ")[0]


@pytest.mark.parametrize("row", sessions.TABLE["refused"], ids=lambda row: row["command"])
def test_a_command_of_a_session_that_has_no_answer_here_says_why(call: Call, row: dict[str, Any]) -> None:
    done = call("debug", "-q", "--batch", "-ex", "start", "-ex", "step 4", "-ex", row["command"], "arena")
    assert (done.status, done.err.strip()) == (1, row["says"])


@pytest.mark.parametrize("structs", ["2023-12", "2024-01"])
def test_structs_without_a_planner_are_refused_where_there_is_one(call: Call, structs: str) -> None:
    done = call("debug", "-q", "--batch", "-ex", f"symbol-file {structs}", "arena")
    assert done.status == 1
    assert f"The structs of {structs} cannot show ggml 0.26" in done.err
