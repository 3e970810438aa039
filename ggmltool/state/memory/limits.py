"""How much is read of a program at most: what it holds may be damaged, or made to hurt."""

from __future__ import annotations

BYTES = 256 << 20
"""All memory that is read for one snapshot."""
NODES = 1 << 18
"""Nodes of a graph, leafs of a graph, nodes that an allocator has planned."""
SLOTS = 8388617
"""Slots of a hash set: one of ggml's primes."""
SPLITS = 1 << 16
INPUTS = 1 << 16
"""Inputs of a split, and of a graph."""
TENSORS = 1 << 19
DEPTH = 1 << 12
"""How far the sources of a tensor are followed, out of the graph."""
OBJECTS = 1 << 19
"""Objects of all arenas together."""
BUFFERS = 1 << 12
BUFFER_TYPES = 1 << 8
"""Of one graph allocator."""
TEXT = 256
"""Bytes of a name."""
TYPES = 256
"""A tensor's type and op are less."""
