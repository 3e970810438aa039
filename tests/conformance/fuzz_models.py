"""Random transformers: layers spread over the devices, with caches, masks, experts and attention in several forms."""

from __future__ import annotations

from typing import Any, Protocol

from ggmltool.ggml.ops.registry import CONSTRUCTORS
from tests.conformance.draw import made
from tests.conformance.fuzz_nodes import Maker, Ne, Node, T


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
            buft = "CPU" if self.b.chance(0.05) else self.bufts[layer]
            self.weights[key] = self.b.place(f"model-{buft}", buft, "weights", "w", type, (*ne, 1, 1, 1)[:4])
        return self.weights[key]

    def cache(self, layer: int, name: str) -> T:
        key = (layer, name)
        if key not in self.weights:
            buft = self.b.rng.choice(self.bufts) if self.split_cache else self.bufts[layer]
            ne = (self.head * self.n_kv_head, self.context, 1, 1)
            self.weights[key] = self.b.place(f"kv-{buft}", buft, "any", "c", self.cache_type, ne)
        return self.weights[key]

    def op(self, name: str, *src: T, **params: Any) -> T:
        """A node, as the engine's constructor makes it."""
        node = made(self.b, CONSTRUCTORS[name], list(src), params, False)
        assert node is not None, name
        return self.b.add(node)

    def product(self, layer: int, name: str, x: T, n: int) -> T:
        """`x` times a weight with so many columns."""
        return self.op("mul_mat", self.weight(layer, name, self.type, x.ne[0], n), x)

    def reshaped(self, a: T, *ne: int) -> T:
        return self.op(f"reshape_{len(ne)}d", a, **{f"ne{i}": n for i, n in enumerate(ne)})

    def permuted(self, a: T, *axes: int) -> T:
        return self.op("permute", a, **{f"axis{i}": axis for i, axis in enumerate(axes or (0, 2, 1, 3))})

    def normed(self, x: T, layer: int, name: str) -> T:
        return self.op("mul", self.op("rms_norm", x, eps=1e-6), self.weight(layer, name, "f32", self.width))

    def graph(self, tokens: int) -> None:
        """Adds the nodes for a batch of so many tokens."""
        b, last = self.b, self.n_layers
        if b.chance(0.7):
            ids = b.input("i32", (tokens, 1, 1, 1), 64)
            table = self.weight(last, "embd", self.type, self.width, 64)
            if b.chance(0.5):
                table = b.place("model-CPU", "CPU", "weights", "w", self.type, (self.width, 64, 1, 1))
            x = self.op("get_rows", table, ids)
        else:
            x = b.input("f32", (self.width, tokens, 1, 1))
        self.positions = b.input("i32", (tokens, 1, 1, 1))
        self.mask = b.input("f16", (self.context, tokens, 1, 1))
        while not self.mask.is_contiguous:
            self.mask = b.place("inputs", None, None, "x", "f16", (self.context, tokens, 1, 1))
        for layer in range(last):
            x = self.op("add", x, self.attention(self.normed(x, layer, "norm1"), layer, tokens))
            x = self.op("add", x, self.feed_forward(self.normed(x, layer, "norm2"), layer, tokens))
        if tokens > 1 and b.chance(0.4):
            x = self.op("get_rows", x, b.input("i32", (1, 1, 1, 1), tokens))
        self.product(last, "head", self.normed(x, last, "norm"), 48)

    def attention(self, x: T, layer: int, tokens: int) -> T:
        kv = self.head * self.n_kv_head
        q, k, v = (self.product(layer, name, x, n) for name, n in (("q", self.width), ("k", kv), ("v", kv)))
        if self.biases:
            q = self.op("add", q, self.weight(layer, "qb", "f32", self.width))
        rope = {"n_dims": self.head, "mode": 0}
        q = self.op("rope", self.reshaped(q, self.head, self.n_head, tokens), self.positions, **rope)
        k = self.op("rope", self.reshaped(k, self.head, self.n_kv_head, tokens), self.positions, **rope)
        ck, cv = self.cache(layer, "ck"), self.cache(layer, "cv")
        self.store(ck, self.reshaped(k, kv, tokens))
        self.store(cv, v)
        keys, values = self.permuted(self.heads(ck)), self.heads(cv)
        if self.flash:
            out = self.op("flash_attn_ext", self.permuted(q), keys, self.permuted(values), self.mask, scale=0.125)
            out = self.reshaped(out, self.width, tokens)
        else:
            out = self.softmax_attention(self.permuted(q), keys, values, tokens)
        return self.product(layer, "o", out, self.width)

    def store(self, cache: T, rows: T) -> None:
        """Writes the batch's rows into the cache."""
        tokens = rows.ne[1]
        if self.set_rows or tokens > self.context:
            self.op("set_rows", cache, rows, self.b.input("i64", (tokens, 1, 1, 1), self.context))
            return
        offset = cache.nb[1] * self.b.rng.randrange(self.context - tokens + 1)
        self.op("cpy", rows, self.op("view_2d", cache, ne0=cache.ne[0], ne1=tokens, nb1=cache.nb[1], offset=offset))

    def heads(self, cache: T) -> T:
        """The cache as (head, kv heads, positions)."""
        row, ne = cache.nb[1] // self.n_kv_head, {"ne0": self.head, "ne1": self.n_kv_head, "ne2": self.context}
        return self.op("view_3d", cache, **ne, nb1=row, nb2=cache.nb[1], offset=0)

    def softmax_attention(self, q: T, keys: T, values: T, tokens: int) -> T:
        kq = self.op("soft_max_ext", self.op("mul_mat", keys, q), self.mask, scale=0.125)
        turned = self.permuted(values, 1, 2, 0, 3)
        cast = self.b.chance(0.5) or self.cache_type not in ("f32", "f16")
        turned = self.op("cast", turned, type="f32") if cast else self.op("cont", turned)
        merged = self.permuted(self.op("mul_mat", turned, kq))
        return self.op("cont_2d", merged, ne0=self.width, ne1=tokens)

    def feed_forward(self, x: T, layer: int, tokens: int) -> T:
        if self.moe:
            return self.experts(x, layer, tokens)
        h = self.product(layer, "gate", x, 2 * self.width)
        if self.b.chance(0.7):
            h = self.op("swiglu_split", h, self.product(layer, "up", x, 2 * self.width))
        else:
            h = self.op("silu", h)
        return self.product(layer, "down", h, self.width)

    def experts(self, x: T, layer: int, tokens: int) -> T:
        n, used, hidden = 4, 2, 2 * self.width
        probs = self.op("soft_max", self.op("mul_mat", self.weight(layer, "router", "f32", self.width, n), x))
        order = self.op("argsort", probs, order=1)
        ids = self.op("view_2d", order, ne0=used, ne1=tokens, nb1=order.nb[1], offset=0)
        up = self.weight(layer, "ups", self.type, self.width, hidden, n)
        down = self.weight(layer, "downs", self.type, hidden, self.width, n)
        h = self.op("silu", self.op("mul_mat_id", up, self.reshaped(x, self.width, 1, tokens), ids))
        h = self.op("mul_mat_id", down, h, ids)
        h = self.op("mul", h, self.op("get_rows", self.reshaped(probs, 1, n, tokens), ids))
        rows = {"ne0": self.width, "ne1": tokens, "nb1": h.nb[2]}
        parts = [self.op("view_2d", h, **rows, offset=i * h.nb[1]) for i in range(used)]
        return self.op("add", *parts)
