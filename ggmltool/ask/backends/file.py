"""Devices as a file that a scenario or a command can take back after somebody has edited it."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from ggmltool.ask.backends.record import DeviceFacts
from ggmltool.show.text import printable, size

_WIDTH = 100
_SIZES = frozenset(("max_size", "memory", "max_tensor_size"))


def device_yaml(devices: Sequence[DeviceFacts]) -> str:
    """The list `backends` of a scenario, commented."""
    lines = _comment(
        "Devices as ggmltool knows them, to edit. Put the list under `backends` of a scenario, or one device alone "
        "into a file as a profile (`profile: FILE`); --device takes the file, too."
    )
    for device in devices:
        lines += ["", *_comment(f"{device.entry['name']}: {device.description}. As of ggml {device.ggml}.")]
        if device.leaves_out:
            lines += _comment(f"Left out: {device.leaves_out}.")
        start = "- "
        for key, value in device.entry.items():
            if key == "supports" and "rules" in value:
                lines.append(f"{start}supports:")
                lines += [f"    {name}: {_flow(of)}" for name, of in value.items() if name != "rules"]
                lines += ["    rules:", *(f"      - {_flow(rule)}" for rule in value["rules"])]
            else:
                note = f"  # {size(value)}" if key in _SIZES else ""
                lines.append(f"{start}{key}: {_flow(value)}{note}")
            start = "  "
        if device.unwritten:
            named = ", ".join(device.unwritten)
            lines += _comment(f"The profile's own, which rules cannot say: {named}.", "  ", "  ")
        if device.ops and "profile" in device.entry.get("supports", {"profile": True}):
            lines += _comment("All other rules on ops are the profile's. To replace them by a list:", "  ")
            lines += _comment(f"supports: {{{device.key}: [{', '.join(device.ops)}]}}", "  ", "  ")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str = "", further: str = "") -> list[str]:
    start = f"{indent}# "
    return wrap(
        printable(text), _WIDTH, initial_indent=start, subsequent_indent=start + further, break_on_hyphens=False
    )


def _flow(value: object) -> str:
    import yaml

    for allow_unicode in (True, False):
        text = yaml.safe_dump(
            value, default_flow_style=True, width=1 << 20, allow_unicode=allow_unicode, sort_keys=False
        )
        shown = str(text).removesuffix("...\n").strip()
        if shown == printable(shown):
            break
    return shown
