"""Which of ggml's messages a text is: a line of a log or a terminal, with its names, numbers and prefixes, or a part.

Quotes, case, spaces, what printf filled in, and whatever stands before or behind do not matter.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache
from itertools import islice
from typing import NamedTuple

from ggmltool.ggml.messages import MessageWords, messages
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.inspect.messages.conditions import Required, assertions, required

LIKE = 0.72
"""How much alike (0 to 1) a text must be that has no message's words in full."""
ALIKE = 0.8
"""The same for an assertion that can be read."""
NEAR = 0.55
"""How much alike it must be to be named as near."""
NEAREST = 3
FILLED = re.compile(r"%[-0-9.]*(?:zu|zx|lu|[cdfpsux])")
"""What printf fills in."""
FILE = re.compile(r"(?<![\w.+-])([\w+-][\w.+-]*\.(?:c|cpp|cc|h|hpp|cu|cuh|m|mm)):\d+", re.IGNORECASE)
"""A source file and a line in it."""
ASSERTION = "assertion"
"""The key of an assertion that has no entry of its own, but can be read."""

_GROUPS = {"d": r"(-?\d{1,20})", "u": r"(\d{1,20})", "f": r"(-?\d{1,20}(?:\.\d{1,20})?)"}
_LONGEST = 1000
_FILLED_IN = 300
_LINES = 10_000
_COMPARED = 3
_SHORT = 11
_WORDS = 8
_SLIPS = 4
_WORD = re.compile(r"\w+")
_QUOTES = re.compile("[\"'`\\\\“”‘’]")
_ASSERTED = re.compile(r"ggml_assert\s*\((.*)\)|ggml_assert: \S+:\d+: (.*)", re.IGNORECASE)
_BEFORE = re.compile(r"^.*?(?<![\w.+-])[\w.+-]+\.(?:c|cpp|cc|h|hpp|cu|cuh|m|mm):\d+: ?")
_DIED = re.compile(r"ggml_assert|\.(?:c|cpp|cc|h|hpp|cu|cuh|m|mm):\d+: |\b(?:cuda|rocm|musa|cann) error", re.IGNORECASE)
_META = re.compile(
    r"ggml-backend-meta\.cpp:\d+: |\bsrc_ss\[|\bsplit_state\.|GGML_BACKEND_SPLIT_AXIS_|"
    r"ggml_backend_(?:buffer_|buft_|dev_)?is_meta\("
)
_LEVELS = {"info": 0, "warning": 1, "error": 2}
_DEATH = 3
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Za-z0-9]")
_PREFIX = re.compile(r"^(?:\[\w+\] )?(?:\d+\.\d\d\.\d{3}\.\d{3} )?(?:[DIWE] )? *")
"""What llama.cpp puts before a line: the port of a server's child, the time, the level."""
_CONTINUES = re.compile(r"current device: |^ *(?:cu|hip|mu)\w+\(|^ *ggml_\w+\(")
"""What CUDA says after `CUDA error`, in lines of their own."""


class Match(NamedTuple):
    """A message, its text that is nearest, and how near (1: every word of it is there).

    `said` is the line it was found in, `line` its number; `filled` is what printf filled in, in order.
    """

    key: str
    text: str
    score: float
    said: str = ""
    line: int = 1
    filled: tuple[str, ...] = ()


class _Template(NamedTuple):
    """`words` is the text without what printf fills in, `said` what it says to people, where a condition does; `pieces`
    are its parts that stand as they are, `piece` the longest of them."""

    key: str
    text: str
    words: str
    said: str
    piece: str
    pieces: tuple[str, ...]
    weight: int
    files: tuple[str, ...]

    def may_be_in(self, line: str) -> bool:
        """Whether the file that a line names, if it names one, is among those that print it."""
        return not self.files or not (named := FILE.findall(line)) or not set(named).isdisjoint(self.files)


def find(text: str) -> Match | None:
    """The message that a text is, None if none is near enough; of several lines the one that matters most."""
    found = find_all(text)
    if found and found[0].key != ASSERTION:
        return found[0]
    if found:
        return _reworded(found[0].said, ALIKE) or found[0]
    return _reworded(text, LIKE)


