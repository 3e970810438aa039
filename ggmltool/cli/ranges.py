"""Numbers on the command line: one, several by commas, and ranges of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _Several = click.ParamType[tuple[Any, ...]]
else:
    _Several = click.ParamType

_RANGE = re.compile(r"(\d{1,10})(?:\.\.(\d{1,10})(?::(\d{1,10}))?)?")
_MOST = 1 << 31
_VALUES = 20_000
"""Values of one range, at most."""


def read_range(text: str, most: int, option: str, all: bool = True) -> list[int]:
    """`0..33`, `0..32:4`, `1,2,8`, `all` (which is `most`), or several of them by commas; beyond `most` all is one.

    Raises click.BadParameter.
    """
    out: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if part.strip() == "all" and all:
            out.append(most)
        elif not found or int(found[3] or 1) == 0:
            raise click.BadParameter(f"{part!r} is not a number or a range, e.g. 0..32:4", param_hint=f"'{option}'")
        else:
            first = int(found[1])
            last = int(found[2]) if found[2] else first
            numbers = range(first, min(last, max(first, most)) + 1, int(found[3] or 1))
            if len(numbers) > _VALUES:
                raise click.BadParameter(
                    f"{part!r} has {len(numbers)} numbers; the limit is {_VALUES}", param_hint=f"'{option}'"
                )
            out += [min(n, most) for n in numbers]
    if not out:
        raise click.BadParameter(
            f"{text!r} is an empty range; its first number is larger than its last", param_hint=f"'{option}'"
        )
    return list(dict.fromkeys(out))


class Numbers(_Several):
    """Numbers of an option that takes several, from `least` on; a word of `words` stands for its number."""

    name = "list"

    def __init__(self, least: int, most: int = _MOST, **words: int) -> None:
        self.least, self.most, self.words = least, most, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers, each once. Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        option = param.opts[0] if param is not None else ""
        out: list[int] = []
        for part in str(value).split(","):
            word = self.words.get(part.strip())
            out += [word] if word is not None else read_range(part, self.most + 1, option, all=False)
        wrong = next((n for n in out if not self.least <= n <= self.most and n not in self.words.values()), None)
        if wrong is not None:
            self.fail(f"{wrong} is not from {self.least} to {self.most}", param, ctx)
        return tuple(dict.fromkeys(out))


class Words(_Several):
    """Words of an option that takes several, each one of `choices`."""

    name = "list"

    def __init__(self, choices: click.Choice[str]) -> None:
        self.one = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The words, each once. Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(self.one.convert(part.strip(), param, ctx) for part in str(value).split(",")))
