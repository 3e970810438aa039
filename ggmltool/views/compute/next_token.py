"""The tokens that a model holds for the likeliest to come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ggmltool.views.table import Column, Style, Table, heading
from ggmltool.views.text import printable


class LikelyToken(NamedTuple):
    """A token with its number, its text (None: the vocabulary is not known), its logit and its probability."""

    token: int
    text: str | None
    logit: float
    probability: float


class NextToken(NamedTuple):
    """What logits say of the token after the last one: `row` of the tensor `id`, which has `n_rows`."""

    id: str
    row: int
    n_rows: int
    likely: Sequence[LikelyToken]


def next_token_view(found: NextToken, style: Style) -> str:
    """The likeliest tokens, one row each."""
    row = f"the last of {found.n_rows} rows of {found.id}" if found.n_rows > 1 else f"by {found.id}"
    table = Table[LikelyToken](
        Column("token", lambda t: t.token, right=True),
        Column("text", lambda t: None if t.text is None else f'"{printable(t.text)}"', cut=True),
        Column("logit", lambda t: f"{t.logit:.3f}", right=True),
        Column("probability", lambda t: f"{t.probability:.1%}", right=True),
    )
    return heading("next token", [row], style) + "\n" + table.render(found.likely, style)