def find_all(text: str) -> list[Match]:
    """The messages in a text, each once, what matters most first: where the program died, then the first error.

    Only what has all the words of a message counts, and conditions that can be read. Of a very long text the
    beginning and the end are looked at.
    """
    ranked: dict[tuple[str, str], tuple[int, int, Match]] = {}
    for number, line in _joined(_ends(text.splitlines())):
        plain = _plain(line[:_LONGEST]).strip()
        best = max(_exact(plain), key=lambda found: found[0], default=None)
        if best is not None:
            template = best[1]
            match = Match(template.key, template.text, 1.0, line, number, _filled_in(template.text, line))
        else:
            read = _read(line)
            if read is None:
                continue
            match = read._replace(line=number)
        message = messages().get(match.key)
        level = _DEATH if _DIED.search(line) else _LEVELS[message.level] if message is not None else _DEATH
        ranked.setdefault((match.key, match.text if match.key == ASSERTION else ""), (-level, number, match))
    return [match for *_, match in sorted(ranked.values(), key=lambda ranking: ranking[:2])]


def nearest(text: str, least: float = NEAR) -> list[Match]:
    """The messages that are most like a text, the nearest first, each once; none if nothing is near."""
    best: dict[str, Match] = {}
    for match, *_ in _near(text, least):
        if match.key not in best or match.score > best[match.key].score:
            best[match.key] = match
    return sorted(best.values(), key=lambda m: -m.score)[:NEAREST]


def _near(text: str, least: float) -> Iterator[tuple[Match, _Template, str, str]]:
    """The messages at least so much like a part of a text, each with that part and the words of it that are."""
    for line in islice(_lines(text), _COMPARED):
        parts = set(_parts(line))
        for template in _templates():
            if template.weight < _WORDS or not template.may_be_in(line):
                continue
            for words in {template.words, template.said}:
                for part in parts:
                    score = _alike(part, words, least)
                    if score >= least:
                        yield Match(template.key, template.text, score, line), template, part, words


def _reworded(text: str, least: float) -> Match | None:
    """The message that a text has every word of, up to slips; or the one in which alone the text stands."""
    whole: list[Match] = []
    around: dict[str, Match] = {}
    for match, template, part, words in _near(text, least):
        pieces = template.pieces if words == template.words else [words]
        if _same_words(_WORD.findall(part), [_WORD.findall(piece) for piece in pieces]):
            whole.append(match)
        elif part in words:
            around.setdefault(match.key, match)
    if whole:
        return max(whole, key=lambda m: m.score)
    return next(iter(around.values())) if len(around) == 1 else None


def _same_words(said: list[str], pieces: list[list[str]]) -> bool:
    """Whether words are those of a message in order, each in a spelling near to it, with others only where printf fills
    in. A message with one word replaced says something else."""
    ends = {0}
    for n, piece in enumerate(pieces):
        starts = range(min(ends), len(said) - len(piece) + 1) if n else range(1)
        ends = {i + len(piece) for i in starts if len(said) >= i + len(piece) and all(map(_slip, piece, said[i:]))}
        if not ends:
            return False
    return len(said) in ends


def _slip(word: str, other: str) -> bool:
    """Whether one is the other, or it with a letter or two wrong."""
    if word == other:
        return True
    if min(len(word), len(other)) < _SLIPS or word[0] != other[0]:
        return False
    return SequenceMatcher(None, word, other, autojunk=False).ratio() >= ALIKE


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        plain = _plain(line[:_LONGEST]).strip()
        if plain:
            yield plain


