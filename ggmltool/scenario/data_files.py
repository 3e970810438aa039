"""npy and GGUF files beside a scenario: they lie at or below its folder, and are looked at before they are needed."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.tensor import MAX_DIMS, Dims
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NPY_KINDS = "biuf"


def inside_folder(file: str, folder: Path | None) -> Path:
    """The file, links resolved. Raises Mistake where it lies outside of the folder or is no regular file."""
    base = (folder if folder is not None else Path.cwd()).resolve()
    try:
        path = (base / file).resolve()
        if not path.is_relative_to(base):
            raise Mistake(f"{quoted(file)} lies outside of the scenario's folder", "put it at or below the scenario")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise Mistake(f"there is no file {quoted(file)}", "paths start at the scenario's folder") from None
    except (OSError, ValueError, RuntimeError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else "this is no file name"
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
        raise Mistake(f"{quoted(file)} is no npy file that can be read: {_first_line(e)}") from None
    if not isinstance(array, np.ndarray):
        raise Mistake(f"{quoted(file)} is an archive, not an npy file")
    if array.dtype.kind not in _NPY_KINDS:
        raise Mistake(f"the array in {quoted(file)} holds no numbers but {quoted(array.dtype)}")
    return tuple(int(n) for n in array.shape)


def _first_line(e: Exception) -> str:
    return quoted(str(e).split("\n", 1)[0])


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an npy file that was checked before."""
    import numpy as np

    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in a GGUF file; `type_id` is ggml's number of its type."""

    type_id: int
    ne: Dims
    data: Any

    def raw(self) -> bytes:
        return bytes(self.data.tobytes())

    def values(self) -> NDArray[Any]:
        """The values, of shape `ne` reversed."""
        from ggmltool.scenario.encode import decode

        return decode(self.raw(), TYPES_BY_ID[self.type_id], self.ne)


def check_gguf_file(path: Path, file: str) -> None:
    """Raise Mistake unless the file starts as GGUF does."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as e:
        raise Mistake(f"{quoted(file)} cannot be read: {e.strerror}") from None
    if magic != b"GGUF":
        raise Mistake(f"{quoted(file)} is no GGUF file")


def read_gguf_tensor(path: Path, name: str) -> GgufTensor:
    """A tensor of a GGUF file by its name. Raises Mistake where there is none, or the file is damaged."""
    tensors = _gguf_tensors(path, path.stat().st_mtime_ns)
    if name not in tensors:
        hint = did_you_mean(name, tensors)
        raise Mistake(f"{quoted(path.name)} has no tensor {quoted(name)}", hint)
    return tensors[name]


@lru_cache(maxsize=4)
def _gguf_tensors(path: Path, changed: int) -> dict[str, GgufTensor]:
    """The tensors of a GGUF file, mapped, not read; `changed` keeps a stale one from being used."""
    import gguf
    import numpy as np

    try:
        with np.errstate(all="raise"):
            reader = gguf.GGUFReader(path)
    except IndexError:
        raise Mistake(f"{quoted(path.name)} is a damaged GGUF file: it ends too early") from None
    except Exception as e:  # gguf checks little of what a file says; what it then stumbles over is no news to anybody
        raise Mistake(f"{quoted(path.name)} is a damaged GGUF file: {_first_line(e)}") from None
    out: dict[str, GgufTensor] = {}
    for t in reader.tensors:
        extents = [int(n) for n in t.shape][:MAX_DIMS]
        extents += [1] * (MAX_DIMS - len(extents))
        ne: Dims = (extents[0], extents[1], extents[2], extents[3])
        if int(t.tensor_type) in TYPES_BY_ID:
            out[str(t.name)] = GgufTensor(int(t.tensor_type), ne, t.data)
    return out
