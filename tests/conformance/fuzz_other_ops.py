"""Random nodes of the ops that `fuzz_ops` leaves out, and of all types, with parameters at their ends."""

from __future__ import annotations

from tests.conformance.fuzz_ops import GLU, TYPES, Maker, Ne, Node, Op, T, bits, call, small, words64

FLOATS = ("f32", "f16", "bf16")
STORED = tuple(t for t in TYPES if t not in ("i8", "i16", "i32", "i64", "f64"))
READ = tuple(t for t in STORED if t not in ("q8_1", "q8_K"))
WRITTEN = (*FLOATS, "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q6_K", "iq4_nl", "mxfp4", "nvfp4", "q1_0", "q2_0")
ROPE_MODES = (0, 2, 8, 24, 40)
PAIRED, SECTIONED = 2, 8
HEADS = (40, 64, 80, 96, 128, 192, 256, 576)


def flat(t: T) -> bool:
    return small(t) and t.is_contiguous and t.elements <= 1 << 13


def of(m: Maker, accept: str, ne: Ne) -> T | None:
    """A contiguous tensor of a type and shape: a weight, an input or what a cache has."""
    make = m.rng.choice((m.weight, m.weight, m.input, m.cache))
    t = make(accept, ne)
    return t if t.is_contiguous else None


def node(op: str, src: list[T | None], ne: Ne, words: list[int] | None = None, type: str = "f32") -> Node:
    return Node(op, src, type, ne, None, words or [])


