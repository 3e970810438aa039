"""Numbers on the command line: one, several by commas, and ranges of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.placing import value_of
from ggmltool.inspect.ranges import doublings, read_range

if TYPE_CHECKING:
    _Several = click.ParamType[tuple[Any, ...]]
else:
    _Several = click.ParamType

_MOST = 1 << 31
_ENDS = re.compile(r"(\d{1,10})\.\.(\d{1,10})")


class Numbers(_Several):
    """Numbers of an option that takes several, from `least` on; a word of `words` stands for its number.

    With `doubled` a range without a step has doublings.
    """

    name = "list"

    def __init__(self, least: int, most: int = _MOST, doubled: bool = False, **words: int) -> None:
        self.least, self.most, self.doubled, self.words = least, most, doubled, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers, each once. Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        out: list[int] = []
        with value_of(param.opts[0] if param is not None else ""):
            for part in str(value).split(","):
                word = self.words.get(part.strip())
                out += [word] if word is not None else self._range(part)
        wrong = next((n for n in out if not self.least <= n <= self.most and n not in self.words.values()), None)
        if wrong is not None:
            self.fail(f"{wrong} is not from {self.least} to {self.most}", param, ctx)
        return tuple(dict.fromkeys(out))

    def _range(self, text: str) -> list[int]:
        """Raises InspectError."""
        if self.doubled and (ends := _ENDS.fullmatch(text.strip())) is not None:
            least, most = int(ends[1]), int(ends[2])
            if 0 < least <= most:
                return list(doublings(least, most))
        return read_range(text, self.most + 1, all=False)


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
