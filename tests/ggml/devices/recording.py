"""Answers of ggml's own functions about devices as the tests keep them: `recorded/VERSION/FAMILY.json.xz`.

For each hardware of a family: `supports` has a bit for every case, the first lowest, as a hexadecimal number;
`refuses` are the cases at which ggml ends the program; `sizes` are those that take more than ggml_nbytes, with the
bytes. `splits` has for every random split the order of its nodes (null: as they stand) and the pairs of tensor and node
until which it is kept, by their numbers in the graph's context; null where ggml ends the program.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ggmltool.ggml.releases.release import Release
from tests.ggml.devices.judges.asking import GraphAnswer, Question, ask_graphs, ask_ops
from tests.ggml.devices.judges.families import FAMILIES, Family

FOLDER = Path(__file__).parent / "recorded"
SEED = 7
N_GRAPHS = 150


def graphs_of(family: Family, seeds: Iterable[int]) -> list[Question]:
    """Splits of random graphs."""
    made = [family.graphs(seed) for seed in seeds] if family.graphs is not None else []
    return [Question(one.split, one.graph.use_count) for one in made]


def recorded() -> dict[tuple[str, str], Path]:
    """All that is recorded, by version and family."""
    return {(path.parent.name, path.name.partition(".")[0]): path for path in sorted(FOLDER.glob("*/*.json.xz"))}


def read(path: Path) -> dict[str, Any]:
    """What is recorded of a family in a version, by hardware."""
    answers: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return answers


def write(name: str, judge: Path, release: Release) -> Path:
    """Ask a family's judge, and keep the answers."""
    family = FAMILIES[name]
    ops = list(family.cases(SEED))
    orders = bool(family.graphs)
    answers = {}
    for label, hardware in family.hardware.items():
        about = ask_ops(judge, hardware.told, ops)
        answers[label] = {
            "supports": f"{sum(1 << i for i, a in enumerate(about) if a.supported):x}",
            "refuses": [i for i, a in enumerate(about) if a.supported is None],
            "sizes": [(i, a.size) for i, (t, a) in enumerate(zip(ops, about, strict=True)) if a.size != t.nbytes],
        }
        if orders:
            questions = graphs_of(family, range(N_GRAPHS))
            splits = ask_graphs(judge, hardware.told, questions)
            answers[label]["splits"] = [split_numbers(q, a) for q, a in zip(questions, splits, strict=True)]
            orders = False
    path = FOLDER / release.name / f"{name}.json.xz"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(answers, separators=(",", ":")).encode()
    path.write_bytes(lzma.compress(text))
    return path


def split_numbers(question: Question, answer: GraphAnswer | None) -> list[Any] | None:
    """An answer about a split as it is recorded."""
    if answer is None:
        return None
    order = None if answer.order == list(question.nodes) else [t.index for t in answer.order]
    return [order, [[t.index, until.index] for t, until in answer.keeps]]
