"""What llama.cpp decides by its options: the device of every layer, the buffer type of every weight and cache, and the
nodes that it assigns itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.cpu_extra import REPACK
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.scenario.spec import BackendSpec, GraphSpec, TensorSpec
from ggmltool.scenario.versions import lacks
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.layers import PlaceOptions, chosen_gpus, layer_devices
from ggmltool.sources.llama.overrides import Override
from ggmltool.sources.llama.parts import Role
from ggmltool.sources.llama.prepared import Prepared, of_these
from ggmltool.sources.llama.row_split import refuse_split_weights, refuse_without_rows
from ggmltool.sources.llama.weights import LAZY, LAZY_BYTES, LAZY_SINCE

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
        self.overrides = self._overrides()
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

    def _overrides(self) -> Mapping[str, Override]:
        """The override of each weight's name that one is found in. Raises PlaceError for an unknown buffer type."""
        known = [self.prepared.devices[d.name].buft.name for d in (*self.gpus, self.prepared.cpu)]
        for override in self.options.overrides:
            if override.buft not in known:
                raise PlaceError(f"{override.option}: there is no {override.buft}; there are {', '.join(known)}")
        return self.prepared.overridden(self.options.overrides)

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
        device = self.device_of(role)
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

    def device_of(self, role: Role) -> str:
        if role.kind == "input":
            return self.cpu
        return self.layers.output if role.kind == "output" else self.layers.of(role.il)

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
