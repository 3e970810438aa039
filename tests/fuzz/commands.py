"""Command lines of every command, with options that are mostly right."""

from __future__ import annotations

import random
from functools import cache
from importlib.util import find_spec
from typing import Any

import click

from ggmltool.cli.main import COMMANDS, cli
from tests.fuzz import junk
from tests.needs import has_library

_NEVER = {"output", "force", "traceback", "help", "jobs", "version"}
"""Options that are left out: what they do is not shown on the screen, or takes another program."""

_SELDOM = {"verify": 0.02, "sweep": 0.3, "capture": 0.0, "compare": 0.7}
"""How often a command is taken that forks, for one that does not; capture loads a library that is not ours."""

_CAPTURED = 0.002
"""How often llama.cpp is given a GGUF file, in a process of its own that takes seconds."""

_WORDS = {
    "-ngl": ["0", "1", "all", "0..3", "99", "auto"],
    "-ts": ["1,1", "3,1", "0,0", "x"],
    "-ot": ["x=CPU", "(", "=", ".*=CUDA0"],
    "--device": ["CUDA0", "CUDA0:1GiB", "CUDA0:24", "none", "CUDA0:1GiB,CUDA1:1KiB", ":", "24GiB"],
    "--by": ["op,backend", "backend", "op", "cause", "node"],
    "--only": ["splits", "buffers,sizes", "CPU"],
    "--ggml": ["2024-01", "2025-03", "0.20.2"],
    "--pass": ["1", "2", "5"],
    "--after": ["1", "2", "3"],
    "--with": ["library", "numpy", "CPU"],
    "--values": [".", "case.gguf", "none"],
    "--eval-log": ["case.json", "case.log"],
    "--inject": ["y=relu", "y=x", "=", "y"],
    "--backends": ["CPU,CUDA0", "CPU", "CUDA0,CPU", ","],
    "--step": ["reserve", "alloc"],
    "--margin": ["1GiB", "0"],
}


@cache
def command(name: str) -> click.Command:
    """The command of that name."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@cache
def taking(argument: str) -> tuple[list[str], list[float]]:
    names = [name for name in COMMANDS if any(p.name == argument for p in command(name).params)]
    if "verify" in names and not has_library():
        names.remove("verify")
    return names, [_SELDOM.get(name, 1.0) for name in names]


def names_in(scenario: Any) -> list[str]:
    """Ids and graphs that a scenario may have."""
    try:
        nodes = [id for graph in scenario["graphs"].values() for id in graph["nodes"]]
        tensors = [id for context in scenario["contexts"].values() for id in context["tensors"]]
    except (AttributeError, KeyError, TypeError):
        return ["x", "y"]
    return [str(name) for name in (*nodes, *tensors)] or ["x", "y"]


def scenario_line(rng: random.Random, file: str, names: list[str]) -> list[str]:
    """Any command that takes a scenario, with this one."""
    chosen, weights = taking("scenario")
    name = rng.choices([*chosen, "explain", "diff"], [*weights, 1.0, 1.0])[0]
    words = [name, *_options(rng, name, names)]
    for param in command(name).params:
        if isinstance(param, click.Argument):
            words += _argument(rng, name, param, file, names)
    return words


def _argument(rng: random.Random, name: str, param: click.Argument, file: str, names: list[str]) -> list[str]:
    if param.name == "scenario":
        return [file]
    if name == "diff":
        return [rng.choice((file, "matmul", f"{file}:main"))]
    if name == "explain":
        id = rng.choice(names)
        return rng.choice(
            ([id], ["split", "0"], ["split", "1"], ["realloc"], ["realloc", "main", "main"], ["error", id])
        )
    if param.required or rng.random() < 0.5:
        return [rng.choice(names) if rng.random() < 0.9 else _word(rng)]
    return []


def _word(rng: random.Random) -> str:
    """Any text that a program can be given: bytes that are no UTF-8 arrive as surrogates of their own."""
    return junk.text(rng).replace("\x00", "").replace("\ud800", "\udcff")


def _options(rng: random.Random, name: str, names: list[str]) -> list[str]:
    out: list[str] = []
    for param in command(name).params:
        if not isinstance(param, click.Option) or param.name in _NEVER or rng.random() > 0.15:
            continue
        flag = rng.choice([*param.opts, *param.secondary_opts])
        out.append(flag)
        if not param.is_flag:
            out.append(_value(rng, param, flag, names))
    return out


def _value(rng: random.Random, param: click.Option, flag: str, names: list[str]) -> str:
    if rng.random() < 0.05:
        return _word(rng)
    if isinstance(param.type, click.Choice):
        return str(rng.choice(list(param.type.choices)))
    words = next((_WORDS[o] for o in (flag, *param.opts) if o in _WORDS), None)
    if words is not None:
        return rng.choice(words)
    if isinstance(param.type, click.IntRange | click.types.IntParamType):
        return str(rng.choice((0, 1, 2, 3, 10, 512, junk.integer(rng))))
    return rng.choice(names) if rng.random() < 0.7 else str(junk.number(rng))


def gguf_line(rng: random.Random, file: str, beside: str) -> list[str]:
    """Commands that are given a GGUF file, or a scenario with values from one."""
    if rng.random() < _CAPTURED and find_spec("xllamacpp") is not None:
        return rng.choice((["capture", file], ["place", file], ["sweep", "-j", "1", file], ["place", "-c", "64", file]))
    if rng.random() < 0.6:
        name = rng.choice(("run", "run", "plan", "splits", "dot", "tensor x", "compare", "trace", "check"))
        return [*name.split(), beside]
    return rng.choice((["plan", file], ["import", file], ["splits", file], ["run", file], ["diff", file, beside]))


def log_line(rng: random.Random, file: str) -> list[str]:
    """Commands that take a log."""
    name = rng.choice(("import", "import", "splits", "splits", "plan", "dot", "diff", "explain", "buffers"))
    if name == "explain":
        return [
            "explain",
            *rng.choice((["error", "-"], ["error", file], ["realloc", file], ["realloc", "--count", file])),
        ]
    graph = ["-g", rng.choice(("1", "2", "3", "n_tokens", "0", "-1", "999", "x"))] if rng.random() < 0.4 else []
    other = [rng.choice((file, "matmul"))] if name == "diff" else []
    return [name, *_options(rng, name, ["1", "x"]), *graph, *other, file]
