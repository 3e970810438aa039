"""The files that a dead program had mapped, and those that are here: without the same ones its memory says less."""

from __future__ import annotations

from pathlib import Path

from ggmltool.attach.corefile import CoreFile, build_id

_HEAD = 1 << 16
_NAMED = 4
_SHOWN = 12
"""Digits of a build-id that are shown."""


def program_dumped(core: CoreFile, sysroot: str | None = None) -> str | None:
    """The program's file, as the core dump has it, if it is here."""
    place = _place(core.executable, sysroot)
    return place if core.executable and Path(place).is_file() else None


def remarks(core: CoreFile, program: str | None, sysroot: str | None = None) -> list[str]:
    """What is the matter with a dump and the files that belong to it. `program` is the file that is taken for the one
    that dumped, `sysroot` the folder with the files of its machine."""
    out = []
    if core.missing:
        out.append(f"the core dump is cut off: its last {core.missing} bytes are missing; what lay there is unknown")
    here = {core.executable: program} if program is not None else {}
    gone, others = [], []
    for file in core.files:
        place = here.get(file.path) or _place(file.path, sysroot)
        if not file.build_id and file.path != core.executable:
            continue
        if not Path(place).is_file():
            gone.append(file.path)
        elif file.build_id and (found := _build_id(place)) != file.build_id:
            others.append(f"{place} ({found[:_SHOWN] or 'none'}, it was {file.build_id[:_SHOWN]})")
    if gone:
        out.append(f"not here, so that neither its code nor its symbols are known: {_some(gone)}")
    if others:
        out.append(f"another file now than the one that was mapped, by its build-id: {_some(others)}")
    return out


def _place(path: str, sysroot: str | None) -> str:
    """Where a file of the machine is looked for: in its folder, then at the same place here."""
    inside = f"{sysroot}/{path.lstrip('/')}" if sysroot is not None else ""
    return inside if inside and Path(inside).is_file() else path


def _build_id(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return build_id(file.read(_HEAD))
    except OSError:
        return ""


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
