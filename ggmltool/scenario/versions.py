"""Which ggml a scenario is for (`ggml: 2025-03`), what that one lacks, and since when there is such a thing.

A file that says which ggml it is for and asks for what that one has not is
mistaken; where somebody asks what another ggml would do with it, keys that say nothing there are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from ggmltool.data import load
from ggmltool.ggml.op import KEY_NAMES, op_key
from ggmltool.ggml.ops.registry import CONSTRUCTORS, since_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import BY_NAME, DEFAULT, RELEASES, nearly
from ggmltool.ggml.tensor import FLAG_PARAM, FLAGS
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.spec import BackendSpec, TensorSpec
from ggmltool.scenario.values import as_text


class Days(Struct, frozen=True, forbid_unknown_fields=True):
    """Days as ggml's own repository has them (YYYY-MM-DD), for what came or went after January 2024.

    Those of ops stand at their constructors. `profiles` are the kinds of backends, `keys` of a scenario say something
    about ggml since a day; `*` stands for any entry. `flags`: tensors are flagged as inputs and outputs; `test_nodes`:
    ggml_backend_compare_graph_backend takes names of nodes.
    """

    ops_until: dict[str, str]
    types: dict[str, str]
    profiles: dict[str, str]
    keys: dict[str, str]
    keys_until: dict[str, str]
    flags: str
    eval_callback: str
    test_nodes: str


@cache
def days() -> Days:
    """All of them."""
    return load("since.toml", Days)


def read_ggml(value: object) -> Release:
    """The release of a name, by default the newest; YAML may have read the name as a number. Raises Mistake."""
    if value is None:
        return DEFAULT
    name = f"{value:.2f}" if isinstance(value, float) else as_text(value, "ggml")
    if name not in BY_NAME:
        hint = nearly(name) or did_you_mean(name, BY_NAME) or f"ggml is {' or '.join(RELEASES)}"
        raise Mistake(f"{quoted(name)} is not a ggml that ggmltool knows", hint)
    return BY_NAME[name]


def lacks(release: Release, since: str) -> bool:
    """Whether something of this day is younger than the release."""
    return since > release.date


def without_unknown(top: dict[str, Any], release: Release) -> tuple[dict[str, Any], list[str]]:
    """The scenario without the keys that the release knows nothing of, and their names."""
    out, left_out = dict(top), []
    for path in unknown_keys(top, release):
        out = _without(out, path)
        left_out.append(".".join(str(part) for part in path if isinstance(part, str)))
    return out, left_out


def check_keys_known(top: dict[str, Any], release: Release) -> None:
    """Refuse a key that the release knows nothing of. Raises Mistake."""
    for path in unknown_keys(top, release):
        keys, until = days().keys, days().keys_until
        pattern = next(p for p in (*keys, *until) if _fits(path, p.split(".")))
        since = keys.get(pattern)
        when = f"available since {since}" if since else f"ggml had it until {until[pattern]}"
        hint = "leave it out" if since else "leave it out, or write `ggml: 2024-01`"
        raise Mistake(f"ggml {release.name} has no {path[-1]}; {when}", hint, *path, on_key=True)


def unknown_keys(top: dict[str, Any], release: Release) -> Iterator[tuple[str | int, ...]]:
    """Where keys stand that the release knows nothing of."""
    for pattern, since in days().keys.items():
        if lacks(release, since):
            yield from _places(top, pattern.split("."))
    for pattern, until in days().keys_until.items():
        if not lacks(release, until):
            yield from _places(top, pattern.split("."))


def _places(value: object, pattern: Sequence[str]) -> Iterator[tuple[str | int, ...]]:
    if not pattern:
        yield ()
        return
    head, *rest = pattern
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        entries = [(k, v) for k, v in value.items() if head in ("*", k)]
    elif isinstance(value, list) and head == "*":
        entries = list(enumerate(value))
    for key, entry in entries:
        yield from ((key, *path) for path in _places(entry, rest))


def _fits(path: tuple[str | int, ...], pattern: Sequence[str]) -> bool:
    return len(path) == len(pattern) and all(p in ("*", k) for k, p in zip(path, pattern, strict=True))


def _without(value: Any, path: tuple[str | int, ...]) -> Any:
    """A copy without the entry at `path`, as deep as it has to be."""
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    head, *rest = path
    if rest:
        copy[head] = _without(copy[head], tuple(rest))
    else:
        del copy[head]
    return copy


def has_no_op_offload(release: Release) -> bool:
    """Whether op offload cannot be switched off in the release."""
    return lacks(release, days().keys["scheduler.op_offload"])


def has_no_flags(release: Release) -> bool:
    """Whether tensors of the release cannot be flagged as inputs and outputs."""
    return lacks(release, days().flags)


def without_flags(t: TensorSpec, release: Release) -> bool:
    """Whether the tensor is flagged in a way that says nothing to the release."""
    return has_no_flags(release) and t.flags & ~FLAG_PARAM != 0


def check_flags(t: TensorSpec, release: Release) -> None:
    """Refuse flags that the release does not have. Raises Mistake."""
    if without_flags(t, release):
        word = next(word for word, bit in FLAGS.items() if t.flags & bit & ~FLAG_PARAM)
        raise Mistake(f"ggml {release.name} has no flag {word}; available since {days().flags}", "leave it out")


def check_profile(backend: BackendSpec, release: Release) -> None:
    """Refuse a backend of a profile whose rules of that time are not known. Raises Mistake."""
    known = profiles_of(release)
    if backend.family not in known:
        since = days().profiles.get(backend.family, "")
        message = f"the rules that {backend.family} had in ggml {release.name} are not known here"
        if lacks(release, since):
            message = f"ggml {release.name} has no {backend.family}; available since {since}"
        raise Mistake(message, f"known are {', '.join(known)}; describe others yourself: profile: custom, supports, …")


def check_known(t: TensorSpec, release: Release) -> None:
    """Refuse a tensor of a type, or a node of an op, that the release does not have. Raises Mistake."""
    since = days().types.get(t.type.name, "")
    if lacks(release, since):
        raise Mistake(f"ggml {release.name} has no type {t.type.name}; available since {since}")
    name = KEY_NAMES[op_key(t.op, t.op_params)]
    since = since_of(name)
    if lacks(release, since):
        raise Mistake(f"ggml {release.name} has no op {name}; available since {since}")
    for part in CONSTRUCTORS[name].parts if name in CONSTRUCTORS else ():
        if lacks(release, part.since) and part.is_in(t.src, t.op_params):
            raise Mistake(f"{name} has no {part.what} in ggml {release.name}; available since {part.since}")


def release_names(names: Iterable[str] = BY_NAME) -> list[str | float | None]:
    """Names of releases as a scenario may have them; one that looks like a number is that number, too."""
    spelled: list[str | float | None] = list(names)
    return [*spelled, *(float(str(name)) for name in spelled if str(name).count(".") == 1)]
