"""What there is: ops, types, devices, samples, and what messages mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer
from ggmltool.ask.backends import backends as ask_backends
from ggmltool.ask.backends import profiles
from ggmltool.ask.checked import checked
from ggmltool.ask.ops import ops as ask_ops
from ggmltool.ask.types import types as ask_types
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.backends.record import MadeBackends, Profiles
    from ggmltool.ask.explain.message import ExplainedMessageShown, NoMessage
    from ggmltool.ask.reference.record import Samples

ops = checked(ask_ops)
types = checked(ask_types)


@checked
def backends(*devices: str, ggml: str | None = None) -> Answer[Profiles] | Answer[MadeBackends]:
    """The kinds of devices that are known, or the backends of these: `backends("CUDA0:24GiB", "CPU")`.

    `ggml` is a release, by default the newest. Raises InspectError for a device or a release that there is not.
    """
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.scenario.devices.texts import read_devices
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.scenario.versions import read_ggml

    try:
        release = DEFAULT if ggml is None else read_ggml(ggml)
        made = read_devices(devices, release) if devices else []
    except Mistake as mistake:
        raise InspectError(mistake.message + (f"; {mistake.expected}" if mistake.expected else "")) from None
    if not devices:
        return profiles(release)
    return ask_backends(ScenarioSpec("", made, [], [], {}, [], release=release), "devices")


@checked
def samples() -> Answer[Samples]:
    """The samples, with what each teaches; `load` takes their names."""
    from ggmltool.ask.reference.record import sample_infos

    return Answer(sample_infos())


@checked
def explain_error(text: str) -> Answer[ExplainedMessageShown | NoMessage]:
    """What a message of ggml's or llama.cpp's means: a line of a log, or a whole one.

    Raises InspectError with the nearest ones where no message is known of these words.
    """
    from ggmltool.ask.explain import message_of

    answer = message_of(text)
    if not answer.fine:
        raise InspectError(answer.text())
    return answer