def _ends(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The first and the last lines with their numbers, counted from 1."""
    for i, line in enumerate(lines[:_LINES], 1):
        yield i, line
    for i in range(max(len(lines) - _LINES, _LINES), len(lines)):
        yield i + 1, lines[i]


def _joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines without colors and llama.cpp's prefix; what CUDA says in further lines is joined."""
    held: tuple[int, str] | None = None
    for number, line in lines:
        line = _PREFIX.sub("", _ANSI.sub("", line[:_LONGEST]), count=1).rstrip()
        if held is not None and len(held[1]) < _LONGEST and _CONTINUES.search(line):
            held = held[0], f"{held[1]} {line.strip()}"
            continue
        if held is not None:
            yield held
        held = (number, line) if line else None
    if held is not None:
        yield held


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", _QUOTES.sub("", text)).lower()


@cache
def _templates() -> tuple[_Template, ...]:
    return tuple(_template(key, text, message.files) for key, message in messages().items() for text in message.texts)


@cache
def _pieces() -> list[tuple[str, _Template]]:
    """The templates that have words, each with its piece, which a line must have first of all."""
    return [(t.piece, t) for t in _templates() if t.weight]


def _template(key: str, text: str, files: tuple[str, ...]) -> _Template:
    """A text as a pattern: what printf fills in may be anything, the function's name in front may be missing."""
    pieces = [_plain(piece) for piece in FILLED.split(_body(text).strip())]
    words = " ".join(piece.strip() for piece in pieces).strip()
    said = re.search(r'"(.+)"', text)
    said_words = _plain(said[1]) if said is not None else words
    piece = max((piece.strip() for piece in pieces), key=len)
    weight = len(words) if any(c.isalnum() for c in words) else 0
    return _Template(key, text, words, said_words, piece, tuple(pieces), weight, files)


def _body(text: str) -> str:
    """The text without the function's name in front."""
    return text.removeprefix("%s: ")


def _exact(line: str) -> Iterator[tuple[tuple[bool, int, bool], _Template]]:
    """Templates all of whose words are there, and what makes one more fitting than another."""
    asserted = _asserted(line)
    behind = _BEFORE.sub("", line)
    for t in [t for piece, t in _pieces() if piece in line and t.may_be_in(line)]:
        whole = t.words in (asserted, line, behind)
        part = t.weight >= _SHORT and _in_order(t.pieces, line)
        if whole or part:
            named = any(f.lower() in line for f in (*messages()[t.key].functions, *t.files))
            yield (whole, t.weight, named), t


def _in_order(pieces: Sequence[str], line: str) -> bool:
    """Whether a line has the pieces one behind the other, each no further than _FILLED_IN from the one before."""
    ends, most = [0], len(line)
    for piece in pieces:
        found = []
        start = line.find(piece)
        while start >= 0:
            at = bisect_right(ends, start) - 1
            if at >= 0 and start - ends[at] <= most:
                found.append(start + len(piece))
            start = line.find(piece, start + 1) if start < len(line) else -1
        if not found:
            return False
        ends, most = found, _FILLED_IN
    return True


def _asserted(line: str) -> str | None:
    """The condition that a line says failed."""
    found = _ASSERTED.search(line)
    return (found[1] or found[2] or "").strip() if found is not None else None


@cache
def _raw_pattern(text: str) -> re.Pattern[str]:
    """A text as a pattern of a line as it stands, with a group for each thing that printf filled in."""
    body = _body(text).strip()
    kinds = [found[0][-1] for found in FILLED.finditer(body)]
    out = []
    for i, piece in enumerate(FILLED.split(body)):
        words = r"\s+".join(re.escape(word) for word in _QUOTES.sub("", piece).split())
        before, after = (r"\s*" if edge.isspace() else "" for edge in (piece[:1], piece[-1:]))
        out.append(f"{before}{words}{after}" if words else r"\s+" if piece else "")
        if i < len(kinds):
            out.append(_GROUPS.get(kinds[i], r"(.{0,300})" if i == len(kinds) - 1 else r"(.{0,300}?)"))
    return re.compile("".join(out), re.IGNORECASE)


def _filled_in(text: str, line: str) -> tuple[str, ...]:
    """What printf filled into a text; nothing where the line has it in part only."""
    if not FILLED.search(_body(text)):
        return ()
    found = _raw_pattern(text).search(_QUOTES.sub("", line))
    return tuple(value.strip() for value in found.groups()) if found is not None else ()


def _read(line: str) -> Match | None:
    """An assertion that has no entry, where its condition can be read; a condition alone only if it is of tensors."""
    asserted = _asserted(line)
    condition = (asserted if asserted is not None else _BEFORE.sub("", line)).strip()
    if is_of_meta(line) and condition:
        return Match(ASSERTION, condition, 1.0, line)
    if asserted is None and not re.search(r"->|ggml_(?:is|are|can)_", condition):
        return None
    found = required(condition) if len(condition) < _LONGEST else None
    if found is None or (asserted is None and found.kinds <= {"pointer"}):
        return None
    return Match(ASSERTION, condition, 1.0, line)


def is_of_meta(line: str) -> bool:
    """Whether a line is an assertion of the backend of split mode tensor, by its file or by what it is about."""
    return _META.search(line) is not None


def _parts(line: str) -> Iterator[str]:
    """What may be the message in a line: all of it, what is behind file and line, what is asserted."""
    yield line
    yield _BEFORE.sub("", line)
    asserted = _asserted(line)
    if asserted is not None:
        yield asserted


def _alike(a: str, b: str, least: float) -> float:
    """How much two texts are alike, from 0 to 1, and 0 below `least`; several words of a message are like it."""
    if len(a) >= _SHORT and " " in a and a in b:
        return 0.9 + 0.1 * len(a) / len(b)
    if 2 * min(len(a), len(b)) < least * (len(a) + len(b)):
        return 0.0
    # A matcher takes far longer to make than the letters that both have, which rule out almost all.
    letters = _letters(b)
    common = sum(min(n, letters[letter]) for letter, n in _letters(a).items() if letter in letters)
    if 2 * common < least * (len(a) + len(b)):
        return 0.0
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


@lru_cache(4096)
def _letters(text: str) -> Counter[str]:
    return Counter(text)


_KERNEL = re.compile(r"\bsrc[0-9]\b|\bdst\b|\b(?:ne|nb)[01]?[0-3]\b|\bnth\b|\bith\b")
_BYTES = re.compile(r"\boffset|\bsize\b|\bchunk_|\brow_|\bblck_")
_CPU_FILES = re.compile(r"ops|binary-ops|unary-ops|vec|ggml-cpu|ggml-quants|quants|repack|mmq|sgemm")


class Explained(NamedTuple):
    """A message as it is to be told. `where` is who prints it, `title` its text with the values that were pasted,
    which `values` has by place."""

    key: str
    title: str
    where: str
    texts: tuple[str, ...]
    functions: tuple[str, ...]
    era: str
    told: MessageWords
    values: dict[str, str]


def explained(found: Match) -> Explained:
    """What to say of it."""
    if found.key == ASSERTION:
        return _assertion(found)
    message = messages()[found.key]
    where = message.program if message.program != "ggml" else f"the ggml of {message.era}" if message.era else ""
    values = message.values(found.text, found.filled)
    return Explained(
        found.key, _title(found), where or f"ggml {DEFAULT.name}", message.texts, message.functions, message.era,
        message.told(values), values,
    )  # fmt: skip


def _title(found: Match) -> str:
    """The message's text with the values in it; `…` where the pasted text has none."""
    values = iter(found.filled)
    return FILLED.sub(lambda _: next(values, "") or "…", found.text.removeprefix("%s: "))


def _assertion(found: Match) -> Explained:
    asked = required(found.text) or Required(found.text, frozenset())
    told = assertions().told[_asserter(found, asked.kinds)]
    remedies = [remedy for kind, remedy in assertions().remedies.items() if kind in asked.kinds]
    remedy = "; ".join(remedies) or "look at the op's parameters and sources"
    words = MessageWords(*(text.format(words=asked.words, remedy=remedy) for text in told))
    where = "an assertion of ggml's, read from its condition"
    title = found.text if f": {found.text}" in found.said else f"GGML_ASSERT({found.text})"
    return Explained(found.key, title, where, (found.text,), (), "", words, {})


def _asserter(found: Match, kinds: frozenset[str]) -> str:
    """Who asserts: whoever builds the graph, the CPU that computes, a device, a program of its own."""
    if is_of_meta(found.said):
        return "meta_bytes" if _BYTES.search(found.text) else "meta"
    file = FILE.search(found.said)
    if file is None:
        if _KERNEL.search(found.text):
            return "computed"
        return "built" if kinds & assertions().remedies.keys() else "stopped"
    name, _, suffix = file[1].rpartition(".")
    if suffix in ("cu", "cuh", "m", "mm") or re.match(r"ggml-(?!cpu|quants|backend|alloc)", name):
        return "device"
    if _CPU_FILES.match(name):
        return "computed"
    return "built" if name == "ggml" else "stopped"
