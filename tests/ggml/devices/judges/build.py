"""Compiling a judge: ggml's functions about a family of devices, with its core, as a program that answers questions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from os.path import normpath
from pathlib import Path

from tests.ggml.devices.judges.families import Family, Slice
from tests.ggml.devices.judges.slicing import definitions, needed, own_text

HERE = Path(__file__).parent
CORE = ("ggml.c", "ggml-quants.c", "ggml-alloc.c", "ggml-threading.cpp", "ggml-backend.cpp", "gguf.cpp")
_MISSING = re.compile(r"fatal error: (\S+): No such file")
_COMPILED = ("-O0", "-w", "-fexceptions", "-ffunction-sections", "-fdata-sections")
_VERSION = ('GGML_VERSION="0"', 'GGML_COMMIT="0"')


class NotBuiltError(Exception):
    """A judge that does not compile, with what the compiler says."""


def build(family: Family, source: Path, work: Path) -> Path:
    """The judge's program, made in `work` out of ggml's source tree: the folder that has `include` and `src`.

    Raises NotBuiltError where the source is of another shape than the family's description.
    """
    (work / "stubs").mkdir(parents=True, exist_ok=True)
    flags = [f"-I{HERE}", *_includes(source, work), *(f"-D{d}" for d in _VERSION)]
    # The build of ggml makes this one.
    (work / "stubs" / "ggml-version.h").touch()
    objects = [_compiled(HERE / "judge.cpp", work, flags)]
    objects += [
        _compiled(_cut(family, part, source, work), work, flags) for part in family.slices if _has(part, family, source)
    ]
    objects += [_compiled(source / "src" / name, work, flags) for name in CORE]
    program = work / "judge"
    # The judge's own ggml_abort stands before ggml's; what no answer needs may name what is not there.
    _run(["g++", "-o", str(program), *map(str, objects), "-Wl,-z,muldefs,--gc-sections", "-pthread"])
    return program


def _includes(source: Path, work: Path) -> list[str]:
    return [f"-I{work / 'stubs'}", f"-I{source / 'include'}", f"-I{source / 'src'}"]


def _has(part: Slice, family: Family, source: Path) -> bool:
    """Whether this release has the functions: what they decide may be new."""
    file = source / "src" / family.folder / part.file
    return part.after != "" or (file.exists() and part.roots[0] in file.read_text("utf-8"))


def _cut(family: Family, part: Slice, source: Path, work: Path) -> Path:
    """The functions of a slice as a source file between ours."""
    folder = source / "src" / family.folder
    preprocessed = _preprocessed(family, folder / part.file, source, work)
    text = own_text(preprocessed, lambda path: folder in Path(normpath(path)).parents)
    try:
        pieces = needed(definitions(text), part.roots, family.given)
    except LookupError as error:
        raise NotBuiltError(f"{part.file}: {error.args[0]}") from error
    out = work / f"{Path(part.file).stem}-{part.roots[0]}.cpp"
    after = f'#include "{part.after}"\n' if part.after else ""
    out.write_text(f'#include "{family.prelude}"\n' + "\n".join(map(str, pieces)) + f"\n{after}", "utf-8")
    return out


def _preprocessed(family: Family, file: Path, source: Path, work: Path) -> str:
    """What the preprocessor makes of a file, with empty files for the headers that are not there."""
    flags = [*_includes(source, work), *(f"-D{d}" for d in family.defines)]
    while True:
        done = subprocess.run(
            ["g++", "-E", "-x", "c++", "-std=c++17", "-DNDEBUG", *flags, str(file)], capture_output=True, text=True
        )
        if done.returncode == 0:
            return done.stdout
        missing = _MISSING.search(done.stderr)
        if missing is None or ".." in missing[1]:
            raise NotBuiltError(done.stderr)
        stub = work / "stubs" / missing[1]
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.touch()


def _compiled(file: Path, work: Path, flags: Sequence[str]) -> Path:
    out = work / f"{file.name}.o"
    if file.name in CORE and out.exists() and out.stat().st_mtime > file.stat().st_mtime:
        return out
    compiler = ["gcc", "-std=gnu11"] if file.suffix == ".c" else ["g++", "-std=c++17"]
    _run([*compiler, *_COMPILED, "-c", *flags, "-o", str(out), str(file)])
    return out


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotBuiltError(f"{' '.join(command)}\n{done.stderr}")
