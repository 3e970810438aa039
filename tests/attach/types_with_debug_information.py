"""ggml's structs as debug information alone: an object file that gdb takes with `add-symbol-file`."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from ggmltool.debugger.expressions.commands import written_out
from ggmltool.structs.layout import layout
from ggmltool.structs.types import Typedef, type_name
from tests.attach.programs import NoProgram, scratch

_HEAD = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n"
_STANDARD = ("int", "uint", "size_t", "ssize_t", "FILE", "bool", "__")


@cache
def types(structs: str) -> Path:
    """The structs of a ggml, compiled. Raises NoProgram."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoProgram("there is no C compiler")
    source, made = scratch() / f"types-{structs}.c", scratch() / f"types-{structs}.o"
    source.write_text(declarations(structs))
    subprocess.run([compiler, "-g", "-c", "-w", source, "-o", made], check=True)
    return made


def declarations(structs: str) -> str:
    """The structs as C declares them, each with a variable, without which a compiler says nothing of it."""
    ours = layout(structs)
    lines = [_HEAD]
    lines += [f"{written_out(enum, 'c')};" for enum in ours.enums.values()]
    for name, to in ours._typedefs.items():
        if not name.startswith(_STANDARD) and isinstance(to, Typedef):
            lines.append(f"typedef {type_name(to.to, name)};")
    for i, (tag, struct) in enumerate(ours.structs.items()):
        lines.append(f"{written_out(struct, 'c')};\nstruct {tag} * thing{i};")
    return "\n".join(lines) + "\n"
