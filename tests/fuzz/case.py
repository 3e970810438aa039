"""One case: what comes in and what is done with it, all of it from a kind and a seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.fuzz import attached, commands, headers, junk, logs, prompts, records, scenarios

Kind = Literal["scenario", "attached", "gguf", "log", "record", "prompt"]
Through = Literal["api", "cli"]
KINDS: tuple[Kind, ...] = ("scenario", "attached", "gguf", "log", "record", "prompt")

_SCENARIO = ("plan", "reserve", "run", "compute", "steps", "given")
CALLS: dict[Kind, tuple[str, ...]] = {
    "scenario": _SCENARIO,
    "attached": _SCENARIO,
    "gguf": ("tensors", "compute"),
    "log": ("summary", "graph", "all"),
    "record": ("history", "history", "plan"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is done: `call` of the API with `value` or the file `name`, or the command line `args`.

    `files` is what lies in the folder then.
    """

    kind: Kind
    seed: int
    through: Through
    call: str = ""
    args: tuple[str, ...] = ()
    name: str = ""
    value: Any = None
    files: dict[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    tty: bool = False

    def with_value(self, value: Any) -> Case:
        """The same done to another scenario."""
        files = self.files if self.name not in self.files else self.files | {self.name: written(value)}
        return replace(self, value=value, files=files)

    def with_content(self, content: bytes) -> Case:
        """The same done to a file with another content."""
        stdin = content if self.stdin else b""
        return replace(self, files=self.files | {self.name: content}, stdin=stdin)

    def told(self) -> str:
        """How to do it by hand."""
        what = f"api {self.call}" if self.through == "api" else "ggmltool " + " ".join(map(repr, self.args))
        content: Any = self.value if self.value is not None else self.files.get(self.name, b"")
        if isinstance(content, dict):
            try:
                return f"{what}\n    {json.dumps(content)}"
            except (TypeError, ValueError):
                return f"{what}\n    {content!r}"
        return f"{what}\n    {content!r}"


def written(value: Any) -> bytes:
    """A scenario as JSON."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def make(kind: Kind, seed: int, through: Through | None = None) -> Case:
    """The case of that number: half of them go through the API, half through the command line."""
    rng = random.Random(f"{kind} {seed}")
    way: Through = through or ("api" if rng.random() < 0.5 else "cli")
    match kind:
        case "scenario":
            return _scenario(seed, way, rng)
        case "attached":
            value = attached.mutated(rng)
            if rng.random() < 0.7:
                return _done(kind, seed, way, rng, "case.json", written(value), value)
            return _done(kind, seed, way, rng, "case.json.gz", attached.packed(value, rng), names_of=value)
        case "gguf":
            return _gguf(seed, way, rng)
        case "record":
            raw, name = records.mutated(rng), rng.choice(("case.ggtrace", "case.ggtrace", "case.yaml", "case"))
            return _done(kind, seed, way, rng, name, raw, stdin=0.1)
        case "log":
            raw, name = logs.mutated(rng), rng.choice(("case.log", "case.log", "case.log.gz", "case.txt"))
            return _done(kind, seed, way, rng, name, raw, stdin=0.2)
        case "prompt":
            return _prompt(seed, rng)


def _done(
    kind: Kind,
    seed: int,
    through: Through,
    rng: random.Random,
    name: str,
    raw: bytes,
    value: Any = None,
    stdin: float = 0.0,
    names_of: Any = None,
) -> Case:
    """Something done to the file `name`, or to the `value` in it; `stdin`: how often a command reads it from there."""
    if through == "api":
        files = {} if value is not None else {name: raw}
        return Case(kind, seed, "api", rng.choice(CALLS[kind]), (), name, value, files)
    piped = rng.random() < stdin
    names = ["x", "y", "h"] if kind == "record" else commands.names_in(value if names_of is None else names_of)
    file = "-" if piped else name
    args = commands.log_line(rng, file) if kind == "log" else commands.scenario_line(rng, file, names)
    tty = rng.random() < 0.5
    return Case(kind, seed, "cli", "", tuple(args), name, value, {name: raw}, raw if piped else b"", tty)


def _scenario(seed: int, through: Through, rng: random.Random) -> Case:
    if rng.random() < 0.12:
        text = scenarios.mutated_text(rng).encode("utf-8", "surrogatepass")
        name = rng.choice(("case.yaml", "case.json", "case.yaml.gz", "case"))
        return _done("scenario", seed, through, rng, name, text, stdin=0.05)
    value = scenarios.mutated(rng)
    if through == "api" and rng.random() < 0.1:
        places = list(scenarios.everywhere(value))
        if places:
            where, key, _ = rng.choice(places)
            where[key] = junk.foreign(rng)
        return Case("scenario", seed, "api", rng.choice(CALLS["scenario"]), value=value)
    return _done("scenario", seed, through, rng, "case.json", written(value), value, stdin=0.05)


def _gguf(seed: int, through: Through, rng: random.Random) -> Case:
    raw = headers.mutated(rng)
    tensor = rng.choice((*headers.TENSORS, "x"))
    type_, ne = headers.TENSORS.get(tensor, ("f32", (4,)))
    data = {"gguf": "case.gguf", "tensor": tensor}
    scenario = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": type_, "ne": list(ne), "data": data}}}},
        "graphs": {"g": {"nodes": {"y": "sqr(x)" if type_ == "f32" else "cont(x)"}}},
    }
    files = {"case.gguf": raw, "beside.json": written(scenario)}
    if through == "api":
        return Case("gguf", seed, "api", rng.choice(CALLS["gguf"]), (), "case.gguf", None, files)
    args = commands.gguf_line(rng, "case.gguf", "beside.json")
    return Case("gguf", seed, "cli", "", tuple(args), "case.gguf", None, files, b"", rng.random() < 0.5)


def _prompt(seed: int, rng: random.Random) -> Case:
    """A session, its lines on standard input or in a script that may read itself."""
    text = "\n".join(prompts.lines(rng)).encode("utf-8", "surrogatepass")
    scenario = rng.choice(prompts.SCENARIOS)
    files = {"x.ggdb": text, "case.json": written(scenarios.mutated(rng))}
    args = ["debug", scenario, *rng.choice(([], ["--no-compute"], ["--zeros"], ["--echo"]))]
    if scenario != "case.json":
        args += ["--ggml", rng.choice(prompts.RELEASES)]
    if rng.random() < 0.5:
        return Case("prompt", seed, "cli", "", (*args, "--batch", "-x", "x.ggdb"), "x.ggdb", None, files)
    return Case("prompt", seed, "cli", "", tuple(args), "x.ggdb", None, files, text)
