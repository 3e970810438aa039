"""`ggmltool run`: an answer, nodes as they are computed, and tensors as npy files in a folder with a manifest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import msgspec

from ggmltool.ask.run.record import DumpDocument, DumpedRow
from ggmltool.ask.run.steps import RunQuestion, RunSteps
from ggmltool.cli.derive import Asking, question_command
from ggmltool.cli.errors import CliError
from ggmltool.cli.output import note, replace_file
from ggmltool.show.text import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.run.record import WatchedNode

MANIFEST = "manifest.json"

_LONGEST = 150
"""Characters of a tensor's name in a file's, at most; of a longer one its beginning and a digest."""


def file_name(id: str) -> str:
    """A name for the file of a tensor: what is no letter, digit, `_`, `-`, `.` or `~` is escaped as in a URL.

    >>> file_name("blk.0/attn norm"), file_name("../x"), file_name(".")
    ('blk.0%2Fattn%20norm.npy', '%2E.%2Fx.npy', '%2E.npy')
    """
    name = quote(id, safe="", errors="surrogateescape")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _LONGEST:
        digest = hashlib.sha256(id.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        name = f"{name[: _LONGEST - 17]}~{digest}"
    return f"{name}.npy"


class Dump:
    """A folder that tensors are written to, each as a file of its own. `numbered`: files say which step they are of."""

    def __init__(self, folder: Path, force: bool, numbered: bool) -> None:
        self.folder = folder
        self.force = force
        self.numbered = numbered
        self._tensors: list[DumpedRow] = []

    def check(self, tensors: Iterable[tuple[int, str]]) -> None:
        """Refuse, for these tensors (step and id), what cannot be written or is there already. Raises CliError."""
        if self.folder.exists() and not self.folder.is_dir():
            raise CliError(f"{self.folder} is not a folder")
        if not self.folder.parent.is_dir():
            raise CliError(f"the folder {self.folder.parent} does not exist; make it first")
        names = [MANIFEST, *(self._name(step, id) for step, id in tensors)]
        there = [name for name in names if os.path.lexists(self.folder / name)]
        if there and not self.force:
            more = f" and {len(there) - 1} more exist" if len(there) > 1 else " exists"
            raise CliError(f"{self.folder / there[0]}{more}; --force overwrites")

    def _name(self, step: int, id: str) -> str:
        return f"step{step}-{file_name(id)}" if self.numbered else file_name(id)

    def add(self, node: WatchedNode, values: NDArray[Any]) -> None:
        """Write a tensor. Raises CliError if that fails."""
        import numpy as np

        name = self._name(node.step, node.id)
        self._write(name, lambda file: np.lib.format.write_array(file, values, allow_pickle=False))
        self._tensors.append(DumpedRow.of(name, node, values))

    def finish(self, scenario: str, ggml: str) -> None:
        """Write the manifest, and say how much was written; nothing where nothing was computed."""
        if not self._tensors:
            return
        manifest = DumpDocument(ggml=ggml, scenario=scenario, tensors=self._tensors)
        text = json.dumps(msgspec.to_builtins(manifest), indent=1, ensure_ascii=True) + "\n"
        self._write(MANIFEST, lambda file: file.write(text.encode()))
        note(f"Wrote {count(len(self._tensors), 'tensor')} to {self.folder}")

    def _write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        path = self.folder / name
        try:
            self.folder.mkdir(exist_ok=True)
            replace_file(path, write)
        except OSError as error:
            raise CliError(f"cannot write {path}: {error.strerror or error}") from None


@question_command(RunQuestion)
def run(asking: Asking[RunQuestion]) -> int:
    from ggmltool.ask.run.text import watched_view

    asked, output, opened = asking.question, asking.output, asking.open()
    streamed = output.path is None and not asking.json
    texts: list[str] = []

    def show(node: WatchedNode, values: NDArray[Any] | None) -> None:
        text = watched_view(node, values, len(steps.computed) > 1, output.style) + "\n"
        if streamed:
            output.write(text)
        else:
            texts.append(text)

    several = sum(step.kind == "compute" for step in opened.model.steps) > 1
    dump = None if asked.dump is None else Dump(asked.dump, output.force, several)
    watches = bool(asked.watch)
    steps = RunSteps(
        opened, asked, show if watches else None, None if dump is None else dump.add, quiet=streamed and watches
    )
    steps.check()
    if dump is not None:
        dump.check((step, id) for step, graph in steps.computed for id in sorted(steps.wanted[graph]))
    try:
        answer = steps.do()
    finally:
        if dump is not None:
            dump.finish(opened.title, opened.model.ggml)
    made = None if asking.json else "".join([*texts, answer.shown("text", output.style)])
    return output.answer(answer, asking.format or "text", made)
