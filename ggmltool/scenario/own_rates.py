"""The key `rates` of a backend: a known device by its name, or a map of what its owner measured or knows."""

from __future__ import annotations

from typing import Any, NamedTuple

from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.kinds import TEXT, Keys, Kind, read_keys
from ggmltool.scenario.known_devices import known
from ggmltool.scenario.values import as_float, as_map, as_text, at, check_keys, kind_of

FASTEST = 1e6
"""GB/s and tera operations a second, at most: some thousand times the fastest device."""


class OwnRates(NamedTuple):
    """What is said of a device: GB/s of its memory, tera operations a second by type, GB/s to it and from it.

    What is None is as for the known device `like`.
    """

    like: str | None = None
    bandwidth: float | None = None
    f32: float | None = None
    f16: float | None = None
    bf16: float | None = None
    int8: float | None = None
    to_device: float | None = None
    from_device: float | None = None


def _rate(value: object, what: str) -> float:
    rate = as_float(value, what)
    if not 0 < rate <= FASTEST:
        raise Mistake(f"{what} must be above 0 and at most {FASTEST:.0f}, not {rate:g}")
    return rate


RATE = Kind(_rate, lambda: {"type": "number", "exclusiveMinimum": 0, "maximum": FASTEST})
OWN_RATES_KEYS: Keys = {
    "like": TEXT,
    "bandwidth": RATE,
    "f32": RATE,
    "f16": RATE,
    "bf16": RATE,
    "int8": RATE,
    "to_device": RATE,
    "from_device": RATE,
}
_NEEDED = ("bandwidth", "f32")


def read_rates(value: object) -> str | OwnRates:
    """A known device's own spelling of its name, or a map. Raises Mistake."""
    if isinstance(value, str):
        return known(as_text(value, "rates")).name
    if not isinstance(value, dict):
        raise Mistake(
            f"rates must be the name of a known device or a map, not {kind_of(value)}", "for example RTX 3090"
        )
    given = as_map(value, "rates")
    check_keys(given, OWN_RATES_KEYS, "rates")
    said = read_keys(given, OWN_RATES_KEYS)
    if "like" in said:
        said["like"] = at("like", lambda name: known(name).name, said["like"])
    else:
        for key in _NEEDED:
            if key not in said:
                raise Mistake(f"rates need {key}", "or `like: NAME`, a known device whose rates the others are")
    return OwnRates(**said)


def dump_rates(rates: OwnRates) -> dict[str, Any]:
    """The map that `read_rates` reads."""
    return {key: value for key, value in rates._asdict().items() if value is not None}
