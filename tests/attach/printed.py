"""What gdb prints, held against what a session of somebody's has printed: values by field, addresses all alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

_POINTER = re.compile(r"0x[1-9a-f][0-9a-f]*(?: <[^>]*>)?(?: \"\")?")
Parsed = str | dict[str, "Parsed"] | list["Parsed"]


def answers(said: str) -> Iterator[str]:
    """What gdb printed to each command, in order."""
    for part in said.split("(gdb) ")[1:]:
        yield part.partition("\n")[2].rstrip("\n")


def parsed(text: str) -> Parsed:
    """A value as gdb prints it: structs by field, those inside of an address spread out; pointers are all alike."""
    text = _POINTER.sub("0x1", text).strip()
    if text.startswith("type = "):
        return text.replace("    size_t offset;\n", "").replace("    struct buffer_address addr;\n", "")
    if not (text.startswith("{") and text.endswith("}")):
        return text
    parts = list(_parts(text[1:-1]))
    if re.match(r"\w+ = ", parts[0]):
        out: dict[str, Parsed] = {}
        for part in parts:
            field, _, value = part.partition(" = ")
            inner = parsed(value)
            if field in ("addr", "leaf") and isinstance(inner, dict):
                out.update(inner)
            else:
                out[field] = inner
        return out
    return [parsed(part) for part in parts]


def _parts(text: str) -> Iterator[str]:
    """What commas part that stand in no braces and no quotes."""
    depth, start, quoted = 0, 0, False
    for i, char in enumerate(text):
        quoted ^= char == '"'
        depth += 0 if quoted else {"{": 1, "}": -1}.get(char, 0)
        # A text goes on behind a comma: "a", '\\000' <repeats 62 times>.
        if char == "," and not depth and not quoted and not text[i + 1 :].lstrip().startswith("'"):
            yield text[start:i].strip()
            start = i + 1
    yield text[start:].strip()


def different(figure: Parsed, answer: Parsed, path: str = "") -> Iterator[str]:
    """The fields that both have, and that are not the same."""
    if isinstance(figure, dict) and isinstance(answer, dict):
        assert figure.keys() & answer.keys(), f"{figure} has nothing of {answer}"
        for field in figure.keys() & answer.keys():
            yield from different(figure[field], answer[field], f"{path}.{field}" if path else field)
    elif isinstance(figure, list) and isinstance(answer, list) and len(figure) == len(answer):
        for one, other in zip(figure, answer, strict=True):
            yield from different(one, other, path)
    elif figure != answer and not (isinstance(figure, str) and isinstance(answer, str) and _fits(figure, answer)):
        yield path


def _fits(figure: str, answer: str) -> bool:
    """Whether they are the same but for what stands where a figure has …"""
    return re.fullmatch(".*".join(map(re.escape, figure.split("…"))), answer) is not None
