"""What cupy has: the names and parameters that its double (double.py) keeps to, as a data file.

`python -m tests.gpu.record` looks at the cupy that can be imported, which takes no GPU. What the data file has of
another version stays in it only where this one has it too: run it with each version that is to be kept to, the first
time with --new.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("cupy_api.json")

MODULES = ("cupy", "cupy.cuda", "cupy.cuda.runtime", "cupy.lib.stride_tricks", "cupyx.scipy.special")
CLASSES = (
    "cupy.ndarray",
    "cupy.cuda.Device",
    "cupy.cuda.Event",
    "cupy.cuda.MemoryPointer",
    "cupy.cuda.PinnedMemoryPointer",
    "cupy.cuda.Stream",
    "cupy.cuda.MemoryPool",
)

Parameters = list[str] | str
"""The names of a callable's parameters, `*` before those that take any number; or what it is instead of a function."""


def parameters(thing: Any) -> Parameters:
    """The parameters of a function or a class; `ufunc`, `constant`, or `unknown` for what cannot be told."""
    if type(thing).__name__ == "ufunc":
        return "ufunc"
    if not callable(thing):
        return "constant"
    if inspect.isclass(thing) and thing.__module__ == "numpy":
        return "constant"
    try:
        given = inspect.signature(thing).parameters.values()
        return [("*" if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) else "") + p.name for p in given]
    except (TypeError, ValueError):
        return _documented(thing)


def _documented(thing: Any) -> Parameters:
    """The same from the first line of the documentation, where Cython writes it."""
    lines = (thing.__doc__ or "").strip().splitlines()
    match = re.match(r"[\w.]+\((.*)\)", lines[0]) if lines else None
    if match is None:
        return "unknown"
    out = []
    for part in re.split(r",\s*(?![^()]*\))", match[1]):
        name = part.split("=")[0].split(":")[0].split()
        if name and name[-1] != "/":
            out.append(name[-1])
    return out


def present() -> dict[str, dict[str, Parameters]]:
    """What the cupy that can be imported has: by module or class, by name."""
    out: dict[str, dict[str, Parameters]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in MODULES:
            out[module] = _of(import_module(module))
        for path in CLASSES:
            module, _, name = path.rpartition(".")
            out[path] = _of(getattr(import_module(module), name))
    return out


def _of(owner: Any) -> dict[str, Parameters]:
    out = {}
    for name in sorted(dir(owner)):
        if name.startswith("_"):
            continue
        thing = inspect.getattr_static(owner, name) if inspect.isclass(owner) else getattr(owner, name)
        if not inspect.ismodule(thing):
            out[name] = parameters(thing)
    return out


def version() -> str:
    """The version of the cupy that can be imported."""
    found: str = import_module("cupy").__version__
    return found


def read() -> dict[str, Any]:
    """The data file."""
    out: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return out


def both(a: dict[str, Parameters], b: dict[str, Parameters]) -> dict[str, Parameters]:
    """What two versions have in common: names in both, with the parameters of the first that the second has too."""
    out: dict[str, Parameters] = {}
    for name in a.keys() & b.keys():
        one, other = a[name], b[name]
        if isinstance(one, list) and isinstance(other, list):
            any_number = any(p.startswith("*") for p in other)
            out[name] = one if any_number else [p for p in one if p in other]
        else:
            out[name] = one if isinstance(one, list) else other
    return dict(sorted(out.items()))


def main(new: bool) -> None:
    """Write the data file."""
    now, versions = present(), [version()]
    if not new:
        before = read()
        now = {owner: both(before["names"][owner], names) for owner, names in now.items()}
        versions = sorted({*before["versions"], *versions})
    lines = []
    for owner, names in now.items():
        inner = ",\n".join(f"   {json.dumps(name)}: {json.dumps(found)}" for name, found in names.items())
        lines.append(f"  {json.dumps(owner)}: {{\n{inner}\n  }}")
    text = f'{{\n "versions": {json.dumps(versions)},\n "names": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    FILE.write_text(text, "utf-8")


if __name__ == "__main__":
    main("--new" in sys.argv[1:])
