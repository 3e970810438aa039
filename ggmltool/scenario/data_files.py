"""Files beside a scenario: they lie at or below its folder, and are looked at before they are needed."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.scenario.errors import Mistake, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NPY_KINDS = "biuf"


def inside_folder(file: str, folder: Path | None) -> Path:
    """The file, links resolved. Raises Mistake if it lies outside of the folder or is no regular file."""
    base = (folder if folder is not None else Path.cwd()).resolve()
    try:
        path = (base / file).resolve()
        if not path.is_relative_to(base):
            raise Mistake(f"{quoted(file)} lies outside of the scenario's folder", "put it at or below the scenario")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise Mistake(f"there is no file {quoted(file)}", "paths start at the scenario's folder") from None
    except (OSError, ValueError, RuntimeError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else "this is not a file name"
        raise Mistake(f"{quoted(file)} cannot be read: {reason}") from None
    if not stat.S_ISREG(mode):
        raise Mistake(f"{quoted(file)} is not a regular file")
    return path


def check_npy_file(path: Path, file: str) -> tuple[int, ...]:
    """The shape of the array in an npy file of numbers. Raises Mistake for any other file."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as e:  # the header is read as Python: a tokenizer's and a parser's errors come out, too
        raise Mistake(f"{quoted(file)} is not an npy file that can be read: {_first_line(e)}") from None
    if not isinstance(array, np.ndarray):
        raise Mistake(f"{quoted(file)} is an archive, not an npy file")
    if array.dtype.kind not in _NPY_KINDS:
        raise Mistake(f"the array in {quoted(file)} holds {quoted(array.dtype)}, not numbers")
    return tuple(int(n) for n in array.shape)


def _first_line(e: Exception) -> str:
    return quoted(str(e).split("\n", 1)[0])


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an npy file that was checked before."""
    import numpy as np

    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
