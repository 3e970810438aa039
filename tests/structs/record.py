"""Records what gdb says of a ggml's structs and enums: `python -m tests.structs.record SOURCE > ptype/NAME.txt`.

SOURCE is the folder of a ggml, with `include` and `src`; its objects are compiled with -g, and thrown away.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ggmltool.structs.layout import layout

FILES = ("ggml.c", "ggml-alloc.c", "ggml-backend.cpp")
FLAGS = ("-g", "-O0", "-w", "-c", '-DGGML_VERSION=""', '-DGGML_COMMIT=""', "-D_GNU_SOURCE")
NEWEST = layout("0.26")
TAGS = [("struct", tag) for tag in NEWEST.structs] + [("enum", tag) for tag in NEWEST.enums]


def compiled(source: Path, folder: Path) -> Iterator[Path]:
    """The objects of a ggml; what CMake would write for it is empty."""
    (folder / "ggml-version.h").touch()
    includes = [f"-I{part}" for part in (source / "include", source / "src", folder)]
    for name in FILES:
        out = folder / f"{name}.o"
        compiler = "g++" if name.endswith("cpp") else "gcc"
        subprocess.run([compiler, *FLAGS, *includes, str(source / "src" / name), "-o", str(out)], check=True)
        yield out


def said(object: Path) -> Iterator[tuple[str, str]]:
    """What gdb says of each type that an object knows: its tag, and the text."""
    language = "c++" if object.stem.endswith("cpp") else "c"
    questions = ["-ex", f"set language {language}"]
    for kind, tag in TAGS:
        questions += ["-ex", f"echo # {tag}\\n", "-ex", f"ptype {kind} {tag}"]
        questions += ["-ex", f"output sizeof({kind} {tag})", "-ex", "echo \\n"] if kind == "struct" else []
    answer = subprocess.run(["gdb", "-nx", "-batch", *questions, str(object)], capture_output=True, text=True)
    for part in re.split(r"^# ", answer.stdout, flags=re.MULTILINE)[1:]:
        tag, text = part.split("\n", 1)
        if text.startswith("type = ") and "<incomplete type>" not in text and "no data fields" not in text:
            yield tag, text.replace(" : unsigned int {", " {").rstrip("\n") + "\n"


def main(source: str) -> None:
    """Print what is known of all types."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for object in compiled(Path(source), Path(folder)):
            for tag, text in said(object):
                found.setdefault(tag, text)
    sys.stdout.writelines(f"# {tag}\n{found[tag]}" for _, tag in TAGS if tag in found)


if __name__ == "__main__":
    main(sys.argv[1])
