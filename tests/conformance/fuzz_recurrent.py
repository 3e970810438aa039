"""Random nodes of the recurrent ops and of DeepSeek's, as `fuzz_ops` makes those of the others."""

from __future__ import annotations

from tests.conformance.fuzz_ops import Maker, Ne, Node, Op, T, bits, call

MOST = 1 << 12
"""Elements of what such a node works on: states grow with the square of a row."""


def plain(t: T) -> bool:
    return t.type == "f32" and t.is_contiguous and 0 < t.elements <= MOST and t.ne[0] <= 64


def inputs(m: Maker, *shapes: Ne) -> list[T] | None:
    """An input for each shape, if all are contiguous."""
    found = [m.input("f32", ne) for ne in shapes]
    return found if all(t.is_contiguous for t in found) else None


def made(op: str, src: list[T], ne: Ne, words: list[int] | None = None, *params: str) -> Node:
    return Node(op, [*src], "f32", ne, None, words or [], short=call(op, *src, *params))


def ssm_conv(m: Maker) -> Node | None:
    a = m.pick(lambda t: plain(t) and t.ne[3] == 1)
    if a is None:
        return None
    width = m.rng.randrange(1, min(a.ne[0], 5) + 1)
    c = m.weight("f32", (width, a.ne[1], 1, 1))
    return made("ssm_conv", [a, c], (a.ne[1], a.ne[0] - width + 1, a.ne[2], 1)) if c.is_contiguous else None


def ssm_scan(m: Maker) -> Node | None:
    x = m.pick(plain)
    if x is None:
        return None
    dim, heads, tokens, seqs = x.ne
    found = inputs(m, (heads, tokens, seqs, 1), *[(8, 1, tokens, seqs)] * 2)
    s, a = m.cache("f32", (8, dim, heads, seqs)), m.weight("f32", (1, heads, 1, 1))
    ids = m.input("i32", (seqs, 1, 1, 1), seqs)
    if found is None or not (s.is_contiguous and a.is_contiguous and ids.is_contiguous):
        return None
    kept = m.rng.randrange(1, tokens + 1)
    n = x.elements + kept * 8 * dim * heads * seqs
    dt, b, c = found
    return made("ssm_scan", [s, x, dt, a, b, c, ids], (n, 1, 1, 1), [kept], f"K={kept}")


def linear_attention(m: Maker) -> Node | None:
    op, n = m.rng.choice((("rwkv_wkv6", 2), ("gated_linear_attn", 3), ("rwkv_wkv7", 5)))
    # Of other sizes the library's vector code makes something else.
    fits = 64 if m.values and op == "rwkv_wkv7" else 1
    k = m.pick(lambda t: plain(t) and t.ne[3] == 1 and t.ne[0] % fits == 0)
    if k is None:
        return None
    size, heads, tokens, _ = k.ne
    seqs = m.rng.choice([s for s in (1, 2, 4) if tokens % s == 0])
    found = inputs(m, *[k.ne] * (n + (op == "rwkv_wkv6")))
    state = m.cache("f32", (size * size * heads, seqs, 1, 1))
    if found is None or not state.is_contiguous:
        return None
    if op == "rwkv_wkv6":
        first = m.weight("f32", (size, heads, 1, 1))
        if not first.is_contiguous:
            return None
        found.insert(2, first)
    src = [k, *found, state] if op != "rwkv_wkv7" else [*found[:2], k, *found[2:], state]
    words, params = ([bits(0.5)], ("scale=0.5",)) if op == "gated_linear_attn" else ([], ())
    return made(op, src, (size * heads, tokens + size * seqs, 1, 1), words, *params)


def gated_delta_net(m: Maker) -> Node | None:
    v = m.pick(plain)
    if v is None:
        return None
    size, heads, tokens, seqs = v.ne
    vectors = (size, m.rng.choice((1, heads)), tokens, seqs)
    gate = (m.rng.choice((1, size)), heads, tokens, seqs)
    found = inputs(m, vectors, vectors, gate, (1, heads, tokens, seqs))
    state = m.cache("f32", (size, size, heads, seqs))
    if found is None or not state.is_contiguous:
        return None
    q, k, g, beta = found
    kept = m.rng.randrange(1, tokens + 1)
    ne = (size * heads, tokens * seqs + kept * size * seqs, 1, 1)
    return made("gated_delta_net", [q, k, v, g, beta, state], ne, [kept], f"K={kept}")


def solve_tri(m: Maker) -> Node | None:
    b = m.pick(plain)
    if b is None or m.values:
        return None
    a = m.weight("f32", (b.ne[1], *b.ne[1:]))
    return made("solve_tri", [a, b], b.ne) if a.is_contiguous else None


def lightning_indexer(m: Maker) -> Node | None:
    q = m.pick(plain)
    if q is None:
        return None
    d, heads, tokens, streams = q.ne
    types = ["f32", "f16", *(["q8_0", "q4_0"] if d % 32 == 0 else [])]
    k = m.cache(m.rng.choice(types), (d, 1, 32, streams))
    found = inputs(m, (heads, tokens, 1, streams))
    mask = m.input("f16", (32, tokens, 1, 1))
    if found is None or not (k.is_contiguous and mask.is_contiguous):
        return None
    return made("lightning_indexer", [q, k, *found, mask], (32, tokens, 1, streams))


def hyper_connections(m: Maker) -> Node | None:
    a = m.pick(lambda t: t.type == "f32" and 0 < t.elements <= MOST and t.ne[3] == 1 and t.ne[1] <= 16)
    if a is None:
        return None
    n_embd, hc, tokens, _ = a.ne
    match m.rng.randrange(3):
        case 0:
            return made("dsv4_hc_pre", [a, m.input("f32", (hc, tokens, 1, 1))], (n_embd, tokens, 1, 1))
        case 1:
            x, post = m.input("f32", (n_embd, tokens, 1, 1)), m.input("f32", (hc, tokens, 1, 1))
            return made("dsv4_hc_post", [x, a, post, m.input("f32", (hc, hc, tokens, 1))], (n_embd, hc, tokens, 1))
    mixes, scale, base = (
        m.input("f32", (24, tokens, 1, 1)),
        m.weight("f32", (3, 1, 1, 1)),
        m.weight("f32", (24, 1, 1, 1)),
    )
    words = [bits(1e-6), 4]
    return made("dsv4_hc_comb", [mixes, scale, base], (4, 4, tokens, 1), words, "eps=1e-6", "n_iter=4")


RECURRENT: tuple[tuple[Op, int], ...] = (
    (ssm_conv, 2), (ssm_scan, 2), (linear_attention, 3), (gated_delta_net, 2), (solve_tri, 1), (lightning_indexer, 2),
    (hyper_connections, 3),
)  # fmt: skip
"""Every function with its weight, beside those of OPS."""
