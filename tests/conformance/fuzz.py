"""Random scenarios: `scenario(seed)` is always the same dict for the same seed, and knows nothing of the engine."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.conformance.draw import any_node
from tests.conformance.fuzz_models import Transformer
from tests.conformance.fuzz_nodes import TYPES, Ne, Node, T, contiguous

Spec = dict[str, Any]

ONLY = ("mul_mat", "add", "mul", "rms_norm", "scale", "get_rows", "soft_max", "unary", "rope", "cpy", "cont", "glu")
EXCEPT = (*ONLY, "mul_mat_id", "set_rows", "concat", "silu", "sqr", "flash_attn_ext", "argsort", "norm")

ODD_IDS = ("blk.0.attn_q.weight", "Qcur-0 (view)", "größe", "κ~2", " (copy)", "leaf 7")
ODD_NAMES = (
    "", "", "same", "same", "x" * 63, "größe", "κ" * 31, "long-" * 11 + "é", "a#b#0", "node_3", "leaf_1", "%s %d",
)  # fmt: skip


PROFILES = {
    "MTL": "Metal",
    "Vulkan": "Vulkan",
    "SYCL": "SYCL",
    "RPC": "RPC",
    "ROCm": "ROCm",
    "CL": "OpenCL",
    "CANN": "CANN",
}
FEATURES = (["avx2"], ["avx2", "avx512"], ["neon", "dotprod"], ["neon", "dotprod", "i8mm"], [])
KNOWN_BUFTS = {
    "CUDA": ("CUDA_Host",),
    "ROCm": ("ROCm_Host",),
    "Metal": ("{}_Private", "{}_Mapped"),
    "Vulkan": ("Vulkan_Host",),
    "SYCL": ("SYCL_Host",),
}
"""What a context can name without saying what it is."""


def scenario(seed: int, short_forms: bool = True, values: bool = False, inputs_anywhere: bool = False) -> Spec:
    """A scenario as SPEC.md has it. Without `short_forms` every node is long and every shape explicit.

    With `values` its tensors have data and its steps compute and read the graphs' outputs. With `inputs_anywhere` some
    results are flagged as inputs, too, which not every ggml takes.
    """
    return Generator(Random(seed), short_forms, values, inputs_anywhere).scenario(seed)


class Generator:
    """One scenario in the making; if `even`, rare ops are no rarer in it than others."""

    even = False

    def __init__(self, rng: Random, short_forms: bool, values: bool, inputs_anywhere: bool = False) -> None:
        self.rng = rng
        self.inputs_anywhere = inputs_anywhere
        self.values = values
        self.limits: dict[str, int] = {}
        self.short_forms = short_forms
        self.backends: list[Any] = []
        self.buffer_types: dict[str, Spec] = {}
        self.contexts: dict[str, Spec] = {}
        self.tensors: list[T] = []
        self.nodes: dict[str, Any] = {}
        self.visible: list[T] = []
        self.made: dict[tuple[str, str, Ne], list[T]] = {}
        self.counter = 0
        self.profiles: dict[str, str] = {}
        self.odd = rng.random() < 0.15
        self.shift: int | None = None

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def maybe(self, spec: Spec, p: float, key: str, *values: Any) -> None:
        """With chance `p` a key with one of these values."""
        if self.chance(p):
            spec[key] = values[0] if len(values) == 1 else self.rng.choice(values)

    def scenario(self, seed: int) -> Spec:
        self.make_backends()
        self.make_buffer_types()
        graphs = self.make_graphs()
        out: Spec = {"ggmltool": 1, "name": f"random {seed}", "backends": self.backends}
        if self.buffer_types:
            out["buffer_types"] = self.buffer_types
        scheduler: Spec = {}
        if self.parallel:
            scheduler["parallel"] = True
        self.maybe(scheduler, 0.1, "op_offload", False)
        if self.chance(0.04):
            scheduler["graph_size"] = self.rng.choice((4, 16, 30, 64, 100, 500, 5000))
        elif self.chance(0.05):
            n = len(self.tensors) + max(len(g["nodes"]) for g in graphs.values())
            scheduler["graph_size"] = int(n * self.rng.uniform(0.3, 1.2)) + 1
        if scheduler:
            out["scheduler"] = scheduler
        out["contexts"] = self.contexts
        out["graphs"] = graphs
        if self.values:
            self.make_data()
        steps = self.make_computing_steps(graphs) if self.values else self.make_steps(list(graphs))
        if steps:
            out["steps"] = steps
        return out

    def make_backends(self) -> None:
        rng = self.rng
        self.parallel = self.chance(0.15)
        n = rng.choices((0, 1, 2, 3), (10, 50, 30, 10))[0]
        if self.chance(0.003):
            n = rng.choice((14, 15, 16))
        for i in range(n):
            name = f"CUDA{i}" if self.chance(0.7) else rng.choice(("GPU", "NPU-é", "Vulkan", "dev")) + str(i)
            if self.chance(0.2) and not self.values:
                name = rng.choice(tuple(PROFILES)) + str(i)
                self.profiles[name] = PROFILES[name.rstrip("0123456789")]
            self.backends.append(self.make_device(name))
        if self.chance(0.15):
            self.backends.append(self.make_blas())
        self.backends.append(self.make_cpu())

    def make_device(self, name: str) -> Spec:
        rng = self.rng
        device: Spec = {"name": name, "profile": "custom"}
        if name.startswith("CUDA") and self.chance(0.2) and not self.values:
            self.profiles[name] = "CUDA"
        if name in self.profiles:
            device["profile"] = self.profiles[name]
            self.maybe(device, 0.15, "graph_optimize", False)
        self.maybe(device, 0.7, "alignment", 16, 32, 64, 128, 256, 512)
        self.maybe(device, 0.35, "row_padding", 64, 256, 512)
        self.maybe(device, 0.2, "max_size", 512, 1024, 4096, 10000, 65536)
        self.maybe(device, 0.15, "host", True)
        if self.chance(0.25):
            device["supports"] = (
                {"only": rng.sample(ONLY, rng.randint(1, 6))} if self.chance(0.4) else {"except": self.some_ops()}
            )
        if self.chance(0.2):
            device["supports_bufts"] = [b for b in [*self.device_names_so_far(), name, "CPU"] if self.chance(0.5)]
        self.maybe(device, 0.35, "offload_min_batch", 0, 1, 2, 8, 32, 33)
        self.maybe(device, 0.6 if self.parallel else 0.1, "events", True)
        self.maybe(device, 0.1, "type", "igpu", "accel")
        if device == {"name": name, "profile": self.profiles.get(name)} and self.chance(0.8):
            return {"name": name}
        if self.chance(0.06):
            device["buft"] = rng.choice(["CPU", *self.device_names_so_far()])
            device["supports_bufts"] = [device["buft"]]
        return device

    def some_ops(self) -> list[str]:
        return self.rng.sample(EXCEPT, self.rng.randint(1, 5))

    def make_blas(self) -> Any:
        if self.chance(0.5):
            return "BLAS"
        return {
            "name": "ACC",
            "profile": "custom",
            "type": "accel",
            "buft": "CPU",
            "supports_bufts": ["CPU"],
            "supports": {"only": self.rng.sample(ONLY, 3)},
        }

    def make_cpu(self) -> Any:
        if self.chance(0.85):
            return "CPU"
        cpu: Spec = {"name": "CPU"}
        self.maybe(cpu, 0.2, "features", *FEATURES)
        self.maybe(cpu, 0.4, "alignment", 16, 32, 64, 256)
        self.maybe(cpu, 0.3, "max_size", 1024, 8192)
        if self.chance(0.2):
            cpu["supports"] = {"except": self.some_ops()}
        self.maybe(cpu, 0.15, "host", False)
        if self.chance(0.2) and self.device_names_so_far():
            cpu["supports_bufts"] = [self.rng.choice(self.device_names_so_far())]
        return cpu

    def device_names_so_far(self) -> list[str]:
        return [b["name"] for b in self.backends if isinstance(b, dict) and "buft" not in b]

    def make_buffer_types(self) -> None:
        rng = self.rng
        names = self.device_names_so_far()
        while self.chance(0.2) and len(self.buffer_types) < 2:
            device = rng.choice(["CPU", *names])
            buft: Spec = {"device": device}
            self.maybe(buft, 0.5, "alignment", 16, 32, 128, 512)
            self.maybe(buft, 0.3, "max_size", 1024, 8192)
            self.maybe(buft, 0.3, "row_padding", 64, 512)
            self.maybe(buft, 0.3, "host", True)
            if self.chance(0.6):
                buft["ops"] = rng.sample(("mul_mat", "mul_mat_id", "get_rows", "mul", "add", "rope"), rng.randint(1, 3))
            self.buffer_types[f"{device}_Extra{len(self.buffer_types)}"] = buft
        self.bufts = [*self.device_names_so_far(), "CPU", "CPU", *self.buffer_types]
        if self.chance(0.2) and not self.values:
            known = ["CPU_REPACK", "AMX", "CPU_Mapped", "CPU_HBM"]
            for name, profile in self.profiles.items():
                known += [text.format(name) for text in KNOWN_BUFTS.get(profile, ())]
            self.bufts += rng.sample(known, rng.randint(1, len(known)))

    def new_id(self, prefix: str) -> tuple[str, bool]:
        self.counter += 1
        if self.odd and self.chance(0.1):
            return f"{self.rng.choice(ODD_IDS)}{self.counter}", False
        return f"{prefix}{self.counter}", True

    def place(self, context: str, buft: str | None, usage: str | None, prefix: str, type: str, ne: Ne) -> T:
        """A new tensor in a context, which is made where it does not exist."""
        spec = self.contexts.setdefault(context, {})
        if buft is not None:
            spec["buft"] = buft
            if usage != "any" or self.chance(0.5):
                spec["usage"] = usage
        spec.setdefault("tensors", {})
        id, short = self.new_id(prefix)
        nb = contiguous(type, ne)
        if self.chance(0.02) and ne[1] > 1:
            gap = TYPES[type][1] * self.rng.randint(1, 8)
            nb = (nb[0], nb[1] + gap, (nb[1] + gap) * ne[1], (nb[1] + gap) * ne[1] * ne[2])
        t = T(id, type, ne, nb, short=short)
        entry: Any = {"type": type, "ne": list(ne)}
        if nb != contiguous(type, ne) or self.chance(0.1):
            entry["nb"] = list(nb)
        if self.odd:
            self.maybe(entry, 0.2, "name", *ODD_NAMES)
        if self.chance(0.01):
            entry["backend"] = self.rng.choice(self.all_names())
        spec["tensors"][id] = entry
        self.tensors.append(t)
        self.visible.append(t)
        return t

    def all_names(self) -> list[str]:
        return [b if isinstance(b, str) else b["name"] for b in self.backends]

    def again(self, kind: str, type: str, ne: Ne) -> T | None:
        """An earlier tensor of the same kind and shape, most of the time."""
        made = self.made.get((kind, type, ne))
        return self.rng.choice(made) if made and self.chance(0.6) else None

    def remember(self, kind: str, t: T) -> T:
        self.made.setdefault((kind, t.type, t.ne), []).append(t)
        return t

    def input(self, type: str, ne: Ne, below: int = 64) -> T:
        t = self.again("input", type, ne) or self.new_input(type, ne)
        self.limits[t.id] = min(below, self.limits.get(t.id, below))
        return t

    def new_input(self, type: str, ne: Ne) -> T:
        if self.chance(0.12):
            t = self.place("given", self.rng.choice(("CPU", *self.bufts)), "any", "g", type, ne)
        elif self.chance(0.85):
            t = self.place("inputs", None, None, "x", type, ne)
            self.contexts["inputs"]["tensors"][t.id]["flags"] = ["input"]
        else:
            context = "loose" if self.chance(0.5) else "inputs"
            t = self.place(context, None, None, "l", type, ne)
            self.maybe(self.contexts[context]["tensors"][t.id], 0.1, "flags", ["output"], ["param"], ["loss"])
        if self.chance(0.02) and t.is_contiguous:
            self.view_in_context(next(name for name, c in self.contexts.items() if t.id in c["tensors"]), t)
        return self.remember("input", t)

    def weight(self, type: str, ne: Ne) -> T:
        found = self.again("weight", type, ne)
        if found:
            return found
        buft = self.rng.choice(self.bufts)
        usage = self.rng.choices(("weights", "any", "compute"), (85, 12, 3))[0]
        t = self.place(f"{usage}-{buft}", buft, usage, "w", type, ne)
        entry = self.contexts[f"{usage}-{buft}"]["tensors"][t.id]
        self.maybe(entry, 0.03, "flags", ["param"], ["output"], ["input"])
        if self.chance(0.06) and t.is_contiguous:
            self.view_in_context(f"{usage}-{buft}" if self.chance(0.85) else f"views{self.counter}", t)
        return self.remember("weight", t)

    def view_in_context(self, context: str, of: T) -> None:
        """A view that is no node: a tensor with view_src in the same context."""
        id, short = self.new_id("v")
        view = T(id, of.type, of.ne, of.nb, of.id, 0, short, of.room)
        if of.ne[1] > 1:
            skipped = self.rng.randrange(of.ne[1])
            ne = (of.ne[0], of.ne[1] - skipped, *of.ne[2:])
            view = T(id, of.type, ne, of.nb, of.id, skipped * of.nb[1] if of.ne[2:] == (1, 1) else 0, short, of.room)
        entry: Spec = {"type": view.type, "ne": list(view.ne), "nb": list(view.nb), "view_src": of.id}
        if view.offset:
            entry["view_offs"] = view.offset
        self.contexts.setdefault(context, {"tensors": {}})["tensors"][id] = entry
        self.tensors.append(view)
        self.visible.append(view)

    def cache(self, type: str, ne: Ne) -> T:
        found = self.again("cache", type, ne)
        if found:
            return found
        buft = self.rng.choice(self.bufts)
        usage = "any" if self.chance(0.9) else "weights"
        return self.remember("cache", self.place(f"cache-{usage}-{buft}", buft, usage, "c", type, ne))

    def parameter(self, ne: Ne) -> T:
        """A weight that is trained."""
        buft = self.rng.choice(self.bufts)
        t = self.place(f"trained-{buft}", buft, "any", "w", "f32", ne)
        self.contexts[f"trained-{buft}"]["tensors"][t.id]["flags"] = ["param"]
        return t

    def pick(self, accept: Callable[[T], bool]) -> T | None:
        """A tensor seen so far that fits, rather a recent one."""
        n = len(self.visible)
        for _ in range(12):
            if not n:
                return None
            i = n - 1 - min(int(self.rng.expovariate(0.25)), n - 1) if self.chance(0.75) else self.rng.randrange(n)
            if accept(self.visible[i]):
                return self.visible[i]
        return None

    def layer_buft(self, layer: int, n_layers: int) -> str:
        """Where a layer of a model lies: the first layers on one device, the next on another."""
        names = [*self.device_names_so_far()[:3], "CPU"]
        if self.chance(0.05):
            return self.rng.choice(self.bufts)
        if self.shift is None:
            self.shift = self.rng.randrange(len(names))
        return names[(layer * len(names) // (n_layers + 1) + self.shift) % len(names)]

    def make_graphs(self) -> Spec:
        if self.chance(0.12):
            return self.make_model_graphs()
        rng = self.rng
        graphs: Spec = {}
        n = rng.choices((1, 2, 3), (65, 25, 10))[0]
        sizes = [rng.choice((2, 5, 10, 20, 30, 40)) if self.chance(0.85) else rng.randint(40, 150) for _ in range(n)]
        for i, size in enumerate(sizes):
            if graphs and self.chance(0.35):
                graphs[f"g{i}"] = self.mutated(rng.choice(list(graphs.values())))
            else:
                graphs[f"g{i}"] = self.make_graph(size)
        return graphs

    def make_model_graphs(self) -> Spec:
        """One to three batch sizes of one model."""
        model = Transformer(self)
        graphs: Spec = {}
        for i in range(self.rng.choices((1, 2, 3), (40, 40, 20))[0]):
            self.nodes = {}
            self.visible = list(self.tensors)
            model.graph(self.rng.choice((1, 1, 2, 8, 31, 32, 33)))
            graphs[f"g{i}"] = {"nodes": self.nodes, **({} if self.chance(0.5) else {"expand": [list(self.nodes)[-1]]})}
        return graphs

    def make_graph(self, size: int) -> Spec:
        rng = self.rng
        self.nodes = {}
        self.visible = list(self.tensors)
        width = rng.choice((8, 31, 32, 64, 64, 256))
        rows = rng.choice((1, 2, 8, 31, 32, 33, 40))
        self.limit = 1 << 20
        if self.chance(0.02) and not self.values:
            width, rows, self.limit = rng.choice((1 << 14, 1 << 20)), rng.choice((1 << 10, 1 << 12)), 1 << 36
        for _ in range(rng.randint(1, 3)):
            self.input("f32", (width, rows, *rng.choice(((1, 1), (1, 1), (2, 1), (4, 1), (2, 2)))))
        if self.chance(0.04):
            self.input("f32", rng.choice(((0, 4, 1, 1), (width, 0, 1, 1), (width, rows, 0, 1))))
        if self.chance(0.06):
            self.wide(rng.choice((5, 29, 30, 31, 32, 45, 61, 62, 70, 130)), width, rows)
        tries = 0
        while len(self.nodes) < size and tries < 10 * size + 20:
            tries += 1
            node = any_node(self)
            if node is not None and node_bytes(node) <= self.limit:
                self.add(node)
        if not self.nodes and self.chance(0.8):
            self.add(Node("scale", [self.input("f32", (4, 1, 1, 1))], "f32", (4, 1, 1, 1), None, [0x3F000000, 0]))
        return {"nodes": self.nodes, **self.make_expand()}

    def wide(self, n: int, width: int, rows: int) -> None:
        """A run of nodes on one device that needs `n` tensors from elsewhere."""
        w = self.weight("f32", (width, width, 1, 1))
        x = self.input("f32", (width, rows, 1, 1))
        h = self.add(Node("mul_mat", [w, x], "f32", (width, rows, 1, 1)))
        pairs = self.chance(0.6)
        made = 0
        while made < n:
            t = self.wide_input(width)
            made += 1
            if pairs and made < n and self.chance(0.3):
                t = self.add(Node("add", [t, self.wide_input(width)], "f32", (width, 1, 1, 1)))
                made += 1
            h = self.add(Node("add", [h, t], "f32", (width, rows, 1, 1)))
        self.visible = [t for t in self.visible if self.chance(0.3)] + [h]

    def wide_input(self, width: int) -> T:
        t = self.place("inputs", None, None, "x", "f32", (width, 1, 1, 1))
        if self.chance(0.9):
            self.contexts["inputs"]["tensors"][t.id]["flags"] = ["input"]
        return t

    def make_expand(self) -> Spec:
        rng = self.rng
        ids = list(self.nodes)
        if self.chance(0.6) or not ids:
            return {"expand": [self.rng.choice(self.tensors).id]} if self.chance(0.01) else {}
        if self.chance(0.4):
            expand = ids[-rng.randint(1, 3) :]
        else:
            expand = [i for i in ids if self.chance(0.5)] or [ids[-1]]
            if self.chance(0.3):
                rng.shuffle(expand)
        if self.chance(0.08) and self.tensors:
            expand.insert(rng.randrange(len(expand) + 1), rng.choice(self.tensors).id)
        return {"expand": expand}

    def add(self, node: Node) -> T:
        """Writes a node, in one of the forms it may have."""
        id, short = self.new_id("n")
        nb = node.nb or contiguous(node.type, node.ne)
        t = T(id, node.type, node.ne, nb, node.root, node.offset, short, node.room)
        extra: Spec = {}
        if self.chance(0.06):
            extra["flags"] = ["output"]
        elif self.chance(0.01):
            extra["flags"] = ["input"] if self.inputs_anywhere else []
        if self.odd:
            self.maybe(extra, 0.2, "name", *ODD_NAMES)
        if self.chance(0.02):
            extra["backend"] = self.rng.choice(self.all_names())
        if self.short_forms and node.short is not None and not extra and self.chance(0.4):
            self.nodes[id] = node.short
        else:
            self.nodes[id] = self.long_form(node, id, nb) | extra
        self.visible.append(t)
        return t

    def long_form(self, node: Node, id: str, nb: Ne) -> Spec:
        src: list[str | None] = [s.id if s else None for s in node.src]
        if node.self_source:
            src.append(id)
        out: Spec = {"op": node.op, "type": node.type, "ne": list(node.ne), "src": src}
        if nb != contiguous(node.type, node.ne) or node.op == "view" or self.chance(0.2):
            out["nb"] = list(nb)
        if node.words:
            out["op_params"] = node.words
        if node.root is not None:
            out["view_src"] = node.root
            if node.offset:
                out["view_offs"] = node.offset
        return out

    def mutated(self, graph: Spec) -> Spec:
        """The same graph with something else about it: fewer nodes, other flags, other ops of the same shape."""
        rng = self.rng
        nodes = {id: dict(n) if isinstance(n, dict) else n for id, n in graph["nodes"].items()}
        ids = list(nodes)
        types = {t.id: t.type for t in self.visible}
        kind = rng.randrange(4)
        if kind == 0 and len(ids) > 2:
            nodes = {id: nodes[id] for id in ids[: -rng.randint(1, 2)]}
        elif kind == 1:
            for id in rng.sample(ids, min(2, len(ids))):
                if isinstance(nodes[id], dict):
                    nodes[id]["flags"] = ["output"]
        elif kind == 2:
            for n in nodes.values():
                if isinstance(n, dict) and "view_src" not in n and self.chance(0.5):
                    if n["op"] in ("add", "sub", "mul", "div") and types.get(n["src"][0]) == n["type"]:
                        n["op"] = rng.choice(("add", "sub", "mul", "div"))
                    elif n["op"] in ("sqr", "sin", "log"):
                        n["op"] = rng.choice(("sqr", "sin", "log"))
        expand = [e for e in graph.get("expand", ()) if e in nodes or any(t.id == e for t in self.tensors)]
        if kind == 3 and len(ids) > 1:
            return {"nodes": nodes, "expand": rng.sample(ids, rng.randint(1, len(ids)))}
        return {"nodes": nodes, "expand": expand} if expand else {"nodes": nodes}

    def make_data(self) -> None:
        """Gives every tensor that is no view numbers."""
        for i, context in enumerate(self.contexts.values()):
            for j, (id, t) in enumerate(context["tensors"].items()):
                if "view_src" not in t:
                    integer = t["type"] in ("i32", "i64")
                    low, high = (0, self.limits.get(id, 1)) if integer else (-1, 1)
                    t["data"] = {"uniform": {"seed": 1000 * i + j, "low": low, "high": high}}

    def make_computing_steps(self, graphs: Spec) -> list[Any]:
        steps: list[Any] = []
        for _ in range(self.rng.randint(1, 4)):
            name = self.rng.choice(list(graphs))
            nodes = graphs[name]["nodes"]
            if not nodes:
                continue
            reached = graphs[name].get("expand") or list(nodes)
            # A view's flag does not keep the memory of its root.
            outputs = [i for i in reached if isinstance(nodes.get(i), dict) and "output" in nodes[i].get("flags", ())
                       and "view_src" not in nodes[i]]  # fmt: skip
            last = next((i for i in reversed(reached) if i in nodes), None)
            wanted = list(dict.fromkeys([*outputs, *([last] if last else [])]))
            steps += [f"reserve {name}"] if self.chance(0.3) else []
            steps += [f"alloc {name}", f"compute {name}"]
            steps += [{"get": wanted}] if wanted else []
            steps.append("reset")
        return steps

    def make_steps(self, graphs: list[str]) -> list[str]:
        rng = self.rng
        if self.chance(0.12):
            return []
        steps: list[str] = []
        allocated = False
        if self.chance(0.6):
            steps.append(f"reserve {rng.choice(graphs)}")
        for _ in range(rng.randint(1, 5) if self.chance(0.85) else rng.randint(5, 12)):
            roll = rng.random()
            if roll < 0.15 and (not allocated or self.chance(0.3)):
                steps.append(f"reserve {rng.choice(graphs)}")
                allocated = False
                continue
            if allocated and self.chance(0.93):
                steps.append("reset")
                allocated = False
            steps.append(f"alloc {rng.choice(graphs)}")
            allocated = True
        if self.chance(0.1):
            steps.insert(rng.randrange(len(steps) + 1), "reset")
        return steps


def node_bytes(node: Node) -> int:
    block, size = TYPES[node.type]
    return size * (node.ne[0] * node.ne[1] * node.ne[2] * node.ne[3]) // block
