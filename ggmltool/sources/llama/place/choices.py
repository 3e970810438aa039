"""What llama.cpp decides by its options: the device of every layer, the buffer type of every weight and cache, and the
nodes that it assigns itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.cpu import REPACK
from ggmltool.ggml.devices.profile import PINNED, Profile, extra_names
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.tensor import Tensor, nbytes_of
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.spec import BackendSpec, GraphSpec, ScenarioSpec, TensorSpec
from ggmltool.scenario.versions import lacks
from ggmltool.sources.llama.errors import LlamaRefused, PlaceError
from ggmltool.sources.llama.place.options import Override, PlaceOptions, chosen_gpus, layer_devices, overridden
from ggmltool.sources.llama.place.parts import Parts, Role
from ggmltool.sources.llama.place.weights import LAZY, LAZY_BYTES, LAZY_SINCE, Hparams, weight_buft_supported

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
            nodes = self.parts.nodes(graph.name)
            t = Tensor(node.type, node.ne, node.nb, node.op, node.op_params, node.flags)
            specs = [nodes.get(s) if s is not None else None for s in node.src]
            t.src = [Tensor(s.type, s.ne, s.nb, s.op, s.op_params) if s is not None else None for s in specs]
            self._run[key] = device.supports_op(t)
        return self._run[key]

    def overridden(self, overrides: tuple[Override, ...]) -> Mapping[str, Override]:
        """The override of each weight's name that one is found in. Raises PlaceError if that takes long."""
        found = self._overridden.get(overrides)
        if found is None:
            if len(self._overridden) >= _KEPT:
                self._overridden.clear()
            found = self._overridden[overrides] = overridden(self.parts.names, overrides)
        return found


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


SPLIT_BUFFER = "SYCL_Split"
"""The buffer type of matrices whose rows SYCL's devices share.

A backend takes part in -sm row whose registry has ggml_backend_split_buffer_type. CUDA and ROCm had it until 2026-07-09
(llama.cpp #24216), before ggml 0.20.2. SYCL has it still, but its supports_buft takes nothing but its own buffers.
"""

_INSTEAD = "Use -sm layer, which gives whole layers to each GPU."


def refuse_without_rows(gpus: Sequence[BackendSpec]) -> None:
    """make_gpu_buft_list: raise LlamaRefused if there is a GPU that has no split buffers, whatever it would get."""
    for gpu in gpus:
        if gpu.profile != "SYCL":
            raise LlamaRefused(
                f"error loading model: device {gpu.name} does not support split buffers",
                "-sm row puts the weights into split buffers, which only SYCL still has: those of CUDA and ROCm were "
                f"removed in July 2026, before ggml 0.20.2. {_INSTEAD}",
            )


def refuse_split_weights(weights: Iterable[str]) -> None:
    """ggml_backend_sched_backend_id_from_cur: raise LlamaRefused for the first of the weights in split buffers.

    `weights` are their names in the order of the graph's leafs; without any, llama.cpp goes on.
    """
    first = next(iter(weights), None)
    if first is not None:
        raise LlamaRefused(
            f"pre-allocated tensor ({first}) in a buffer ({SPLIT_BUFFER}) that cannot run the operation (NONE)",
            "llama.cpp loads the weights, with their rows shared by the GPUs, and then aborts when it reserves the "
            f"graph: SYCL's supports_buft does not take {SPLIT_BUFFER}. {_INSTEAD}",
        )


SMALL_BATCH = 32
"""From so many tokens on, llama.cpp lets the scheduler place the norms of a model that is not wholly on GPUs."""


