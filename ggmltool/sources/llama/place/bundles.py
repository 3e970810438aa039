"""What lies on the device of one layer, decided and added up once for each device that the layer may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_WEIGHTS, AddressSpace, AllocSize, Buffer, BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.parts import scheduler_of
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.assign import assign_from_buffers
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.run.kept import KeptArena, KeptModel
from ggmltool.scenario.spec import TensorSpec
from ggmltool.sources.llama.place.choices import Choices
from ggmltool.sources.llama.place.options import Override
from ggmltool.sources.llama.place.parts import Parts, Role

Group = int | str | None
"""What goes where a layer goes: its number, `input` or `output`; None for what belongs to no layer."""

Overridden = tuple[tuple[str, str], ...]
"""The weights of a group that overrides name, with the buffer type of each."""


@dataclass(slots=True)
class Bundle:
    """The weights and caches of a group where they lie: in which buffers, and the bytes in each buffer type.

    `known` are the backends that pass 1 gives the tensors that look at this group alone, by graph and whether ops are
    offloaded.
    """

    bindings: list[tuple[Tensor, Buffer]]
    weights: dict[str, int]
    caches: dict[str, int]
    known: dict[tuple[str, bool], list[tuple[int, int]]] = field(default_factory=dict)


class Groups:
    """The weights in one role and the caches of each group, and the tensors of each graph that look at one group."""

    def __init__(self, parts: Parts, kept: KeptModel) -> None:
        self.weights: dict[Group, list[tuple[TensorSpec, Role]]] = {}
        self.caches: dict[Group, list[tuple[TensorSpec, int | None]]] = {}
        self.views: dict[str, list[str]] = {}
        # Tied embeddings are two tensors of one name, in the groups `input` and `output`.
        self.groups_of_name: dict[str, set[Group]] = {}
        of: dict[str, Group] = {}
        mixed: set[str] = set()
        for spec in parts.weights:
            if spec.view_src is not None:
                self.views.setdefault(spec.view_src, []).append(spec.id)
            elif len(roles := parts.roles[spec.id]) == 1:
                role = roles[0]
                group = role.il if role.kind == "repeating" else role.kind
                of[spec.id] = group
                self.groups_of_name.setdefault(spec.name, set()).add(group)
                self.weights.setdefault(group, []).append((spec, role))
            else:
                mixed.add(spec.id)
        for spec, il in parts.caches:
            of[spec.id] = il
            self.caches.setdefault(il, []).append((spec, il))
        for root, views in self.views.items():
            mixed.update(views if root in mixed else ())
            of |= {id: of[root] for id in views if root in of}
        self.all: list[Group] = list(dict.fromkeys([*self.weights, *self.caches]))
        # The tensors of a graph whose own memory, and that of their roots and sources, is of one group alone.
        self.members: dict[str, dict[Group, list[Tensor]]] = {}
        for name, graph in kept.graphs.items():
            found = self.members[name] = {}
            for t in graph.tensors:
                seen = [s.id for s in (t, t.view_src, *t.src) if s is not None and s.id in kept.placed]
                groups = {of[id] for id in seen if id in of}
                if seen and len(groups) == 1 and not mixed.intersection(seen):
                    found.setdefault(groups.pop(), []).append(t)

    def overridden(self, found: Mapping[str, Override]) -> dict[Group, Overridden]:
        """What of each group is overridden."""
        out: dict[Group, list[tuple[str, str]]] = {}
        for name, override in found.items():
            for group in self.groups_of_name.get(name, ()):
                out.setdefault(group, []).append((name, override.buft))
        return {group: tuple(names) for group, names in out.items()}


class Setup:
    """The engine's devices for one choice of GPUs, and every bundle there by what decided it."""

    def __init__(self, choices: Choices, kept: KeptModel, groups: Groups) -> None:
        prepared = choices.prepared
        self.kept = kept
        self.groups = groups
        self.release = prepared.model.release
        self.specs = choices.backends()
        names = {spec.name for spec in self.specs}
        further = [b for b in prepared.model.buffer_types if b.device in names]
        model = replace(prepared.model, backends=self.specs, buffer_types=further)
        self.bufts: dict[str, BufferType] = make_bufts(model, all_known=True)
        for buft in self.bufts.values():
            if buft.alloc_size is not None:
                buft.alloc_size = _asked_once(buft.alloc_size)
        self.backends: list[Backend] = make_backends(model, self.bufts)
        self.names = {b.name: i for i, b in enumerate(self.backends)}
        self._addresses = AddressSpace()
        self._splits: list[Split] = []
        self._buffers: dict[tuple[str, int], Buffer] = {}
        self._sizes: dict[tuple[int, str], int] = {}
        self._bundles: dict[tuple[Group, str, bool, Overridden], Bundle] = {}

    def scheduler(self, graph_size: int, parallel: bool, op_offload: bool) -> Scheduler:
        """A new scheduler over these devices."""
        kept = self.kept
        sched = scheduler_of(self.release)(
            self.backends, kept.indices, AddressSpace(), self.bufts.values(), graph_size, parallel, op_offload, None,
            self.release,
        )  # fmt: skip
        sched.arena = KeptArena(graph_size, kept.indices, self.release, kept.copies)
        room = sched.splits[0].inputs_capacity
        for split in self._splits:
            split.inputs_capacity = room
        self._splits = sched.splits = self._splits or sched.splits
        return sched

    def buffer(self, buft: str, usage: int) -> Buffer:
        """What stands for all buffers of a type."""
        key = (buft, usage)
        if key not in self._buffers:
            self._buffers[key] = Buffer(self.bufts[buft], 1, self._addresses, usage)
        return self._buffers[key]

    def size(self, t: Tensor, buft: str) -> int:
        """The bytes that a tensor takes in a buffer, up to the next one."""
        key = (t.index, buft)
        if key not in self._sizes:
            type = self.bufts[buft]
            self._sizes[key] = (type.get_alloc_size(t) + type.alignment - 1) // type.alignment * type.alignment
        return self._sizes[key]

    def bundle(self, choices: Choices, group: Group, overridden: Overridden) -> Bundle:
        """The bundle of a group as these options have it. Raises PlaceError and GgmlError."""
        device = choices.device_of_group(group)
        key = (group, device, choices.options.offload_kqv, overridden)
        if key in self._bundles:
            return self._bundles[key]
        bundle = Bundle([], {}, {})
        for spec, role in self.groups.weights.get(group, ()):
            buft, _ = choices.weight(spec, role)
            self.put(bundle.bindings, bundle.weights, self.kept.placed[spec.id], buft, USAGE_WEIGHTS)
        for spec, il in self.groups.caches.get(group, ()):
            buft, _ = choices.cache(il)
            self.put(bundle.bindings, bundle.caches, self.kept.placed[spec.id], buft, USAGE_ANY)
        self._bundles[key] = bundle
        return bundle

    def put(
        self, bindings: list[tuple[Tensor, Buffer]], sizes: dict[str, int], t: Tensor, buft: str, usage: int
    ) -> None:
        """Note that a tensor, and its views among the weights, lie in a buffer type."""
        buffer = self.buffer(buft, usage)
        bindings.append((t, buffer))
        if t.view_src is None:
            sizes[buft] = sizes.get(buft, 0) + self.size(t, buft)
            bindings += [(self.kept.placed[id], buffer) for id in self.groups.views.get(t.id, ())]

    def tell(self, sched: Scheduler, graph: str, bundles: Sequence[tuple[Group, Bundle]]) -> None:
        """Give a new scheduler the answers of pass 1 that follow from where each group lies; where the engine was not
        asked yet, it is asked now. Where it would refuse, it is left to do so.
        """
        ids = sched.ids
        members = self.groups.members[graph]
        key = (graph, sched.op_offload)
        for group, bundle in bundles:
            known = bundle.known.get(key)
            if known is None:
                tensors = members.get(group, [])
                try:
                    assign_from_buffers(sched, tensors)
                except GgmlError:
                    continue
                bundle.known[key] = [(t.index, ids[t.index]) for t in tensors if ids[t.index] != -1]
            else:
                for i, b in known:
                    ids[i] = b


def _asked_once(alloc_size: AllocSize) -> AllocSize:
    """A device's rule for bytes that is asked once for each tensor, whose layout and sources' layouts stay.

    Only attention also looks at which of its sources are views of which, and copies are not.
    """
    sizes: dict[int | tuple[int, ...], int] = {}

    def size_of(t: Tensor) -> int:
        key: int | tuple[int, ...] = t.index
        if t.op == Op.FLASH_ATTN_EXT:
            key = (t.index, *[-1 if s is None else s.index for s in t.src])
        size = sizes.get(key)
        if size is None:
            size = sizes[key] = alloc_size(t)
        return size

    return size_of
