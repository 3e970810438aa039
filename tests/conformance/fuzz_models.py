"""Random transformers: layers spread over the devices, with caches, masks, experts and attention in several forms."""

from __future__ import annotations

from typing import Protocol

from tests.conformance.fuzz_nodes import Maker, Ne, Node, T, bits, call, contiguous


class Builder(Maker, Protocol):
    """What the models need besides the op functions' needs."""

    def chance(self, p: float) -> bool: ...
    def add(self, node: Node) -> T: ...
    def place(self, context: str, buft: str | None, usage: str | None, prefix: str, type: str, ne: Ne) -> T: ...
    def layer_buft(self, layer: int, n_layers: int) -> str: ...


class Transformer:
    """One model: the same `weights` for every graph that is made of it."""

    def __init__(self, b: Builder) -> None:
        rng = b.rng
        self.b = b
        self.width = rng.choice((32, 64, 128, 256))
        self.head = rng.choice((16, 32))
        self.n_head = self.width // self.head
        self.n_kv_head = rng.choice([n for n in (1, 2, self.n_head) if self.n_head % n == 0])
        # Rounding grows from layer to layer until experts are chosen differently.
        self.n_layers = rng.randint(1, 2 if b.values else 4)
        self.context = rng.choice((32, 64, 256))
        self.type = rng.choice(("f32", "f16", "q8_0", "q4_0"))
        self.cache_type = rng.choice(("f32", "f16", "q8_0") if self.head == 32 else ("f32", "f16"))
        self.flash = b.chance(0.4)
        self.moe = b.chance(0.3)
        self.biases = b.chance(0.3)
        self.set_rows = b.chance(0.6)
        self.split_cache = b.chance(0.2)
        self.bufts = [b.layer_buft(i, self.n_layers) for i in range(self.n_layers + 1)]
        self.weights: dict[tuple[int, str], T] = {}

    def weight(self, layer: int, name: str, type: str, *ne: int) -> T:
        """The layer's weight of that name, made at first use."""
        key = (layer, name)
        if key not in self.weights:
            buft = self.bufts[layer]
            if self.b.chance(0.05):
                buft = "CPU"
            full = (*ne, *[1] * (4 - len(ne)))
            self.weights[key] = self.b.place(f"model-{buft}", buft, "weights", "w", type, full)
        return self.weights[key]

    def cache(self, layer: int, name: str) -> T:
        key = (layer, name)
        if key not in self.weights:
            buft = self.b.rng.choice(self.bufts) if self.split_cache else self.bufts[layer]
            ne = (self.head * self.n_kv_head, self.context, 1, 1)
            self.weights[key] = self.b.place(f"kv-{buft}", buft, "any", "c", self.cache_type, ne)
        return self.weights[key]

    def product(self, w: T, x: T) -> T:
        return self.b.add(Node("mul_mat", [w, x], "f32", (w.ne[1], *x.ne[1:]), short=call("mul_mat", w, x)))

    def same(self, op: str, src: list[T], words: list[int] | None = None) -> T:
        return self.b.add(Node(op, [*src], "f32", src[0].ne, None, words or []))

    def view(self, op: str, a: T, ne: Ne, nb: Ne, offset: int = 0, words: list[int] | None = None) -> T:
        return self.b.add(Node(op, [a], a.type, ne, nb, words or [offset, 0], a.root or a.id, a.offset + offset))

    def reshape(self, a: T, *ne: int) -> T:
        full = (*ne, *[1] * (4 - len(ne)))
        return self.b.add(Node("reshape", [a], a.type, full, None, [], a.root or a.id, a.offset))

    def permuted(self, a: T) -> T:
        ne = (a.ne[0], a.ne[2], a.ne[1], a.ne[3])
        nb = (a.nb[0], a.nb[2], a.nb[1], a.nb[3])
        return self.view("permute", a, ne, nb, words=[0, 2, 1, 3])

    def normed(self, x: T, layer: int, name: str) -> T:
        h = self.same("rms_norm", [x], [bits(1e-6)])
        return self.same("mul", [h, self.weight(layer, name, "f32", self.width)])

    def graph(self, tokens: int) -> None:
        """Adds the nodes for a batch of so many tokens."""
        b = self.b
        if b.chance(0.7):
            ids = b.input("i32", (tokens, 1, 1, 1), 64)
            table = self.weight(self.n_layers, "embd", self.type, self.width, 64)
            if b.chance(0.5):
                table = b.place("model-CPU", "CPU", "weights", "w", self.type, (self.width, 64, 1, 1))
            x = b.add(Node("get_rows", [table, ids], "f32", (self.width, tokens, 1, 1)))
        else:
            x = b.input("f32", (self.width, tokens, 1, 1))
        self.positions = b.input("i32", (tokens, 1, 1, 1))
        self.mask = b.input("f16", (self.context, tokens, 1, 1))
        while not self.mask.is_contiguous:
            self.mask = b.place("inputs", None, None, "x", "f16", (self.context, tokens, 1, 1))
        for layer in range(self.n_layers):
            x = self.same("add", [x, self.attention(self.normed(x, layer, "norm1"), layer, tokens)])
            x = self.same("add", [x, self.feed_forward(self.normed(x, layer, "norm2"), layer, tokens)])
        if tokens > 1 and b.chance(0.4):
            out_ids = b.input("i32", (1, 1, 1, 1), tokens)
            x = b.add(Node("get_rows", [x, out_ids], "f32", (self.width, 1, 1, 1)))
        last = self.n_layers
        x = self.normed(x, last, "norm")
        self.product(self.weight(last, "head", self.type, self.width, 48), x)

    def attention(self, x: T, layer: int, tokens: int) -> T:
        kv = self.head * self.n_kv_head
        q = self.product(self.weight(layer, "q", self.type, self.width, self.width), x)
        k = self.product(self.weight(layer, "k", self.type, self.width, kv), x)
        v = self.product(self.weight(layer, "v", self.type, self.width, kv), x)
        if self.biases:
            q = self.same("add", [q, self.weight(layer, "qb", "f32", self.width)])
        rope = [0, self.head, 0, 0, 0, bits(10000.0), bits(1.0), 0, bits(1.0), 0, 0]
        q = self.same("rope", [self.reshape(q, self.head, self.n_head, tokens), self.positions], rope)
        k = self.same("rope", [self.reshape(k, self.head, self.n_kv_head, tokens), self.positions], rope)
        ck, cv = self.cache(layer, "ck"), self.cache(layer, "cv")
        for cache, rows in ((ck, k), (cv, v)):
            self.store(cache, self.reshape(rows, kv, tokens) if rows is k else rows, tokens)
        keys = self.permuted(self.heads(ck))
        values = self.heads(cv)
        if self.flash:
            ne = (self.head, self.n_head, tokens, 1)
            src = [self.permuted(q), keys, self.permuted(values), self.mask]
            out = self.b.add(Node("flash_attn_ext", [*src], "f32", ne, None, [bits(0.125), 0, 0]))
            out = self.reshape(out, self.width, tokens)
        else:
            out = self.softmax_attention(self.permuted(q), keys, values, tokens)
        return self.product(self.weight(layer, "o", self.type, self.width, self.width), out)

    def store(self, cache: T, rows: T, tokens: int) -> None:
        """Writes the batch's rows into the cache."""
        b = self.b
        tokens = min(tokens, self.context)
        if self.set_rows or rows.ne[1] > self.context:
            ids = b.input("i64", (rows.ne[1], 1, 1, 1), self.context)
            b.add(Node("set_rows", [rows, ids, cache], cache.type, cache.ne, cache.nb, [], cache.id))
            return
        ne = (cache.ne[0], tokens, 1, 1)
        offset = cache.nb[1] * b.rng.randrange(self.context - tokens + 1)
        part = self.view("view", cache, ne, contiguous(cache.type, ne), offset)
        b.add(Node("cpy", [rows, part], part.type, part.ne, part.nb, [], cache.id, part.offset))

    def heads(self, cache: T) -> T:
        """The cache as (head, kv heads, positions)."""
        row = cache.nb[1] // self.n_kv_head
        ne = (self.head, self.n_kv_head, self.context, 1)
        nb = (cache.nb[0], row, cache.nb[1], cache.nb[1] * self.context)
        return self.view("view", cache, ne, nb)

    def softmax_attention(self, q: T, keys: T, values: T, tokens: int) -> T:
        b = self.b
        kq = b.add(Node("mul_mat", [keys, q], "f32", (self.context, tokens, self.n_head, 1)))
        kq = self.same("soft_max", [kq, self.mask], [bits(0.125), 0])
        ne = (self.context, self.head, self.n_kv_head, 1)
        nb = (values.nb[2], values.nb[0], values.nb[1], values.nb[3])
        turned = self.view("permute", values, ne, nb, words=[1, 2, 0, 3])
        turned = b.add(Node("cpy", [turned], "f32", ne, self_source=True) if b.chance(0.5) or self.quantized_cache
                       else Node("cont", [turned], turned.type, ne))  # fmt: skip
        kqv = b.add(Node("mul_mat", [turned, kq], "f32", (self.head, tokens, self.n_head, 1)))
        merged = self.permuted(kqv)
        return b.add(Node("cont", [merged], "f32", (self.width, tokens, 1, 1)))

    @property
    def quantized_cache(self) -> bool:
        return self.cache_type not in ("f32", "f16")

    def feed_forward(self, x: T, layer: int, tokens: int) -> T:
        if self.moe:
            return self.experts(x, layer, tokens)
        hidden = 2 * self.width
        gate = self.product(self.weight(layer, "gate", self.type, self.width, hidden), x)
        if self.b.chance(0.7):
            up = self.product(self.weight(layer, "up", self.type, self.width, hidden), x)
            h = self.b.add(Node("glu", [gate, up], "f32", gate.ne, None, [2, 0]))
        else:
            h = self.same("unary", [gate], [10])
        return self.product(self.weight(layer, "down", self.type, hidden, self.width), h)

    def experts(self, x: T, layer: int, tokens: int) -> T:
        b = self.b
        n, used = 4, 2
        logits = self.product(self.weight(layer, "router", "f32", self.width, n), x)
        probs = self.same("soft_max", [logits], [bits(1.0), 0])
        order = b.add(Node("argsort", [probs], "i32", probs.ne, None, [1]))
        ids = self.view("view", order, (used, tokens, 1, 1), order.nb)
        up = self.weight(layer, "ups", self.type, self.width, 2 * self.width, n)
        down = self.weight(layer, "downs", self.type, 2 * self.width, self.width, n)
        rows = self.reshape(x, self.width, 1, tokens)
        h = b.add(Node("mul_mat_id", [up, rows, ids], "f32", (up.ne[1], used, tokens, 1)))
        h = self.same("unary", [h], [10])
        h = b.add(Node("mul_mat_id", [down, h, ids], "f32", (self.width, used, tokens, 1)))
        picked = b.add(Node("get_rows", [self.reshape(probs, 1, n, tokens), ids], "f32", (1, used, tokens, 1)))
        h = self.same("mul", [h, picked])
        parts = [
            self.view(
                "view", h, (self.width, tokens, 1, 1), (4, h.nb[2], h.nb[2] * tokens, h.nb[2] * tokens), i * h.nb[1]
            )
            for i in range(used)
        ]
        return self.same("add", parts)
