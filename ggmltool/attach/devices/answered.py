"""What a program's devices answered, as recorded devices have it: the questions in a scenario's words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ggmltool.attach.devices.asking import COMPUTE_NOTHING
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.ggml.buffer import USAGE_ANY
from ggmltool.ggml.devices.profiles import profile_of_name
from ggmltool.ggml.devices.questions import Lies, Operand, OpQuestion, trimmed, without_memory
from ggmltool.ggml.devices.recorded import Order, RecordedAnswer, RecordedAnswers
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import EMPTY_OPS, FIRST_GLU_KEY, FIRST_UNARY_KEY, keys_of
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.sources.graph_writer import text, without_controls
from ggmltool.state.memory.tensors import TensorStruct


@dataclass(frozen=True, slots=True)
class SnapshotQuestions:
    """Tensors of a snapshot as questions. `bufts` are what the scenario calls buffer types, by address. What lies in
    one of the buffers `given` has no memory: the scheduler gave it to a graph, which it had not yet when it asked; nor
    had it made the copies, of which `originals` has the tensors."""

    snapshot: Snapshot
    bufts: Mapping[int, str]
    given: Collection[int] = field(default=frozenset())
    originals: Mapping[int, int] = field(default_factory=dict)

    def question(self, t: TensorStruct) -> OpQuestion | None:
        """What a device was asked about a tensor; None for an op or a type that ggmltool does not know."""
        name = self.snapshot.op_names.get((t.op, t.op_params[0] if t.op_params else 0), "")
        try:
            key = keys_of(name.lower())[0]
        except KeyError:
            return None
        result = self._operand(t)
        if result is None:
            return None
        sources = []
        for address in trimmed(t.src):
            s = self.snapshot.tensors.get(self.originals.get(address, address))
            operand = None if s is None else self._operand(s)
            if address and operand is None:
                return None
            sources.append(operand)
        return OpQuestion(key, _params(key, t), result, tuple(sources))

    def _operand(self, t: TensorStruct) -> Operand | None:
        type = self.snapshot.type_names.get(t.type, "")
        if type not in TYPES:
            return None
        root = self.snapshot.tensors.get(t.view_src) if t.view_src else None
        lies = self._lies(t, True) or (None if root is None else self._lies(root, False))
        return Operand(type, t.ne, t.nb, bool(t.view_src), lies)

    def _lies(self, t: TensorStruct, own: bool) -> Lies | None:
        buffer = None if t.buffer in self.given else self.snapshot.buffers.get(t.buffer)
        if buffer is None or buffer.buft not in self.bufts:
            return None
        return Lies(self.bufts[buffer.buft], buffer.usage if buffer.usage_name is not None else USAGE_ANY, own)


def recorded(asked: SnapshotQuestions, answers: Answers) -> list[RecordedAnswers]:
    """The answers of each backend, in order, with the sizes in the buffer types of its device. A buffer type whose
    device is none of a backend's goes with the last backend."""
    snapshot = asked.snapshot
    questions = {a: q for a, t in snapshot.tensors.items() if (q := asked.question(t)) is not None}
    sizes: dict[int, dict[OpQuestion, int]] = {}
    for (t, buft), size in answers.sizes.items():
        if t in questions and buft in asked.bufts:
            sizes.setdefault(buft, {})[without_memory(questions[t])] = size
    owners = [backend.device for backend in snapshot.backends]
    out = []
    for b, backend in enumerate(snapshot.backends):
        ops = {
            questions[t]: RecordedAnswer(says, answers.offloads.get((t, b), False))
            for (t, i), says in answers.supports.items()
            if i == b and t in questions
        }
        first = owners.index(backend.device) == b
        last = b == len(owners) - 1
        own = {
            asked.bufts[at]: sizes[at]
            for at, state in snapshot.bufts.items()
            if at in sizes and ((first and state.device == backend.device) or (last and state.device not in owners))
        }
        out.append(RecordedAnswers(ops, own))
    return out


def _params(key: int, t: TensorStruct) -> tuple[int, ...]:
    if key in EMPTY_OPS:
        return ()
    if key >= FIRST_UNARY_KEY:
        function = key - (FIRST_GLU_KEY if key >= FIRST_GLU_KEY else FIRST_UNARY_KEY)
        return trimmed((function, *t.op_params[1:]))
    return trimmed(t.op_params)


Sources = Callable[[TensorStruct], Sequence[int]]
"""The sources that the program gave a tensor."""


