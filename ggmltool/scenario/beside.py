"""What lies beside a file that is not there: which one was probably meant."""

from __future__ import annotations

import os
from itertools import islice

from ggmltool.scenario.errors import did_you_mean

_LOOKED_AT = 10_000
"""Entries of a folder that are looked at."""


def files_beside(argument: str, endings: tuple[str, ...] = ("",)) -> list[str]:
    """The files with these endings in the folder that `argument` names a file of, as they are named from here."""
    folder = os.path.dirname(argument)  # noqa: PTH120 - the names go on as they began
    try:
        with os.scandir(folder or ".") as entries:
            names = [e.name for e in islice(entries, _LOOKED_AT) if e.name.endswith(endings) and e.is_file()]
    except (OSError, ValueError):
        return []
    return sorted(os.path.join(folder, name) for name in names)  # noqa: PTH118


def file_meant(argument: str) -> str:
    """`did you mean "x"?` for the name of a file that is not there, "" if none beside it is called like it."""
    return did_you_mean(argument, files_beside(argument))
