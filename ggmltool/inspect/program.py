"""The program that a capture answers for: which one, and of how many tokens it reserves memory for logits."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.show.text import count

_NAMES = {"server": "llama-server", "cli": "llama-cli", "library": "the library"}


def answers_for(meta: Mapping[str, object]) -> str:
    """A line of a capture's `meta`, "" if nothing is known; captures that do not say are the library's.

    >>> answers_for({"program": "server", "n_seq_max": 1, "n_outputs": 1, "n_tokens": 512, "phase": "prompt"})
    'for llama-server, 1 sequence: logits of 1 of 512 tokens'
    """
    n_outputs, n_tokens, n_seqs = (meta.get(key) for key in ("n_outputs", "n_tokens", "n_seq_max"))
    program = _NAMES.get(str(meta.get("program", "library")))
    if not isinstance(n_outputs, int) or not isinstance(n_tokens, int) or not isinstance(n_seqs, int):
        return ""
    if program is None or meta.get("phase") == "tokens":
        return ""
    return f"for {program}, {count(n_seqs, 'sequence')}: logits of {n_outputs} of {count(n_tokens, 'token')}"