def given_order(snapshot: Snapshot, sources: Sources) -> tuple[int, ...]:
    """The nodes of a graph that is split already, in an order from which its splits take their inputs in the order that
    they have: a device moves nodes after the inputs were taken. A split stands as it is where no such order is found.
    """
    out: list[int] = []
    nodes = snapshot.graph.nodes
    for split in snapshot.sched.splits:
        some = nodes[split.i_start : split.i_end]
        moves = "graph_optimize" in snapshot.backends[split.backend_id].functions and len(split.inputs) > 1
        out += _moved_back(snapshot, some, split.inputs, sources) if moves else some
    return tuple(out) if len(out) == len(nodes) else nodes


def _moved_back(snapshot: Snapshot, nodes: Sequence[int], inputs: Sequence[int], sources: Sources) -> Sequence[int]:
    """The nodes of a split, moved back: always the first comes next whose inputs are the next ones of the split."""
    tensors = snapshot.tensors
    read = {node: [s for s in sources(tensors[node]) if s] for node in nodes}
    behind = _behind(tensors, read)
    left = dict.fromkeys(nodes)
    out: list[int] = []
    taken = 0
    while left:
        missing = inputs[taken:]
        for node in left:
            t = tensors[node]
            nothing = snapshot.op_names.get((t.op, t.op_params[0] if t.op_params else 0)) in COMPUTE_NOTHING
            new = [] if nothing else [s for s in dict.fromkeys(read[node]) if s in missing]
            if new == list(missing[: len(new)]) and left.keys().isdisjoint(behind[node]):
                break
        else:
            return nodes
        del left[node]
        out.append(node)
        taken += len(new)
    return out


def _behind(tensors: Mapping[int, TensorStruct], sources: Mapping[int, Sequence[int]]) -> dict[int, set[int]]:
    """What each node comes behind: its sources, and those that write what it reads or read what it writes."""
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    out = {}
    for node, own in sources.items():
        read = {tensors[s].view_src or s if s in tensors else s for s in own}
        written = tensors[node].view_src or node
        before = {*own, *(writers[root] for root in {written, *read} if root in writers)}
        out[node] = (before | readers.get(written, set())) - {node}
        for root in read:
            readers.setdefault(root, set()).add(node)
        writers[written] = node
    return out


def orders_of(before: Sequence[int], after: Snapshot, ids: Mapping[int, str]) -> Iterator[tuple[Order, ...]]:
    """What each backend made of its splits, of a graph that is split `after`. Splits that were left as their nodes were
    `before` are only told of a backend whose name is that of a device with an order of its own. `ids` are those of the
    graph's tensors."""
    profiles = profiles_of(BY_NAME[after.release])
    kept = _kept(after)
    for b, backend in enumerate(after.backends):
        if "graph_optimize" not in backend.functions:
            yield ()
            continue
        orders = profiles[profile_of_name(backend.name or "")].graph_optimize is not None
        yield tuple(
            _order(nodes, kept, after, ids)
            for split in after.sched.splits
            if split.backend_id == b
            for nodes in [after.graph.nodes[split.i_start : split.i_end]]
            if orders or nodes != before[split.i_start : split.i_end] or not kept.keys().isdisjoint(nodes)
        )


def _order(nodes: Sequence[int], kept: Mapping[int, Sequence[int]], after: Snapshot, ids: Mapping[int, str]) -> Order:
    def name(tensor: int) -> str:
        return ids.get(tensor) or without_controls(text(after.tensors[tensor].name))

    until = ((name(n), tuple(name(t) for t in kept[n] if t in after.tensors)) for n in nodes if n in kept)
    return Order(tuple(map(name, nodes)), tuple(until))


def _kept(after: Snapshot) -> dict[int, list[int]]:
    """What is kept until a node was computed: the sources of the nodes that the scheduler has put behind it in its own
    graph. Behind the last node of a split come two for each input of the next one, too."""
    own, nodes = after.sched.graph.nodes, after.graph.nodes
    at = {node: i for i, node in enumerate(own)}
    out: dict[int, list[int]] = {}
    splits = after.sched.splits
    for split, n_inputs in zip(splits, [*(len(s.inputs) for s in splits[1:]), 0], strict=True):
        for i in range(split.i_start, min(split.i_end, len(nodes))):
            first = at.get(nodes[i], len(own)) + 1
            end = at.get(nodes[i + 1], first) if i + 1 < len(nodes) else len(own)
            behind = own[first : end - 2 * n_inputs if i + 1 == split.i_end else end]
            found = [s for n in behind if n in after.tensors for s in after.tensors[n].src if s]
            if found:
                out[nodes[i]] = found
    return out
