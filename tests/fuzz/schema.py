"""The schema of scenarios against the loader: `python -m tests.fuzz.schema --seeds 0:50000` says where they differ."""

from __future__ import annotations

import argparse
import copy
import random
import re
from collections import Counter
from functools import cache
from typing import Any

import jsonschema

from ggmltool.ggml.errors import GgmlError
from ggmltool.scenario.devices.supports import RuleKeys, SourceKeys, SupportsKeys
from ggmltool.scenario.errors import Mistake, ScenarioError
from ggmltool.scenario.load import ContextKeys, GraphKeys, TopKeys, load_document
from ggmltool.scenario.schema import scenario_schema
from ggmltool.scenario.spec import BackendKeys
from ggmltool.scenario.text.text import ScenarioText
from ggmltool.scenario.values import key_names
from tests.fuzz import bases, junk, scenarios

NOT_OF_A_SCHEMA = {
    "names that do not resolve": r"does not exist|comes after this node|is a node of graph|is not in expand|"
    r"there is no (graph|tensor|buffer type)|(buft|backend|tallocr|device) cannot be",
    "memory that is not there": r"^no node can lie in|^at needs|lies where its view_src lies|does not end within the|"
    r"does not say where it lies",
    "names that are taken": r"two backends are called|there is a tensor .* already|own buffer type already",
    "a node that names itself": r"cannot be a source of itself",
    "sources of an op": r"takes [\d to]+ sources?, not|of \w+ cannot be null|needs the tensor whose",
    "shapes and types that do not fit": r"^(ne|nb|type|view_src|view_offs) is .*, but \w+ gives|no way to write a row|"
    r"^rows of \w+ are made of blocks|, and its last block ends at|makes no view here|but op_params say",
    "data that does not fit its tensor": r"^data has \d+ values|^data is nested|^the lists differ in length|"
    r"^base64 gives|^this is not base64|^the last value|^values cannot be converted to|^an element of i\d+ must|"
    r"^data for \d+ elements",
    "2.0, which is 2 to a schema": r"must be (a list|true or false), not the number -?\d+\.0$",
    "options beside each other": r"^low must not be above|^low and high must be finite|^std must be at least 0",
    "numbers and sizes beyond all memory": r"too large for a number|more than 2\^63-1|not a tensor that any memory|"
    r"a huge number|must be a power of two|^a fact must be .* (nan|inf)|must be at most 9223372036854775807|"
    r"must be an integer, not the text \"-?\d{59}",
    "files": r"^there is no file|lies outside of the scenario's folder|cannot be read|is not a regular file|"
    r"is not an npy file|GGUF|gguf|this is not a file name",
    "the release": r"^ggml [\d.-]+ has no|in ggml [\d.-]+( are not known|; available)",
    "devices that nobody sells": r"is not a known device|comes with several sizes|^[\w .+-]+ runs [\w ]+, not|"
    r"^rates need",
    "features of a profile": r"knows no features|^a feature cannot be|look at no tensor's size",
    "rules of an op": r"has no rule (here|for its result)|cannot work in place|stands beside op_params|needs ne: its|"
    r"^type must be the name",
    "rules that contradict each other": r"has a rule, and stands under except",
    "text that cannot be encoded": r"has half a character",
}
"""What the loader says of files that a schema cannot tell from good ones, by what it is about."""


KEYS = (
    *key_names(TopKeys),
    *key_names(ContextKeys),
    *key_names(GraphKeys),
    *key_names(BackendKeys),
    *key_names(SupportsKeys),
    *key_names(RuleKeys),
    *key_names(SourceKeys),
)
_KINDS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 2.0, "", "zzz", "true", "1KiB", "f32", [], [1], ["zzz"], [None], {}, {"zzz": 1},
)  # fmt: skip
"""A value of every kind."""


def case(seed: int) -> dict[str, Any]:
    """A scenario with changes as all fuzzing makes them, or with one value of another kind or one key more."""
    rng = random.Random(f"schema {seed}")
    if rng.random() < 0.5:
        return scenarios.mutated(rng)
    scenario = bases.scenario(rng)
    where, key, _ = rng.choice(list(scenarios.everywhere(scenario)))
    item = copy.deepcopy(rng.choice(_KINDS))
    if isinstance(where, dict) and rng.random() < 0.5:
        where[rng.choice(("zzz", *junk.KEYS, *KEYS))] = item
    else:
        where[key] = item
    return scenario


class _Remembered(ScenarioText):
    """A scenario that keeps the mistake that was found in it."""

    mistake: Mistake | None = None

    def error(self, mistake: Mistake, *path: str | int) -> ScenarioError:
        self.mistake = mistake
        return ScenarioText.error(self, mistake, *path)


def refusal(scenario: dict[str, Any]) -> Mistake | GgmlError | ScenarioError | None:
    """Why the loader does not take a scenario."""
    document = _Remembered("<dict>", None, "dict", "", scenario)
    try:
        load_document(document)
    except GgmlError as e:
        return e
    except ScenarioError as e:
        return document.mistake or e
    return None


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(scenario_schema())


def rule_broken(scenario: dict[str, Any]) -> str:
    """The first rule of the schema that a scenario breaks, with the place; "" for a valid one."""
    error = next(validator().iter_errors(scenario), None)
    return "" if error is None else f"{error.json_path}: {error.message[:200]}"


def beyond_a_schema(scenario: dict[str, Any], refused: Mistake | GgmlError | ScenarioError) -> str:
    """What a refusal is about that no schema can say; "" for what the schema should have said."""
    if isinstance(refused, GgmlError):
        return "ggml's asserts"
    if isinstance(refused, ScenarioError):
        return "files"
    if _is_call(scenario, refused.path):
        return "arguments of a call"
    found = (about for about, message in NOT_OF_A_SCHEMA.items() if re.search(message, refused.message))
    return next(found, "")


def _is_call(scenario: Any, path: tuple[str | int, ...]) -> bool:
    """Whether a node in short form stands there."""
    if len(path) != 4 or path[2] != "nodes":
        return False
    for key in path:
        scenario = scenario[key]
    return isinstance(scenario, str) and "(" in scenario


def difference(scenario: dict[str, Any]) -> str:
    """Where the schema and the loader differ; otherwise, after a "=", what they agree on."""
    refused, broken = refusal(scenario), rule_broken(scenario)
    if refused is None:
        return f"the loader takes it, the schema does not: {broken}" if broken else "=both take it"
    if broken:
        return "=neither takes it"
    about = beyond_a_schema(scenario, refused)
    message = str(refused).split("\n", 1)[0]
    return f"={about}" if about else f"the schema takes it, the loader says: {getattr(refused, 'path', '')} {message}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:2000", help="FIRST:BEYOND_LAST")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    counted: Counter[str] = Counter()
    for seed in range(first, last):
        told = difference(case(seed))
        counted[told if told.startswith("=") else "different"] += 1
        if not told.startswith("="):
            print(seed, told, flush=True)
    for about, count in counted.most_common():
        print(f"{count:7} {about.lstrip('=')}")
    return 1 if counted["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
