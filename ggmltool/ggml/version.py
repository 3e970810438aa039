"""The constants of 0.20.2, the ggml that the shared engine follows: sizes of structs, limits, primes of the hash set.

What other releases have instead stands in their folders (`ggmltool.ggml.releases`).
"""

from __future__ import annotations

MEM_ALIGN = 16
OBJECT_SIZE = 32
TENSOR_SIZE = 336
CGRAPH_SIZE = 96
POINTER_SIZE = 8
SIZE_MAX = 2**64 - 1
INT64_MAX = 2**63 - 1

TENSOR_ALIGNMENT = 32
"""Alignment of tensors in CPU buffers."""

HASH_SHIFT = 4
"""By how many bits an address is shifted before ggml_hash takes it modulo the number of slots: alignment's zeros."""

DEFAULT_GRAPH_SIZE = 2048
SCHED_MAX_BACKENDS = 16
SCHED_MAX_COPIES = 4
SCHED_MAX_SPLIT_INPUTS = 30
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
