"""`backends`: the devices that are known, or those of a scenario, with buffer types and function tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from ggmltool.ask.backends.record import MadeBackends, Profiles
    from ggmltool.ggml.releases.release import Release
    from ggmltool.scenario.spec import ScenarioSpec


def profiles(release: Release) -> Answer[Profiles]:
    """The kinds of devices that a release has."""
    from ggmltool.ask.backends.record import Profiles, profile_info
    from ggmltool.ggml.releases.parts import profiles_of

    return Answer(Profiles(ggml=release.name, profiles=tuple(map(profile_info, profiles_of(release).values()))))


def backends(model: ScenarioSpec, title: str, interface: bool = False) -> Answer[MadeBackends]:
    """The backends of a scenario; with `interface`, their function tables."""
    from ggmltool.ask.backends.record import made_backends

    return Answer(made_backends(model, interface), title)
