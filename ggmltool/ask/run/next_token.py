"""What the logits of a captured prompt say: the likeliest next tokens, with their text where the model's file is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import field

from ggmltool.scenario.data import GgufData
from ggmltool.show.document import Row
from ggmltool.sources.llama.model_file import read_vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ggmltool.scenario.spec import ScenarioSpec

LOGITS = "result_output"
"""What llama.cpp calls them."""

_SHOWN = 5


class LikelyToken(Row):
    """A token that may come next; `text` is null where the vocabulary is not known."""

    token: int
    text: str | None
    logit: float
    probability: float


class NextToken(Row):
    """The likeliest next tokens, by the last `row` of logits in a tensor."""

    id: str = field(name="tensor")
    row: int
    likely: tuple[LikelyToken, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the tensor."""
        return self.row + 1


def next_token(model: ScenarioSpec, values: Mapping[str, NDArray[Any]]) -> NextToken | None:
    """The likeliest tokens after the last one that logits were computed of; None if there are no logits."""
    import numpy as np

    if model.meta.get("source") != "llama.cpp":
        return None
    names = {n.id: n.name for graph in model.graphs.values() for n in graph.nodes}
    id = next((id for id in reversed(list(values)) if names.get(id) == LOGITS), None)
    if id is None or not values[id].size:
        return None
    logits = values[id][0, 0, -1].astype(np.float64)
    best = np.argsort(-logits, kind="stable")[:_SHOWN]
    with np.errstate(all="ignore"):
        odds = np.exp(logits - logits.max())
        odds /= odds.sum()
    path = _model_file(model)
    vocabulary = read_vocabulary(path) if path is not None else None
    known = vocabulary is not None and len(vocabulary.tokens) == logits.size
    likely = tuple(
        LikelyToken(int(t), vocabulary.text(int(t)) if vocabulary and known else None, float(logits[t]), float(odds[t]))
        for t in best
    )
    return NextToken(id, values[id].shape[2] - 1, likely)


def _model_file(model: ScenarioSpec) -> Path | None:
    """The file that the weights lie in."""
    return next((t.data.path for t in model.tensors() if isinstance(t.data, GgufData)), None)
