"""What the ggml release fixes: sizes of structs, limits, primes of the hash set."""

from __future__ import annotations

VERSION = "0.20.2"

MEM_ALIGN = 16
OBJECT_SIZE = 32
TENSOR_SIZE = 336
CGRAPH_SIZE = 96
POINTER_SIZE = 8
SIZE_MAX = 2**64 - 1
INT64_MAX = 2**63 - 1

TENSOR_ALIGNMENT = 32
"""Alignment of tensors in CPU buffers."""

DEFAULT_GRAPH_SIZE = 2048
SCHED_MAX_BACKENDS = 16
SCHED_MAX_SPLIT_INPUTS = 30
SCHED_MAX_COPIES = 4
SCHED_INITIAL_SPLITS = 16
MAX_FREE_BLOCKS = 256
VBUFFER_MAX_CHUNKS = 16

HASH_PRIMES = (
    2, 3, 5, 11, 17, 37, 67, 131, 257, 521, 1031, 2053, 4099, 8209, 16411, 32771, 65537, 131101, 262147, 524309,
    1048583, 2097169, 4194319, 8388617, 16777259, 33554467, 67108879, 134217757, 268435459, 536870923, 1073741827,
    2147483659,
)  # fmt: skip


def hash_size(n: int) -> int:
    """ggml_hash_size: the smallest listed prime that is not below `n`."""
    for prime in HASH_PRIMES:
        if prime >= n:
            return prime
    return n | 1


def pad(x: int, n: int) -> int:
    """GGML_PAD: `x` rounded up to a multiple of `n`, a power of two."""
    return (x + n - 1) & ~(n - 1)


def graph_nbytes(size: int, grads: bool = False) -> int:
    """ggml_graph_nbytes: bytes of a cgraph of `size` nodes with its arrays and hash set."""
    hashes = hash_size(2 * size)
    n = CGRAPH_SIZE + 2 * size * POINTER_SIZE + hashes * 4
    n = pad(n, POINTER_SIZE) + hashes * POINTER_SIZE * (3 if grads else 1)
    return n + (hashes + 31) // 32 * 4


def graph_layout(size: int) -> tuple[tuple[str, int, int], ...]:
    """What ggml_new_graph_custom lays out in a graph's object: (field, offset in the object, bytes), in order."""
    hashes = hash_size(2 * size)
    fields = (
        ("struct ggml_cgraph", CGRAPH_SIZE, POINTER_SIZE),
        ("nodes", size * POINTER_SIZE, POINTER_SIZE),
        ("leafs", size * POINTER_SIZE, POINTER_SIZE),
        ("use_counts", hashes * 4, 4),
        ("visited_hash_set.keys", hashes * POINTER_SIZE, POINTER_SIZE),
        ("visited_hash_set.used", (hashes + 31) // 32 * 4, 4),
    )
    out = []
    end = 0
    for name, nbytes, alignment in fields:
        start = pad(end, alignment)
        end = start + nbytes
        out.append((name, start, nbytes))
    return tuple(out)


def graph_overhead(size: int = DEFAULT_GRAPH_SIZE, grads: bool = False) -> int:
    """ggml_graph_overhead_custom: what a graph takes in a context's arena, header included."""
    return OBJECT_SIZE + pad(graph_nbytes(size, grads), MEM_ALIGN)


def tensor_overhead() -> int:
    """ggml_tensor_overhead: what a tensor takes in a context's arena without its data."""
    return OBJECT_SIZE + TENSOR_SIZE
