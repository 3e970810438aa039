"""Choices planned exactly."""

from __future__ import annotations

from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.needs import Needs
from ggmltool.sources.llama.search.choice import Choice
from ggmltool.sources.llama.search.found import Candidate
from ggmltool.sources.llama.search.space import Setting, Space
from ggmltool.sources.llama.search.speed import Speed
from ggmltool.sources.llama.sweep import Bytes


class Planner:
    """One captured model, planned in one choice after the other."""

    def __init__(self, measurer: Measurer, space: Space, speed: Speed, setting: Setting, order: int) -> None:
        self.measurer = measurer
        self.space = space
        self.speed = speed
        self.setting = setting
        self.order = order
        meta = measurer.placer.model.meta
        self.n_ctx = _number(meta.get("n_ctx"), setting.n_ctx)
        self.n_seq = _number(meta.get("n_seq_max"), max(setting.n_parallel, 1))

    def plan(self, choice: Choice) -> Candidate:
        """What comes of a choice. Raises PlaceError."""
        placer = self.measurer.placer
        n_layer = placer.parts.n_layer
        needs = self.measurer.needs(choice.options(self.space.base, n_layer), self.space.margins)
        devices = dict.fromkeys(use.device for use in needs.uses)
        return Candidate(
            self.setting,
            choice,
            self.order,
            self.n_ctx,
            self.n_seq,
            n_layer,
            tuple(gpu.name for gpu in placer.gpus),
            {device: _bytes(needs, device) for device in devices},
            {device: left for device in devices if (left := needs.left(device)) is not None},
            {device: margin for device, margin in needs.margins.items() if device in needs.memory},
            needs.graphs,
            self.speed.seconds(needs.splits),
            self.speed.rated,
            needs.parallel,
            dict(needs.with_copies),
            dict(needs.error or ()).get("message") or "",
        )


def _bytes(needs: Needs, device: str) -> Bytes:
    mine = [use for use in needs.uses if use.device == device]
    return Bytes(*(sum(getattr(use, kind) for use in mine) for kind in Bytes._fields))


def _number(told: object, otherwise: int) -> int:
    return told if isinstance(told, int) else otherwise