def window(n: int, k: int, stride: int, pad: int, dilation: int = 1) -> int:
    """How many windows fit into `n` elements."""
    return (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1


def window_words(m: Maker) -> tuple[int, ...]:
    """Strides, pads and dilations of two dimensions."""
    r = m.rng
    return r.randint(1, 3), r.randint(1, 3), r.randint(0, 2), r.randint(0, 2), r.randint(1, 2), r.randint(1, 2)


def conv(m: Maker) -> Node | None:
    """The convolutions of images and what they are made of."""
    b = m.pick(flat)
    if b is None:
        return None
    s0, s1, p0, p1, d0, d1 = words = window_words(m)
    k0, k1, oc = m.rng.randint(1, 3), m.rng.randint(1, 3), m.rng.randint(1, 4)
    ow, oh = window(b.ne[0], k0, s0, p0, d0), window(b.ne[1], k1, s1, p1, d1)
    if ow < 1 or oh < 1:
        return None
    type = m.rng.choice(("f32", "f16"))
    kind = m.rng.randrange(4)
    a = of(m, type, (k0, k1, 1, b.ne[2]) if kind == 0 else (k0, k1, b.ne[2], oc))
    if a is None:
        return None
    if kind == 0:
        return node("conv_2d_dw", [a, b], (ow, oh, b.ne[2], b.ne[3]), [*words])
    if kind == 1:
        return node("conv_2d", [a, b], (ow, oh, oc, b.ne[3]), [*words])
    ne = (b.ne[2] * k0 * k1, ow, oh, b.ne[3])
    if kind == 2:
        return node("im2col", [a, b], ne, [*words, 1], m.rng.choice(("f32", "f16")))
    t = of(m, "f32", ne)
    return node("im2col_back", [a, t], b.ne, [*words, 1]) if t else None


def conv_1d(m: Maker) -> Node | None:
    b = m.pick(lambda t: flat(t) and t.ne[2:] == (1, 1))
    if b is None:
        return None
    s, p, d = m.rng.randint(1, 3), m.rng.randint(0, 2), m.rng.randint(1, 2)
    k, oc = m.rng.randint(1, 4), m.rng.randint(1, 4)
    kind = m.rng.randrange(3)
    if kind == 0:
        ow = window(b.ne[0], k, s, p, d)
        a = of(m, m.rng.choice(("f32", "f16")), (k, b.ne[1], oc, 1))
        if a is None or ow < 1:
            return None
        ne = (b.ne[1] * k, ow, 1, 1)
        return node("im2col", [a, b], ne, [s, 0, p, 0, d, 0, 0], m.rng.choice(("f32", "f16")))
    if kind == 1:
        a = of(m, m.rng.choice(("f32", "f16")), (k, oc, b.ne[1], 1))
        ne = ((b.ne[0] - 1) * s + k, oc, 1, 1)
        return node("conv_transpose_1d", [a, b], ne, [s, 0, 1]) if a else None
    n = b.ne[0] // oc
    steps = (b.ne[1] - 1) * s + n
    return node("col2im_1d", [b], (steps, oc, 1, 1), [s, oc, 0]) if b.ne[0] % oc == 0 and n else None


def conv_3d(m: Maker) -> Node | None:
    b = m.pick(lambda t: flat(t) and t.elements <= 1 << 11)
    if b is None:
        return None
    c = m.rng.choice([c for c in (1, 2, 3) if b.ne[3] % c == 0])
    n, oc = b.ne[3] // c, m.rng.randint(1, 3)
    k = (m.rng.randint(1, 2), m.rng.randint(1, 2), 1)
    s = tuple(m.rng.randint(1, 2) for _ in range(3))
    p = tuple(m.rng.randint(0, 1) for _ in range(3))
    out = tuple(window(b.ne[i], k[i], s[i], p[i]) for i in range(3))
    a = of(m, m.rng.choice(("f32", "f16")), (*k, c * oc))
    if a is None or min(out) < 1:
        return None
    if m.rng.random() < 0.5:
        return node("conv_3d", [a, b], (*out, oc * n), [*s, *p, 1, 1, 1, c, n, oc])
    ne = (k[0] * k[1] * k[2] * c, out[0], out[1], n * out[2])
    return node("im2col_3d", [a, b], ne, [*s, *p, 1, 1, 1, c], m.rng.choice(("f32", "f16")))


def conv_transpose_2d(m: Maker) -> Node | None:
    b = m.pick(lambda t: flat(t) and t.elements <= 1 << 11)
    if b is None:
        return None
    s, oc, k0, k1 = m.rng.randint(1, 3), m.rng.randint(1, 3), m.rng.randint(1, 3), m.rng.randint(1, 3)
    a = of(m, m.rng.choice(("f32", "f16")), (k0, k1, oc, b.ne[2]))
    ne = ((b.ne[0] - 1) * s + k0, (b.ne[1] - 1) * s + k1, oc, b.ne[3])
    return node("conv_transpose_2d", [a, b], ne, [s]) if a else None


def pool(m: Maker) -> Node | None:
    a = m.pick(flat)
    if a is None:
        return None
    op, k, s, p = m.rng.randrange(2), m.rng.randint(1, 3), m.rng.randint(1, 3), m.rng.randint(0, 1)
    n0, n1 = window(a.ne[0], k, s, p), window(a.ne[1], k, s, p)
    if n0 < 1 or n1 < 1:
        return None
    if m.rng.random() < 0.4:
        return node("pool_1d", [a], (n0, *a.ne[1:]), [op, k, s, p])
    back = of(m, "f32", (n0, n1, *a.ne[2:]))
    words = [op, k, k, s, s, p, p]
    if back is not None and m.rng.random() < 0.4:
        return node("pool_2d_back", [back, a], a.ne, words)
    return node("pool_2d", [a], (n0, n1, *a.ne[2:]), words)


def resized(m: Maker) -> Node | None:
    a = m.pick(flat)
    if a is None:
        return None
    match m.rng.randrange(5):
        case 0:
            f, mode = m.rng.randint(1, 3), m.rng.randrange(3)
            return node("upscale", [a], (a.ne[0] * f, a.ne[1] * f, *a.ne[2:]), [mode])
        case 1:
            p0, p1 = m.rng.randrange(a.ne[0]), m.rng.randrange(a.ne[0])
            return node("pad_reflect_1d", [a], (a.ne[0] + p0 + p1, *a.ne[1:]), [p0, p1])
        case 2:
            return node("roll", [a], a.ne, [m.rng.randrange(1 - n, n) for n in a.ne])
        case 3:
            dim = m.rng.choice((1, 2, 15, 64))
            times = of(m, "f32", (m.rng.choice((1, 5)), 1, 1, 1))
            return node("timestep_embedding", [times], (dim, times.ne[0], 1, 1), [dim, 10000]) if times else None
    square = m.pick(lambda t: flat(t) and t.ne[0] == t.ne[1]) or m.weight("f32", (8, 8, 1, 1))
    return node("tri", [square], square.ne, [m.rng.randrange(4)]) if square.is_contiguous else None


def diagonal(m: Maker) -> Node | None:
    a = m.pick(lambda t: flat(t) and t.ne[1] == 1 and t.elements <= 256)
    return node("diag", [a], (a.ne[0], a.ne[0], *a.ne[2:])) if a else None


def windows(m: Maker) -> Node | None:
    a = m.pick(lambda t: flat(t) and t.ne[3] == 1)
    if a is None:
        return None
    w = m.rng.choice((1, 3, 7))
    x, y = -(-a.ne[1] // w), -(-a.ne[2] // w)
    kind = m.rng.randrange(3)
    if kind == 0:
        return node("win_part", [a], (a.ne[0], w, w, x * y), [x, y, w])
    if kind == 1:
        n0, n1 = m.rng.randint(1, w), m.rng.randint(1, w)
        parts = of(m, "f32", (a.ne[0], w, w, 1))
        return node("win_unpart", [parts], (a.ne[0], n0, n1, 1), [w]) if parts else None
    n = m.rng.randint(1, 4)
    if m.rng.random() < 0.5:
        table = of(m, m.rng.choice(("f32", "f16")), (a.ne[0], 2 * n - 1, 1, 1))
        return node("get_rel_pos", [table], (a.ne[0], n, n, 1), None, "f16") if table else None
    batch = m.rng.randint(1, 3)
    of_heads = of(m, "f32", (n * n, n * n, batch, 1))
    pw, ph = (of(m, "f32", (n, n, n, batch)) for _ in range(2))
    if not (of_heads and pw and ph):
        return None
    if m.rng.random() < 0.5:
        words, root = [1], of_heads.root or of_heads.id
        src: list[T | None] = [of_heads, pw, ph]
        return Node("add_rel_pos", src, "f32", of_heads.ne, of_heads.nb, words, root, of_heads.offset)
    return node("add_rel_pos", [of_heads, pw, ph], of_heads.ne, [0])


def counted(m: Maker) -> Node | None:
    """Ops whose result is a number, and the way back of others."""
    a = m.pick(flat)
    if a is None:
        return None
    same = m.pick(lambda t: t.type == "f32" and t.ne == a.ne and t.is_contiguous) or a
    match m.rng.randrange(5):
        case 0:
            ids = m.input("i32", a.ne)
            return node("count_equal", [ids, m.input("i32", a.ne)], (1, 1, 1, 1), None, "i64")
        case 1:
            return node("cross_entropy_loss", [a, same], (1, 1, 1, 1))
        case 2:
            loss = of(m, "f32", (1, 1, 1, 1))
            return node("cross_entropy_loss_back", [loss, a, same], a.ne) if loss else None
        case 3:
            ne = tuple(m.rng.choice([d for d in (1, 2, n) if n % d == 0]) for n in a.ne)
            return Node("repeat_back", [a], "f32", ne)
    if a.ne[2:] != (1, 1):
        return None
    table = of(m, "f32", (a.ne[0], 20, 1, 1))
    ids = m.input("i32", (a.ne[1], 1, 1, 1), 20)
    # The third source gives the shape alone.
    return node("get_rows_back", [a, ids], (a.ne[0], 20, 1, 1)) if table and ids.is_contiguous else None


def custom(m: Maker) -> Node | None:
    n = m.rng.choice((1, 2, 3))
    src = [m.pick(small) for _ in range(n)]
    a = src[0]
    if a is None or None in src:
        return None
    if m.rng.random() < 0.4:
        ne = (m.rng.choice((1, 8)), m.rng.choice((1, 3)), 1, 1)
        more = [m.pick(small) for _ in range(m.rng.choice((0, 0, 5)))]
        return node("custom", [s for s in (*src, *more) if s is not None], ne, [0, 0, -1], m.rng.choice(("f32", "i32")))
    root = (a.root or a.id) if m.rng.random() < 0.3 else None
    nb, offset = (a.nb, a.offset) if root else (None, 0)
    return Node(f"map_custom{n}", [*src], a.type, a.ne, nb, [0, 0, m.rng.choice((-1, 1, 4))], root, offset)


def functions(m: Maker) -> Node | None:
    """XIELU, and functions of GLU with swapped halves, a slope or a limit."""
    a = m.pick(lambda t: small(t) and t.is_contiguous and t.ne[0] >= 2)
    if a is None:
        return None
    if m.rng.random() < 0.3:
        return node("unary", [a], a.ne, [17, *(bits(x) for x in (0.8, 0.8, 0.5, 1e-6))])
    index = m.rng.randrange(len(GLU))
    if GLU[index] == "swiglu_oai":
        return node("glu", [a, a], a.ne, [index, 0, bits(1.7), bits(7.0)])
    return node("glu", [a], (a.ne[0] // 2, *a.ne[1:]), [index, m.rng.randrange(2)])


def of_halves(m: Maker) -> Node | None:
    """Arithmetic, copies and functions on half floats and integers."""
    a = m.pick(lambda t: t.type in ("f16", "bf16", "i32", "i64") and t.elements > 0)
    if a is None or m.rng.random() < 0.3:
        a = of(m, m.rng.choice(("f16", "bf16", "i8", "i16", "i64", "f64")), (m.rng.choice((8, 32)), 5, 2, 1))
    if a is None:
        return None
    kind = m.rng.randrange(6)
    if kind == 0 and a.type in FLOATS:
        b = of(m, m.rng.choice((a.type, "f32")), (a.ne[0], 1, 1, 1))
        return node(m.rng.choice(("add", "sub", "mul", "div")), [a, b], a.ne, None, a.type) if b else None
    if kind == 1:
        return node(m.rng.choice(("sqr", "sqrt", "log", "sin", "cos")), [a], a.ne, None, a.type)
    if kind == 2:
        dim = m.rng.randrange(4)
        ne = tuple(2 * n if i == dim else n for i, n in enumerate(a.ne))
        return node("concat", [a, a], ne, [dim], a.type)
    if kind == 3:
        return node("repeat", [a], (a.ne[0], 2 * a.ne[1], *a.ne[2:]), None, a.type)
    if kind == 4:
        return node(m.rng.choice(("cont", "dup")), [a], a.ne, None, a.type)
    return node("scale", [a], a.ne, [bits(-0.0), bits(3.0)], a.type) if a.is_contiguous else None


def stored(m: Maker) -> Node | None:
    """Products, rows, copies and casts of every type."""
    type = m.rng.choice(READ)
    block = TYPES[type][0]
    k = max(block, m.rng.choice((32, 256, 512)))
    rows = m.rng.choice((1, 7, 8, 32))
    kind = m.rng.randrange(5)
    if kind == 0:
        x = m.pick(lambda t: small(t) and t.ne[0] == k) or of(m, "f32", (k, m.rng.choice((1, 3, 33)), 1, 1))
        w = of(m, type, (k, rows, 1, 1))
        return node("mul_mat", [w, x], (rows, *x.ne[1:])) if w and x else None
    if kind == 1:
        used, tokens = m.rng.randint(1, 3), m.rng.choice((1, 9))
        w, x = of(m, type, (k, rows, 4, 1)), of(m, "f32", (k, m.rng.choice((1, used)), tokens, 1))
        ids = m.input("i32", (used, tokens, 1, 1), 4)
        return node("mul_mat_id", [w, x, ids], (rows, used, tokens, 1)) if w and x else None
    if kind == 2:
        planes = m.rng.choice((1, 2))
        w, ids = of(m, type, (k, rows, planes, 1)), m.input("i32", (m.rng.choice((1, 5)), planes, 1, 1), rows)
        return node("get_rows", [w, ids], (k, ids.ne[0], planes, 1)) if w else None
    if kind == 3:
        a, b = of(m, m.rng.choice(READ), (512, rows, 1, 1)), of(m, m.rng.choice(STORED), (512, rows, 1, 1))
        if a is None or b is None or a.id == b.id:
            return None
        return Node("cpy", [a, b], b.type, b.ne, b.nb, [], b.root or b.id, b.offset, call("cpy", a, b))
    planes = m.rng.choice((1, 2))
    a, b = m.cache(m.rng.choice(WRITTEN), (512, 16, planes, 1)), of(m, "f32", (512, rows, planes, 1))
    ids = m.input(m.rng.choice(("i32", "i64")), (rows, m.rng.choice((1, planes)), 1, 1), 16)
    if b is None:
        return None
    return Node("set_rows", [b, ids, a], a.type, a.ne, a.nb, [], a.root or a.id, a.offset)


def attention(m: Maker) -> Node | None:
    """Attention with heads of several sizes, groups, streams, sinks, a limit of its values and a precision."""
    d, type = m.rng.choice(HEADS), m.rng.choice(("f16", "f32", "bf16", "q8_0", "q4_0", "q5_1"))
    dv = 512 if d == 576 else 128 if d == 192 else d
    if d % TYPES[type][0] or dv % TYPES[type][0]:
        type = "f16"
    heads, group, streams = m.rng.choice((1, 2)), m.rng.choice((1, 4, 8)), m.rng.choice((1, 1, 2))
    tokens, n_kv = m.rng.choice((1, 2, 9, 33)), m.rng.choice((32, 64, 256, 250))
    q = of(m, "f32", (d, tokens, heads * group, streams))
    k, v = m.cache(type, (d, n_kv, heads, streams)), m.cache(type, (dv, n_kv, heads, streams))
    mask = of(m, "f16", (n_kv, m.rng.choice((tokens, tokens + 7)), 1, m.rng.choice((1, streams))))
    if q is None or mask is None:
        return None
    src: list[T | None] = [q, k, v, mask]
    bias = bits(m.rng.choice((0.0, 0.0, 8.0)))
    if m.rng.random() < 0.3:
        src.append(of(m, "f32", (heads * group, 1, 1, 1)))
        src = src if src[-1] is not None else src[:4]
    elif m.rng.random() < 0.3 and not bias:
        src = [q, k, v]
    words = [bits(0.125), bias, bits(m.rng.choice((0.0, 30.0))), m.rng.choice((0, 10))]
    return node("flash_attn_ext", src, (dv, heads * group, tokens, streams), words)


def masked(m: Maker) -> Node | None:
    """SOFT_MAX whose mask has more rows, and is repeated over heads and streams."""
    a = m.pick(flat)
    if a is None:
        return None
    rows = a.ne[1] + m.rng.choice((0, 0, 5))
    planes = tuple(m.rng.choice([d for d in (1, n) if n % d == 0]) for n in a.ne[2:])
    mask = of(m, m.rng.choice(("f32", "f16")), (a.ne[0], rows, *planes))
    sinks = of(m, "f32", (a.ne[2], 1, 1, 1)) if m.rng.random() < 0.3 else None
    if mask is None:
        return None
    src: list[T | None] = [a, mask, *([sinks] if sinks else [])]
    return node("soft_max", src, a.ne, [bits(1.0), bits(m.rng.choice((0.0, 8.0)))])


def turned(m: Maker) -> Node | None:
    """ROPE in its modes, of part of a row, sectioned, with factors."""
    a = m.pick(lambda t: t.type in ("f32", "f16") and t.ne[0] % 4 == 0 and 0 < t.elements <= 1 << 14)
    if a is None:
        return None
    mode = m.rng.choice(ROPE_MODES)
    sectioned = bool(mode & SECTIONED)
    n = a.ne[0] // 2 if mode == 24 else m.rng.choice((a.ne[0], a.ne[0] // 2))
    pos = m.input("i32", (a.ne[2] * (4 if sectioned else 1), 1, 1, 1))
    words = [0, n, mode, 0, 4096, bits(1e6), bits(0.5), bits(1.0), bits(1.0), bits(32.0), bits(1.0)]
    words += [max(n // 4, 1), n // 4, 0, 0] if sectioned else []
    src: list[T | None] = [a, pos]
    if m.rng.random() < 0.3:
        src.append(of(m, "f32", (n // 2, 1, 1, 1)))
        src = src if src[-1] is not None else src[:2]
    return Node(m.rng.choice(("rope", "rope", "rope_back")), src, a.type, a.ne, None, words) if n >= 2 else None


def steps(m: Maker) -> Node | None:
    """A weight that learns: a step of AdamW or SGD, in its place."""
    a, g = m.parameter((m.rng.choice((8, 32)), m.rng.choice((1, 4)), 1, 1)), None
    if m.rng.random() < 0.4:
        g = m.pick(lambda t: t.type == "f32" and t.ne == a.ne)
    g = g or of(m, "f32", a.ne)
    both = [of(m, "f32", a.ne) for _ in range(2)]
    adamw, sgd = of(m, "f32", (7, 1, 1, 1)), of(m, "f32", (2, 1, 1, 1))
    if g is None or None in both or adamw is None or sgd is None or not a.is_contiguous:
        return None
    if m.rng.random() < 0.5:
        return Node("opt_step_adamw", [a, g, *both, adamw], "f32", a.ne, a.nb, [], a.id)
    return Node("opt_step_sgd", [a, g, sgd], "f32", a.ne, a.nb, [], a.id)


def odd_view(m: Maker) -> Node | None:
    """A view whose strides are no multiple of anything, go back, or are zero; its rows overlap."""
    a = m.pick(lambda t: t.elements >= 8 and TYPES[t.type][0] == 1 and t.elements < 1 << 31)
    if a is None:
        return None
    size, n = TYPES[a.type][1], TYPES[a.type][1] * a.elements if a.is_contiguous else 0
    if n < 16:
        return None
    ne = (m.rng.randint(1, 3), m.rng.randint(0 if m.rng.random() < 0.1 else 1, 3), m.rng.randint(1, 2), 1)
    strides = [m.rng.choice((0, 1, size, 3, 7, size * 2)) for _ in range(3)]
    offset = m.rng.randrange(max(1, n - size * 3 - 2 * sum(strides)))
    last = size * ne[0] + sum(s * max(k - 1, 0) for s, k in zip(strides, ne[1:], strict=True))
    # ggml asks whether it would fit if it were contiguous.
    if offset + max(last, size * ne[0] * ne[1] * ne[2]) > n:
        return None
    short = call("view", a, f"ne={[*ne]}", f"nb={strides}", f"offset={offset}")
    return Node("view", [a], a.type, ne, (size, *strides), words64(offset), a.root or a.id, a.offset + offset, short)


def viewed_blocks(m: Maker) -> Node | None:
    """Views, reshapes and permutations of quantized tensors."""
    a = m.pick(lambda t: t.quantized and t.is_contiguous) or of(m, m.rng.choice(("q4_0", "q8_0")), (64, 4, 2, 1))
    if a is None:
        return None
    block = TYPES[a.type][0]
    root, offset = a.root or a.id, a.offset
    if m.rng.random() < 0.5:
        ne = (a.ne[0], a.ne[1] * a.ne[2] * a.ne[3], 1, 1)
        return Node("reshape", [a], a.type, ne, None, [], root, offset)
    skip = m.rng.randrange(a.ne[0] // block) * TYPES[a.type][1]
    ne = (a.ne[0] - skip // TYPES[a.type][1] * block, m.rng.randint(1, a.ne[1]), 1, 1)
    nb = (a.nb[0], a.nb[1], a.nb[1] * ne[1], a.nb[1] * ne[1])
    return Node("view", [a], a.type, ne, nb, words64(skip), root, offset + skip)


OTHERS: tuple[tuple[Op, int], ...] = (
    (conv, 6), (conv_1d, 4), (conv_3d, 3), (conv_transpose_2d, 2), (pool, 4), (resized, 6), (diagonal, 1), (windows, 5),
    (counted, 6), (custom, 3), (functions, 3), (of_halves, 6), (stored, 12), (attention, 5), (masked, 3), (turned, 5),
    (steps, 3), (odd_view, 6), (viewed_blocks, 3),
)  # fmt: skip
"""Every function with its weight."""
