"""Lines for the debugger's prompt: commands with arguments that are mostly nonsense."""

from __future__ import annotations

import random

from ggmltool.debugger.prompt import COMMANDS
from tests.fuzz import junk

SCENARIOS = ("matmul", "moe", "inplace", "pipeline", "preallocated", "versions-2026", "case.json")
RELEASES = ("0.26", "0.20.2", "2025-03", "2024-01")

_WORDS = [
    "sched", "galloc", "graph", "tensor", "node", "->", ".", "[", "]", "(", ")", "*", "&", "n_nodes", "nodes", "src",
    "n_splits", "splits", "hash_values", "name", "ne", "0", "1", "3", "'a'", '"b"', "sizeof", "struct ggml_tensor",
    "int", "char", "float", "+", "-", "/", "%", "==", "&&", "!", "?", ":", "@", "$", "$1", "$x", "=", "<<", "99999",
    "18446744073709551615", "-1", "if", "split", "backend", "offset", "CPU", "CUDA0", "h", "x", "y", "/x", "/s",
    "/999999999f", "/8fw", "/-3x", "ggml_backend_sched_split_graph", "ggml_nbytes", "1-9", "all", "full", "{",
    "tensors", "hash", "free-blocks", "copies", "functions", "locals", "args", "breakpoints", "display", "frame",
    "GGML_OP_ADD", "on", "off", "width", "height", "unlimited", "'", '"', "\\", "1e999", "0x", "1/0", "%s", "…",
]  # fmt: skip

_LINES = ["p 1<<99999", "p *nodes@999999999", "x/999999999f t", 'p "…"', "source x.ggdb", "source /dev/zero",
          "source .", "tui", "step 999999999999",
          "goto 99999", "p *sched", "p *galloc", "info hash", "info tensors", "info locals",
          "bt full", "list", "list -", "reverse-continue", "reverse-step 9", "watch sched->n_splits", "finish", "up",
          "down 9", "explain h", "why h", "symbol-file 2024-01", "symbol-file x", "complete p sched->", "set width 0",
          "set $x = $x", "delete 1-999999999", "p sizeof(int" + "[9]" * 900 + ")"]  # fmt: skip
"""Lines that were thought of."""


def lines(rng: random.Random) -> list[str]:
    """A session: a beginning, and what is typed then."""
    begin = rng.choice(
        (["run"], ["start", "step 20"], ["break h", "run"], ["break split 1", "run"], [], ["run", "rs 9"])
    )
    return [*begin, *(_line(rng) for _ in range(rng.randint(1, 12)))]


def _line(rng: random.Random) -> str:
    what = rng.random()
    if what < 0.25:
        return rng.choice(_LINES)
    if what < 0.3:
        return junk.text(rng)
    command = rng.choice(COMMANDS)
    word = rng.choice((command.name, *command.aliases, command.name[: rng.randint(1, 9)]))
    if what < 0.4:
        return f"{word} {_long(rng)}"
    blank = rng.choice((" ", "", "  "))
    return f"{word}{rng.choice(('', '', ' '))}{blank.join(_word(rng) for _ in range(rng.randrange(7)))}"


def _word(rng: random.Random) -> str:
    what = rng.random()
    return rng.choice(_WORDS) if what < 0.8 else junk.text(rng) if what < 0.9 else str(junk.number(rng))


def _long(rng: random.Random) -> str:
    return rng.choice(["(", "[", "-", "*", "1+", "!", "a->", "9", "(int)", "\x1b", "\x00", "'"]) * rng.choice(
        (300, 9000)
    )
