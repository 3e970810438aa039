"""Devices in files of their own: written out to be edited, and read in place of a name or a profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.data import inside_folder
from ggmltool.scenario.dump import dump_backend
from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.samples import FILES
from ggmltool.scenario.spec import BackendSpec
from ggmltool.scenario.text.text import Document, read_document

T = TypeVar("T")


def is_device_file(text: object) -> bool:
    """Whether a text names a file with a device, not the device or a profile."""
    return isinstance(text, str) and text.lower().endswith(FILES)


def device_map(spec: BackendSpec, profile: Profile) -> dict[str, Any]:
    """A backend as a map of a scenario with everything said that its profile would say; sizes are bytes."""
    said: dict[str, Any] = {"type": profile.type}
    if (spec.buft or profile.buft or spec.name) == spec.name:
        said |= {"alignment": profile.alignment, "row_padding": profile.row_padding, "host": profile.host}
        if profile.max_size != SIZE_MAX:
            said["max_size"] = profile.max_size
    else:
        said["buft"] = profile.buft
    said["offload_min_batch"] = "never" if profile.offload_min_batch is None else profile.offload_min_batch
    said["events"] = profile.events
    if profile.features:
        said["features"] = [feature for feature in profile.features if feature in profile.has]
    if profile.graph_optimize is not None:
        said["graph_optimize"] = True
    if profile.max_tensor_size != SIZE_MAX:
        said["max_tensor_size"] = profile.max_tensor_size
    given = dump_backend(spec)
    if spec.never_offloads:
        given["offload_min_batch"] = "never"
    return {"name": given.pop("name"), "profile": given.pop("profile"), **said, **given}


def read_device_file(path: Path, read: Callable[[object], T]) -> list[tuple[dict[str, Any], T]]:
    """The devices of a file (a map, a list of maps, or a list under `backends`), as written and as `read` reads one.

    Raises ScenarioError, with the place in that file.
    """
    document = read_document(path)
    value = document.value
    under: tuple[str, ...] = ()
    if isinstance(value, dict) and "backends" in value:
        value, under = value["backends"], ("backends",)
    if isinstance(value, dict):
        return [(value, _read_one(document, read, value, under))]
    if not isinstance(value, list) or not value:
        raise document.error(Mistake("there is no device", "{name: ..., profile: ...}, or a list of such", *under))
    return [
        (item if isinstance(item, dict) else {"name": item}, _read_one(document, read, item, (*under, i)))
        for i, item in enumerate(value)
    ]


def _read_one(document: Document, read: Callable[[object], T], item: object, path: tuple[str | int, ...]) -> T:
    try:
        return read(item)
    except Mistake as mistake:
        raise document.error(mistake, *path) from None


def profile_file(file: str, folder: Path | None, read: Callable[[object], object]) -> dict[str, Any]:
    """What a file says of one device, but for its name. Raises Mistake, and ScenarioError for what stands in it."""
    path = inside_folder(file, folder)
    devices = read_device_file(path, read)
    if len(devices) != 1:
        raise Mistake(f"{quoted(file)} has {len(devices)} devices, and a profile is one")
    ((written, _),) = devices
    return {key: value for key, value in written.items() if key != "name"}
