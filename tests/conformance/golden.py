"""What a step decided, in the form of the golden plans of old releases: what those of all releases have."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import Tensor

Result = dict[str, Any]


def folders(version: str) -> tuple[Path, Path]:
    """Where the golden plans of a release lie: a few in the project, all of them beside it."""
    some = Path(__file__).parent / f"plans_{version.replace('-', '_')}"
    return some, Path(__file__).resolve().parents[3] / "shared" / "golden" / version


def files(version: str) -> list[Path]:
    """The golden plans: all of them where they lie beside the project, else the few in it."""
    some, every = folders(version)
    return sorted(every.glob("*.json.gz")) or sorted(some.glob("*.json.gz"))


def read(file: Path) -> dict[str, Any]:
    """A golden plan."""
    content: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return content


def random_scenarios(version: str) -> list[dict[str, Any]]:
    """Random scenarios, their steps, and what the library did."""
    file = Path(__file__).parent / "data" / f"random-{version}.json.xz"
    content: list[dict[str, Any]] = json.loads(lzma.decompress(file.read_bytes()))
    return content


class Golden:
    """Rows of a scheduler as the golden plans have them."""

    sched: AnyScheduler

    def _backend(self, b: int) -> str | None:
        return self.sched.names[b] if b >= 0 else None

    def _assigned(self, t: Tensor) -> Result:
        s = self.sched
        return {"backend": self._backend(s.assigned[t.index]), "cause": s.assigned_causes[t.index] or ""}

    def _pass(self, nodes: list[Tensor], leafs: list[Tensor]) -> Result:
        """The backends and causes of a graph's tensors now."""
        s = self.sched

        def rows(tensors: list[Tensor]) -> list[list[str | None]]:
            return [[self._backend(s.ids[t.index]), s.causes[t.index] or ""] for t in tensors]

        return {"nodes": rows(nodes), "leafs": rows(leafs)}

    def _splits(self) -> list[Result]:
        return [
            {
                "id": k,
                "backend": self._backend(split.backend_id),
                "i_start": split.i_start,
                "i_end": split.i_end,
                "inputs": [t.label for t in split.inputs],
            }
            for k, split in enumerate(self.sched.splits[: self.sched.n_splits])
        ]

    def _tensor(self, i: int, t: Tensor) -> Result:
        return {
            "index": i,
            "id": t.id,
            "name": t.name,
            "op": Op(t.op).name,
            "type": t.type.name,
            "ne": list(t.ne),
            "nb": list(t.nb),
            **self._assigned(t),
            "view_src": None if t.view_src is None else t.view_src.label,
        }

    def _in_split(self, i: int, t: Tensor) -> Result:
        split = next(k for k, sp in enumerate(self.sched.splits) if sp.i_start <= i < sp.i_end)
        return {"split": split, "src": [None if s is None else s.label for s in t.src]}

    def _copy(self, t: Tensor, b: int, number: int, copy: Tensor) -> Result:
        assigned = self._assigned(copy)
        return {
            "name": copy.name,
            "of": t.label,
            "backend": self.sched.names[b],
            "copy": number,
            "assigned": assigned["backend"],
            "cause": assigned["cause"],
            "ne": list(copy.ne),
            "nb": list(copy.nb),
        }


def joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def alloc_size(t: Tensor) -> int | None:
    return t.buffer.buft.get_alloc_size(t) if t.buffer is not None and t.view_src is None else None
