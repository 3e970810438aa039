"""The JSON of llama.cpp's own choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.inspect.chosen import arguments
from ggmltool.show.document import Row
from ggmltool.sources.llama.own_fit.records import Status

if TYPE_CHECKING:
    from ggmltool.inspect.chosen import Chosen
    from ggmltool.sources.llama.own_fit.records import Trial


class TriedRow(Row):
    """Bytes of a device (or of the host) with parameters that --fit measured."""

    device: str
    model: int
    context: int
    compute: int


class TrialRow(Row):
    """Parameters that --fit measured, as llama-fit-params prints them, and what they need."""

    why: str
    arguments: str
    needs: list[TriedRow]


class FitRow(Row):
    """llama.cpp's own choice: `arguments` as llama-fit-params prints them, whatever the `status`; `reason` says why
    there is no success; `log` has its lines as it prints them with -lv 4."""

    status: Status
    reason: str | None
    arguments: str
    n_ctx: int
    n_gpu_layers: int
    tensor_split: list[float]
    overrides: list[str]
    trials: list[TrialRow]
    log: list[str]

    @classmethod
    def of(cls, chosen: Chosen) -> FitRow:
        """A choice."""
        fitted, params = chosen.fitted, chosen.fitted.params
        return cls(
            status=fitted.status,
            reason=fitted.reason or None,
            arguments=chosen.arguments,
            n_ctx=params.n_ctx,
            n_gpu_layers=params.n_gpu_layers,
            tensor_split=list(params.tensor_split),
            overrides=[f"{o.pattern.pattern}={o.buft}" for o in params.overrides],
            trials=[_trial(chosen, trial) for trial in fitted.trials],
            log=list(fitted.log),
        )


def _trial(chosen: Chosen, trial: Trial) -> TrialRow:
    names = (*(d.name for d in chosen.devices), "Host")
    needs = (*trial.measured.devices, trial.measured.host)
    rows = [TriedRow(name, *parts) for name, parts in zip(names, needs, strict=True)]
    return TrialRow(trial.why, arguments(trial.params), rows)
