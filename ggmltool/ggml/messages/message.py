"""What a message of ggml's is to us."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """Texts of ggml's that mean one thing.

    `texts` stand as in ggml's source, with printf's places; of GGML_ASSERT it is the condition. `functions` print
    them. `means` is what has happened, `shapes` which graphs and calls bring it about, `remedy` what to do, `ask` the
    command that shows more. `era` is when ggml had such texts, "" for 0.20.2.
    """

    texts: tuple[str, ...]
    functions: tuple[str, ...]
    means: str
    shapes: str = ""
    remedy: str = ""
    ask: str = ""
    era: str = ""
