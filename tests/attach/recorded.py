"""The memory of a program that stood still once, for tests that need none: what was read of it, and what it answered.

    python -m tests.attach.recorded 0.26 python -m tests.attach.on_library --ggml 0.26 matmul pipeline

writes `memory/0.26.json.gz`, of the second graph that the program allocates: of all memory only the bytes that were
looked at, of all files only the names.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from ggmltool.attach.gdb.link import FunctionCall
from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Snapshot
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.state.errors import LinkError
from ggmltool.state.memory.pages import PAGE, Memory
from ggmltool.structs.layout import MAX_NAME, exports_of, layout_names

FOLDER = Path(__file__).parent / "memory"
PROPS = 128
ALLOC = "ggml_backend_sched_alloc_graph"


@dataclass
class RecordedLink:
    """Answers as the program did: `pages` by number, `calls` by function and arguments, `asked` by the request."""

    pages: dict[int, bytes]
    calls: dict[str, int | None]
    asked: dict[str, Any]
    read: int = 0
    pid: int = 0

    __hash__ = object.__hash__

    def read_many(self, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Memory at several places."""
        return [self._read(*span) for span in spans]

    def _read(self, address: int, length: int) -> bytes:
        self.read += length
        numbers = range(address // PAGE, (address + length - 1) // PAGE + 1)
        if len(numbers) > len(self.pages) or not all(n in self.pages for n in numbers):
            return b""
        return b"".join(self.pages[n] for n in numbers)[address % PAGE :][:length]

    def call(self, calls: Sequence[FunctionCall]) -> list[int | None]:
        """What these functions answered."""
        keys = [_key(call) for call in calls]
        if not all(key in self.calls for key in keys):
            raise LinkError("nobody asked that")
        return [self.calls[key] for key in keys]

    def ask(self, verb: str, *arguments: Any) -> Any:
        """What was answered; of many expressions each by itself."""
        if verb == "evaluate_all":
            expressions, first, _ = arguments
            known = self._number(first) is not None
            return [self._number(expression) for expression in expressions] if known else []
        key = json.dumps([verb, *arguments])
        if key not in self.asked:
            raise LinkError("nobody asked that")
        return self.asked[key]

    def _number(self, expression: str) -> Any:
        return self.asked.get(json.dumps(["evaluate", expression]))

    def put(self, address: int, data: bytes) -> None:
        """Write into the image."""
        while data:
            number, at = divmod(address, PAGE)
            page, data, rest = self.pages.get(number, bytes(PAGE)), data[: PAGE - at], data[PAGE - at :]
            self.pages[number] = page[:at] + data + page[at + len(data) :]
            address, data = address + len(data), rest


@dataclass
class RecordedInstance:
    """What is known of the program's ggml."""

    version: str
    release: Release
    structs: str
    symbols: dict[str, int]
    files: tuple[str, ...] = ("libggml-base.so",)
    tells_structs: bool = True
    max_name: int = MAX_NAME


@dataclass
class RecordedSession:
    """A program that stands still forever, at a scheduler and a graph; `spans` are the places that were read."""

    link: RecordedLink
    instance: RecordedInstance
    sched: int
    graph: int
    spans: list[tuple[int, int]] = field(default_factory=list)

    def snapshot(self) -> Snapshot:
        """What it holds."""
        return read_snapshot(self, self.sched, self.graph, ALLOC, "after")


def recorded(name: str) -> RecordedSession:
    """A program that was recorded, anew for each test."""
    saved, pages, spans = _saved(name)
    link = RecordedLink(dict(pages), dict(saved["calls"]), dict(saved["asked"]))
    instance = RecordedInstance(saved["version"], RELEASES[saved["release"]], saved["structs"], saved["symbols"])
    return RecordedSession(link, instance, saved["sched"], saved["graph"], spans)


@cache
def _saved(name: str) -> tuple[dict[str, Any], dict[int, bytes], list[tuple[int, int]]]:
    """What was recorded, its memory by page, and the places that were read."""
    saved = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    link = RecordedLink({}, {}, {})
    spans = [(address, base64.b64decode(data)) for address, data in saved["memory"]]
    for address, data in spans:
        link.put(address, data)
    return saved, link.pages, [(address, len(data)) for address, data in spans]


def _key(call: FunctionCall) -> str:
    return json.dumps([call.address, *call.arguments])


def record(program: Sequence[str]) -> dict[str, Any]:
    """What is read of a program after it has allocated a graph, its second."""
    spans: dict[tuple[int, int], bytes] = {}
    calls: dict[str, int | None] = {}
    asked: dict[str, Any] = {}
    read = Memory.read

    def reading(self: Memory, address: int, length: int) -> bytes:
        spans[address, length] = data = read(self, address, length)
        return data

    with AttachSession.launch(program) as session:
        for _ in range(2):
            session.stop_at([ALLOC])
        sched, graph = session.link.arguments()[:2]
        session.finish()
        link, ask, call, many = session.link, session.link.ask, session.link.call, session.link.read_many

        def asking(verb: str, *arguments: Any) -> Any:
            answer = ask(verb, *arguments)
            if verb == "evaluate_all":
                told = zip(arguments[0], answer, strict=False)
                asked.update({json.dumps(["evaluate", e]): n for e, n in told if n is not None})
            else:
                asked[json.dumps([verb, *arguments])] = answer
            return answer

        def calling(wanted: Sequence[FunctionCall]) -> list[int | None]:
            answers = call(wanted)
            calls.update(zip(map(_key, wanted), answers, strict=True))
            for asked_for in wanted:
                if asked_for.result == "void":
                    # It writes into a page of ours.
                    page = asked_for.arguments[-1]
                    spans[page, PROPS] = many([(page, PROPS)])[0]
            for address in answers:
                text = many([(address or 0, 32)])[0].split(b"\0", 1)[0] if address else b""
                if address and text.isascii() and text:
                    spans[address, len(text) + 1] = text + b"\0"
            return answers

        with mock.patch.object(Memory, "read", reading), mock.patch.multiple(link, ask=asking, call=calling, pid=0):
            snapshot = read_snapshot(session, sched, graph, ALLOC, "after")
        used = {"ggml_type_name", "ggml_op_name", "ggml_unary_op_name", "ggml_glu_op_name"}
        used.update(function for name in layout_names() for function in exports_of(name))
        symbols = {name: at for name, at in session.instance.symbols.items() if name in used}
        instance = session.instance
    return {
        "version": instance.version,
        "release": instance.release.name,
        "structs": instance.structs,
        "symbols": symbols,
        "sched": snapshot.sched.address,
        "graph": snapshot.graph.address,
        "calls": calls,
        "asked": {key: _short(answer) for key, answer in asked.items()},
        "memory": [[a, base64.b64encode(data).decode()] for (a, _), data in sorted(spans.items()) if data],
    }


def _short(answer: Any) -> Any:
    """Of the mappings those that can be run, without folders."""
    if not isinstance(answer, list):
        return answer
    return [[first, end, rights, Path(file).name] for first, end, rights, file in answer if "x" in rights]


if __name__ == "__main__":
    out = gzip.compress(json.dumps(record(sys.argv[2:])).encode(), mtime=0)
    (FOLDER / f"{sys.argv[1]}.json.gz").write_bytes(out)
