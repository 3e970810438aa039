"""Cutting functions out of C and C++: the definitions of a preprocessed source, and those that some of them need.

A backend's source wants its vendor's headers. What a device says of ops is plain code in it, which needs none: the
functions asked for, and whatever they name, are taken, in their order; the rest stays out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MARKER = re.compile(r'# \d+ "([^"]*)"')
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|\d[\w.\']*|::|[{}()\[\];,=<>]|\S', re.ASCII
)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES = frozenset(("struct", "class", "union", "enum"))
_NAMELESS = frozenset(("static_assert", "template"))
"""What begins a declaration that names nothing new, such as the instance of a template."""

_OPENING = re.compile(r'(extern\s*"C"|(?:inline\s+)?namespace(?:\s+\w+)?)\s*\{')


@dataclass(frozen=True, slots=True)
class Definition:
    """A declaration or definition: what it names, and the words in it. `inside` are the blocks around it."""

    text: str
    names: frozenset[str]
    words: frozenset[str]
    inside: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f"{block} {{ " for block in self.inside) + self.text + " }" * len(self.inside)


def own_text(preprocessed: str, is_own: Callable[[Path], bool]) -> str:
    """What a preprocessor's output has from files that are the source's own, without markers and pragmas."""
    out, own = [], False
    for line in preprocessed.splitlines():
        if line.startswith("#"):
            marker = _MARKER.match(line)
            if marker is not None:
                own = is_own(Path(marker[1]))
        elif own:
            out.append(line)
    return "\n".join(out)


def definitions(text: str) -> list[Definition]:
    """Those of a preprocessed text, in their order; blocks of `extern "C"` and namespaces are opened."""
    out: list[Definition] = []
    inside: list[str] = []
    at = 0
    while at < len(text):
        space = re.compile(r"[\s;]*").match(text, at)
        at = space.end() if space is not None else at
        if at == len(text):
            break
        opening = _OPENING.match(text, at)
        if opening is not None:
            inside.append(opening[1])
            at = opening.end()
        elif text[at] == "}":
            inside.pop()
            at += 1
        else:
            end = _end(text, at)
            piece = text[at:end]
            out.append(Definition(piece, frozenset(_names(piece)), frozenset(_WORD.findall(piece)), tuple(inside)))
            at = end
    return out


def needed(all_of_them: Iterable[Definition], roots: Collection[str], given: Collection[str]) -> list[Definition]:
    """The definitions of `roots` and of what they need, without the names that are given elsewhere.

    Raises LookupError where a root is not defined.
    """
    kept = [d for d in all_of_them if not d.names & set(given)]
    by_name: dict[str, list[int]] = {}
    for i, d in enumerate(kept):
        for name in d.names:
            by_name.setdefault(name, []).append(i)
    missing = [root for root in roots if root not in by_name]
    if missing:
        raise LookupError(f"the source does not define {', '.join(missing)}")
    wanted, taken = list(roots), set[int]()
    while wanted:
        for i in by_name.get(wanted.pop(), ()):
            if i not in taken:
                taken.add(i)
                wanted += kept[i].words
    return [kept[i] for i in sorted(taken)]


def _tokens(text: str, at: int) -> Iterator[re.Match[str]]:
    return _TOKEN.finditer(text, at)


def _end(text: str, start: int) -> int:
    """Behind the semicolon of a declaration, or the brace of a function's body."""
    start += _template_head(text[start:])
    depth = 0
    body = function = assigned = False
    for token in _tokens(text, start):
        t = token[0]
        if depth == 0:
            if t == ";":
                return token.end()
            if t == "(":
                function = function or not assigned
            elif t == "=":
                assigned = assigned or not function
            elif t == "{":
                body = function and not assigned
        if t in "({[":
            depth += 1
        elif t in ")}]":
            depth -= 1
            if depth == 0 and t == "}" and body:
                return token.end()
    return len(text)


def _names(piece: str) -> Iterator[str]:
    piece = _without_attributes(piece)
    head, _, inner = piece.partition("{")
    before = head.partition("=")[0] if "operator" not in head else head
    words = _WORD.findall(before)
    if not words or words[0] in _NAMELESS or words[:2] == ["extern", "template"]:
        return
    if words[0] == "using":
        yield words[-1] if "=" not in head else words[1]
    elif words[0] == "typedef":
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", piece)
        yield pointer[1] if pointer is not None else _WORD.findall(piece.rpartition("}")[2])[-1]
        if words[1] in _TYPES:
            yield from _type_names(words[1:], inner)
    elif "(" in before:
        yield _WORD.findall(before.partition("(")[0])[-1]
    elif words[0] in _TYPES and (inner or len(words) == 2):
        yield from _type_names(words, inner)
    else:
        yield re.sub(r"\[.*", "", before, flags=re.DOTALL).strip(" ;\n").rpartition(" ")[2].lstrip("*&")


def _type_names(words: list[str], inner: str) -> Iterator[str]:
    named = [w for w in words[1:3] if w not in _TYPES]
    yield from named[:1]
    if words[0] == "enum":
        for enumerator in inner.rpartition("}")[0].split(","):
            yield from _WORD.findall(enumerator)[:1]


def _without_attributes(piece: str) -> str:
    """Without template heads and __attribute__((…)), whose brackets name nothing."""
    piece = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|alignas\([^()]*\)", "", piece)
    return piece[_template_head(piece) :]


def _template_head(piece: str) -> int:
    """Where `template <…>` ends, at 0 if there is none."""
    if re.match(r"template\s*<", piece) is None:
        return 0
    depth = 0
    for token in _tokens(piece, 0):
        depth += (token[0] == "<") - (token[0] == ">")
        if token[0] == ">" and not depth:
            return token.end()
    return 0
