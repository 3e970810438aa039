"""Reference data as TOML: what messages mean, what changed between releases, what a function is for.

A file is read when somebody asks for what is in it, and checked against the type that it is asked for as.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, TypeVar

T = TypeVar("T")


def load(name: str, type: type[T], package: str = __name__) -> T:
    """The data of a file, such as "changes.toml". A text over several lines is one line, in the file it is wrapped.

    `package` has the file, by default this one. Raises msgspec.ValidationError if the file is not of this type.
    """
    import msgspec

    return msgspec.convert(_unwrapped(tomllib.loads(files(package).joinpath(name).read_text("utf-8"))), type)


def exists(name: str, package: str = __name__) -> bool:
    """Whether there is such a file."""
    return files(package).joinpath(name).is_file()


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unwrapped(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_unwrapped(v) for v in value]
    return " ".join(value.split()) if isinstance(value, str) and "\n" in value else value
