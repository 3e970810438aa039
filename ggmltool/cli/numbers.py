"""Numbers and words on the command line: several by commas, ranges, and words that stand for numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.errors import value_of
from ggmltool.inspect.ranges import read_range

if TYPE_CHECKING:
    _Several = click.ParamType[tuple[Any, ...]]
else:
    _Several = click.ParamType

MOST = 1 << 31


class SeveralNumbers(_Several):
    """Numbers of an option that takes several, from `least` on; a word of `words` stands for its number.

    With `doubled` a range without a step has doublings.
    """

    name = "list"

    def __init__(self, least: int, most: int = MOST, doubled: bool = False, **words: int | None) -> None:
        self.least, self.most, self.doubled, self.words = least, most, doubled, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers, each once. Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        out: list[int] = []
        with value_of(param.opts[0] if param is not None else ""):
            for part in str(value).split(","):
                word = self.words.get(part.strip())
                out += [word] if word is not None else read_range(part, self.most + 1, False, self.doubled)
        wrong = next((n for n in out if not self.least <= n <= self.most and n not in self.words.values()), None)
        if wrong is not None:
            self.fail(f"{wrong} is not from {self.least} to {self.most}", param, ctx)
        return tuple(dict.fromkeys(out))


class NumberOrWord(click.IntRange):
    """A number; a word of `words` stands for its own, or for None."""

    def __init__(self, least: int | None, most: int | None = None, **words: int | None) -> None:
        super().__init__(least, most)
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises click.BadParameter."""
        if value in self.words:
            return self.words[value]
        if not str(value).isdecimal():
            self.fail(f"{value!r} is not a number or {', '.join(self.words)}", param, ctx)
        return super().convert(value, param, ctx)


class SeveralWords(_Several):
    """Words of an option that takes several, each one of `choices`."""

    name = "list"

    def __init__(self, choices: click.Choice[str]) -> None:
        self.one = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The words, each once. Raises click.BadParameter."""
        if isinstance(value, tuple):
            return value
        return tuple(dict.fromkeys(self.one.convert(part.strip(), param, ctx) for part in str(value).split(",")))
