"""ggml_hash_set: a set of pointers with real slots (address / 16 modulo a prime, then the next free one)."""

from __future__ import annotations

from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.version import HASH_SHIFT, hash_size

FULL = -1
"""GGML_HASHSET_FULL: the key is not there and there is no room for it."""


def hash_of(address: int, shift: int = HASH_SHIFT) -> int:
    """ggml_hash: the address without its last bits (four, which alignment makes zero)."""
    return address >> shift


class HashSet:
    """A ggml_hash_set for at least `min_size` addresses. `keys` has the address in every slot, None where free; `shift`
    is the release's `hash_shift`.

    Scheduler and allocator only count what would be in their sets; this one is made when somebody wants to see the
    slots.
    """

    __slots__ = ("keys", "shift", "size")

    def __init__(self, min_size: int, shift: int = HASH_SHIFT) -> None:
        self.shift = shift
        self.size = hash_size(min_size)
        self.keys: list[int | None] = [None] * self.size

    def __len__(self) -> int:
        return sum(key is not None for key in self.keys)

    def __contains__(self, address: int) -> bool:
        """ggml_hash_contains."""
        slot = self.find(address)
        return slot != FULL and self.keys[slot] == address

    def find(self, address: int) -> int:
        """ggml_hash_find: the slot that has the address, or that it would get; FULL where there is neither."""
        start = slot = hash_of(address, self.shift) % self.size
        while self.keys[slot] is not None and self.keys[slot] != address:
            slot = (slot + 1) % self.size
            if slot == start:
                return FULL
        return slot

    def find_or_insert(self, address: int) -> int:
        """ggml_hash_find_or_insert: the address's slot, taken if it was free. Raises GgmlAbort when all are taken."""
        slot = self.find(address)
        if slot == FULL:
            raise GgmlAbort(
                "ggml_hash_find_or_insert",
                "fatal error",
                explanation=f"all {self.size} slots of the hash set are taken",
            )
        self.keys[slot] = address
        return slot

    def reset(self) -> None:
        """ggml_hash_set_reset: forget everything, keep the size."""
        self.keys = [None] * self.size

    def probes(self, address: int) -> int:
        """How many slots a look-up of the address visits: 1 where nothing collides."""
        slot = self.find(address)
        return self.size if slot == FULL else (slot - hash_of(address, self.shift)) % self.size + 1
