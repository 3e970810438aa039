"""The tokens that a model holds for the likeliest to come next."""

from __future__ import annotations

from ggmltool.inspect.next_token import LikelyToken, NextToken
from ggmltool.show.table import Column, Style, Table, heading
from ggmltool.show.text import printable


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
