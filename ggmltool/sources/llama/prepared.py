"""A captured model with the devices that it is to be placed on, and what is asked of both only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.extra import PINNED
from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.devices.profiles import extra_names
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.spec import BackendSpec, GraphSpec, ScenarioSpec, TensorSpec
from ggmltool.sources.llama.overrides import Override, overridden
from ggmltool.sources.llama.parts import Parts
from ggmltool.sources.llama.weight_support import Hparams, weight_buft_supported

_KEPT = 512
"""Answers about lists of overrides that are kept; a search has as many as layers."""


class Prepared:
    """A captured model and its devices: GPUs, accelerators and the CPU.

    `devices` are the GPUs and accelerators, and the CPU where something is to be said of it; without any GPU there,
    llama.cpp has the CPU alone. Raises PlaceError for a model without a graph.
    """

    def __init__(self, model: ScenarioSpec, devices: Sequence[BackendSpec]) -> None:
        self.parts = Parts(model)
        self.profiles = profiles_of(model.release)
        self.gpus = [d for d in devices if self._type(d) in ("gpu", "igpu")]
        self.accels = [d for d in devices if self._type(d) == "accel"]
        cpu = next((d for d in devices if self._type(d) == "cpu"), BackendSpec("CPU", "CPU"))
        # A model that was placed before may have its compute buffers in a GPU's host memory.
        self.cpu = cpu if cpu.buft == "CPU" else replace(cpu, buft=None)
        backends = of_these(model, [*self.gpus, *self.accels, self.cpu])
        further = [b for b in model.buffer_types if b.device in {d.name for d in backends}]
        self.model = replace(model, backends=backends, buffer_types=further)
        self.bufts = make_bufts(self.model, all_known=True)
        self.devices = {b.name: b.device for b in make_backends(self.model, self.bufts)}
        self._tested: dict[tuple[object, ...], bool] = {}
        self._run: dict[tuple[str, str, str], bool] = {}
        self._overridden: dict[tuple[Override, ...], Mapping[str, Override]] = {}

    def profile(self, spec: BackendSpec) -> Profile:
        """What the device is in the model's release of ggml."""
        return self.profiles[spec.family]

    def _type(self, spec: BackendSpec) -> str:
        return spec.type or self.profile(spec).type

    def pinned_buft(self, spec: BackendSpec) -> str | None:
        """ggml_backend_dev_host_buffer_type: the name of a device's host memory; None if it has none."""
        extra = extra_names(self.profile(spec), spec.name)
        return next((name for name, buft in extra.items() if buft.family == PINNED), None)

    @cached_property
    def hparams(self) -> Hparams:
        return self.parts.hparams()

    def runs(self, device: Device, buft: BufferType, op: Op, t: TensorSpec) -> bool:
        """weight_buft_supported, asked once for all weights alike."""
        key = (device.name, buft.name, op, t.type.name, t.ne)
        if key not in self._tested:
            self._tested[key] = weight_buft_supported(device, buft, op, t.type, t.ne, self.hparams)
        return self._tested[key]

    def runs_alone(self, device: Device, graph: GraphSpec, node: TensorSpec) -> bool:
        """Whether a device runs a node, whatever memory its sources are in; asked once for each."""
        key = (device.name, graph.name, node.id)
        if key not in self._run:
            self._run[key] = device.supports_op(_lone_tensor(node, self.parts.nodes(graph.name)))
        return self._run[key]

    def overridden(self, overrides: tuple[Override, ...]) -> Mapping[str, Override]:
        """The override of each weight's name that one is found in. Raises PlaceError if that takes long."""
        found = self._overridden.get(overrides)
        if found is None:
            if len(self._overridden) >= _KEPT:
                self._overridden.clear()
            found = self._overridden[overrides] = overridden(self.parts.names, overrides)
        return found


def _lone_tensor(node: TensorSpec, nodes: Mapping[str, TensorSpec]) -> Tensor:
    """A node with its sources, without memory, for questions about the op alone."""
    t = Tensor(node.type, node.ne, node.nb, node.op, node.op_params, node.flags)
    specs = [nodes.get(s) if s is not None else None for s in node.src]
    t.src = [Tensor(s.type, s.ne, s.nb, s.op, s.op_params) if s is not None else None for s in specs]
    return t


def of_these(model: ScenarioSpec, backends: Sequence[BackendSpec]) -> list[BackendSpec]:
    """These backends of a model, which, where they were asked in a process, have said nothing of the buffer types of
    others."""
    if all(b.answers is None and b.supports_bufts is None for b in backends):
        return list(backends)
    silent = [replace(b, answers=None, supports_bufts=None) for b in backends]
    further = [b for b in model.buffer_types if b.device in {d.name for d in backends}]
    there = make_bufts(replace(model, backends=silent, buffer_types=further), all_known=True).keys()
    out = []
    for spec in backends:
        listed, answers = spec.supports_bufts, spec.answers
        if listed is not None:
            listed = tuple(name for name in listed if name in there)
        if answers is not None:
            answers = replace(answers, sizes={name: of for name, of in answers.sizes.items() if name in there})
        out.append(replace(spec, supports_bufts=listed, answers=answers))
    return out