class Choices:
    """What is decided by one set of options. With `one_token`, nodes are assigned as for a batch of one.

    Raises PlaceError for options that are wrong: GPUs, shares and buffer types that are not there.
    """

    def __init__(self, prepared: Prepared, options: PlaceOptions, one_token: bool = False) -> None:
        if options.split_mode == "tensor":
            raise PlaceError("-sm tensor gives no GPU whole layers: it is for `place`, not for a search")
        self.prepared = prepared
        self.options = options
        self.one_token = one_token
        self.parts = prepared.parts
        self.cpu = prepared.cpu.name
        self.gpus = chosen_gpus(prepared.gpus, options)
        self.n_gpu = options.n_gpu(self.parts.n_layer)
        self.layers = layer_devices(self.parts.n_layer, self.gpus, self.cpu, options)
        self.cpu_list = self._cpu_list()
        known = [prepared.devices[d.name].buft.name for d in (*self.gpus, prepared.cpu)]
        for override in options.overrides:
            if override.buft not in known:
                raise PlaceError(f"{override.option}: there is no {override.buft}; there are {', '.join(known)}")
        self.overrides = prepared.overridden(options.overrides)
        if options.split_mode == "row":
            refuse_without_rows(self.gpus)
            refuse_split_weights(self._split_weights())

    def backends(self) -> list[BackendSpec]:
        """The backends in priority order; with a GPU, the CPU's compute buffers are in memory that the GPU pins."""
        prepared = self.prepared
        host = prepared.pinned_buft(self.gpus[0]) if self.gpus else None
        cpu = prepared.cpu if host is None else replace(prepared.cpu, buft=host)
        return of_these(prepared.model, [*self.gpus, *prepared.accels, cpu])

    def output_buft(self) -> str:
        """The buffer type of the context's outputs."""
        prepared = self.prepared
        output = next((prepared.pinned_buft(g) for g in self.gpus if g.name == self.layers.output), None)
        return output or prepared.devices[self.cpu].buft.name

    def _cpu_list(self) -> list[tuple[Device, BufferType, BufferType]]:
        """The buffer types for weights on the CPU: device and type to ask, and the type that is taken then.

        A GPU's host memory comes first, but with mmap (the default) what would go there stays where it is mapped.
        """
        prepared = self.prepared
        cpu = prepared.devices[self.cpu]
        out: list[tuple[Device, BufferType, BufferType]] = []
        for gpu in self.gpus:
            host = prepared.pinned_buft(gpu)
            if host is not None:
                out.append((prepared.devices[gpu.name], prepared.bufts[host], cpu.buft))
                break
        if self.options.extra_bufts:
            names = dict.fromkeys([*(b.name for b in prepared.model.buffer_types), REPACK])
            extra = [prepared.bufts[name] for name in names if name in prepared.bufts]
            own = (b for b in extra if b.device == self.cpu and not b.host and cpu.supports_buft(b))
            out += [(cpu, buft, buft) for buft in own]
        return [*out, (cpu, cpu.buft, cpu.buft)]

    def _split_weights(self) -> Iterator[str]:
        """The weights that -sm row puts into split buffers, as the first graph meets them, duplicates last."""
        bufts = {self.prepared.devices[gpu.name].buft.name for gpu in self.gpus}
        by_id = {spec.id: spec for spec in self.parts.weights}
        met = [by_id[id] for id in self.parts.leafs(next(iter(self.parts.graphs))) if id in by_id]
        for nth in (slice(1), slice(1, None)):
            for spec in met:
                if spec.name not in self.overrides:
                    bufts_of = (self.weight(spec, role)[0] for role in self.parts.roles[spec.id][nth])
                    yield from (spec.name for buft in bufts_of if buft in bufts)

    def weight(self, spec: TensorSpec, role: Role) -> tuple[str, str]:
        """The buffer type of a weight in one of its roles, and why. Raises PlaceError."""
        cpu_buft = self.prepared.devices[self.cpu].buft.name
        if self._is_lazy(spec):
            return cpu_buft, f"-lzm {self.options.lazy_mode}: read as it is needed"
        override = self.overrides.get(spec.name)
        device = self.device_of_group(role.il if role.kind == "repeating" else role.kind)
        if override is not None:
            if override.buft != cpu_buft:
                return override.buft, override.option
            found = self._first(spec, role, self.cpu_list)
            return (found or override.buft), override.option
        layer = f"{role.kind} layer" if role.il < 0 else f"layer {role.il}"
        rule = f"{layer} on {device}" + (", always" if role.kind == "input" else "")
        list_ = self.cpu_list
        if device != self.cpu:
            gpu = self.prepared.devices[device]
            list_ = [(gpu, gpu.buft, gpu.buft), *list_]
        found = self._first(spec, role, list_)
        if found is None:
            raise PlaceError(f"no device supports {role.op.name} with {spec.name} ({spec.type.name})")
        own = self.prepared.devices[device].buft.name
        if found != own and device != self.cpu:
            rule += f", which does not support {role.op.name} of {spec.type.name} there"
        elif found != own:
            rule += f", {found} first"
        return found, rule

    def _is_lazy(self, spec: TensorSpec) -> bool:
        """llama_model_loader::lazy_read::add: whether the weight stays in the file's pages, whatever is overridden."""
        mode = self.options.lazy_mode
        if mode == "off" or spec.name not in LAZY or lacks(self.prepared.model.release, LAZY_SINCE):
            return False
        return mode == "on" or nbytes_of(spec.type, spec.ne, spec.nb) > LAZY_BYTES

    def _first(
        self, spec: TensorSpec, role: Role, list_: Iterable[tuple[Device, BufferType, BufferType]]
    ) -> str | None:
        """select_weight_buft: the first buffer type whose device runs the op with the weight there."""
        for device, buft, taken in list_:
            if self.prepared.runs(device, buft, role.op, spec):
                return taken.name
        return None

    def device_of_group(self, group: int | str | None) -> str:
        """The device of a layer by its number, of the `input` or `output`, and of what belongs to no layer (None)."""
        if isinstance(group, int):
            return self.layers.of(group)
        return self.layers.output if group == "output" else self.cpu

    def cache(self, il: int | None) -> tuple[str, str]:
        """The buffer type of a cache of this layer (None: of none), and why: with its layer, unless all stay on the
        CPU.
        """
        device, rule = self.cpu, "-nkvo"
        if il is None:
            rule = "belongs to no layer"
        elif self.options.offload_kqv:
            device = self.layers.of(il)
            rule = f"layer {il} on {device}"
        return self.prepared.devices[device].buft.name, rule

    def assigned(self, graph: GraphSpec) -> dict[str, str]:
        """llama_context::graph_get_cb and, with -nkvo, build_attn_mha: nodes that llama.cpp assigns itself.

        The result of an attention is one of them only without flash attention; it is made contiguous then.
        """
        assigned: dict[str, str] = {}
        if not self.options.assigns:
            return assigned
        small = self.one_token or self.parts.n_tokens(graph) < SMALL_BATCH or self.n_gpu > self.parts.n_layer
        for node, base, il in self.parts.of_layers(graph.name):
            if small and self.gpus and base in ("norm", "l_last"):
                device = self.prepared.devices[self.layers.of(il)]
                if self.prepared.runs_alone(device, graph, node):
                    assigned[node.id] = device.name
            elif base == "kqv_out" and node.op == Op.CONT and not self.options.offload_kqv:
                assigned[node.id] = self.cpu
        return assigned

    def why_no_pipeline(self) -> str:
        """Why llama.cpp makes no pipeline copies; "" if it does."""
        if len(self.gpus) < 2:
            return "there is one GPU" if self.gpus else "there is no GPU"
        if self.n_gpu <= self.parts.n_layer:
            return "not all layers are on GPUs"
        if not self.options.offload_kqv:
            return "the KV cache is on the CPU"
        if self.options.overrides:
            return "there are overrides of tensors"
        for spec in (*self.gpus, *self.prepared.accels):
            profile, device = self.prepared.profile(spec), self.prepared.devices[spec.name]
            if not device.events or not ("async" in profile.caps or spec.family == "custom"):
                return f"{spec.name} has no events, or does not compute asynchronously"
        return ""
