"""What there is: ops, types, devices, samples, and what messages mean."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ggmltool.api.result import Result
from ggmltool.ask.checked import checked
from ggmltool.inspect.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.explain.message import ExplainedMessageShown, NoMessage
    from ggmltool.inspect.devices import BackendInfo, ProfileInfo
    from ggmltool.inspect.op_info import OpInfo
    from ggmltool.inspect.samples import SampleInfo
    from ggmltool.inspect.types import TypeInfo
    from ggmltool.scenario.spec import ScenarioSpec


@checked
def ops(name: str | None = None) -> Result[tuple[OpInfo, ...]]:
    """The ops of ggml, or one in full: "rope", "ROPE", a function ("silu") or a constructor ("rope_ext").

    Raises InspectError if there is none of that name.
    """
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.inspect.op_info import example_result, find_op, op_info
    from ggmltool.inspect.op_reference import op_facts
    from ggmltool.views.reference.documents import OpDocument, OpsDocument
    from ggmltool.views.reference.ops import op_view, ops_view

    if name is None:
        infos = tuple(op_info(facts) for facts in op_facts())
        return Result("ops", infos, partial(OpsDocument.of, infos), partial(ops_view, infos, DEFAULT.name), infos)
    info = op_info(find_op(name))
    info = info._replace(result=example_result(info))
    return Result(f"op {info.name}", (info,), partial(OpDocument.of, info), partial(op_view, info), (info,))


@checked
def types(name: str | None = None) -> Result[tuple[TypeInfo, ...]]:
    """The types of ggml, or one in full: "q4_K". Raises InspectError if there is none of that name."""
    from ggmltool.ggml.dtypes import TYPES
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.inspect.types import find_type, type_info
    from ggmltool.views.reference.documents import TypeDocument, TypesDocument
    from ggmltool.views.reference.types import type_view, types_view

    if name is None:
        infos = tuple(type_info(type) for type in TYPES.values())
        return Result("types", infos, partial(TypesDocument.of, infos), partial(types_view, infos, DEFAULT.name), infos)
    info = type_info(find_type(name))
    return Result(f"type {info.name}", (info,), partial(TypeDocument.of, info), partial(type_view, info), (info,))


@checked
def backends(*devices: str, ggml: str | None = None) -> Result[tuple[BackendInfo | ProfileInfo, ...]]:
    """The kinds of devices that are known, or the backends of these: `backends("CUDA0:24GiB", "CPU")`.

    `ggml` is a release, by default the newest. Raises InspectError for a device or a release that there is not.
    """
    from ggmltool.ggml.releases.parts import profiles_of
    from ggmltool.ggml.releases.table import DEFAULT
    from ggmltool.inspect.devices import profile_info
    from ggmltool.scenario.devices.texts import read_devices
    from ggmltool.scenario.errors import Mistake
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.scenario.versions import check_profiles, read_ggml
    from ggmltool.views.reference.backends import profiles_view
    from ggmltool.views.reference.documents import ProfilesDocument

    try:
        release = DEFAULT if ggml is None else read_ggml(ggml)
        made = read_devices(devices) if devices else []
        check_profiles(made, release)
    except Mistake as mistake:
        raise InspectError(mistake.message + (f"; {mistake.expected}" if mistake.expected else "")) from None
    if not devices:
        known = tuple(profile_info(p) for p in profiles_of(release).values())
        return Result(
            "known devices",
            known,
            partial(ProfilesDocument.of, known, release.name),
            partial(profiles_view, known),
            known,
        )
    return backends_of(ScenarioSpec("", made, [], [], {}, [], release=release), "devices")


def backends_of(model: ScenarioSpec, title: str) -> Result[tuple[BackendInfo, ...]]:
    """The backends of a scenario."""
    from ggmltool.inspect.devices import made_backends, registered
    from ggmltool.views.reference.backends import backends_view
    from ggmltool.views.reference.documents import BackendsDocument

    made, bufts = made_backends(model)
    document = partial(BackendsDocument.of, made, bufts, model.ggml, registered(model))
    return Result(
        f"backends of {title}", tuple(made), document, partial(backends_view, made, bufts, title), tuple(made)
    )


@checked
def samples() -> Result[tuple[SampleInfo, ...]]:
    """The samples, with what each teaches; `load` takes their names."""
    from ggmltool.inspect.samples import sample_infos
    from ggmltool.views.reference.documents import SamplesDocument
    from ggmltool.views.reference.samples import samples_view

    infos = tuple(sample_infos())
    return Result("samples", infos, partial(SamplesDocument.of, infos), partial(samples_view, infos), infos)


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
