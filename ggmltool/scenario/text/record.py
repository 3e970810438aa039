"""The outside of a record (`.ggtrace`): what a file of one begins with, and the scenario in it.

A record is eight bytes of magic, one byte of version, and a zlib stream of one msgpack map; `ggmltool help record` has
its schema. What is recorded stays packed here: who wants the scenario reads nothing else.
"""

from __future__ import annotations

import zlib

import msgspec

from ggmltool.scenario.errors import ScenarioError

MAGIC = b"\x93GGTRACE"
VERSION = 1

MAX_UNPACKED = 64 << 20
"""Bytes of a record, unpacked: a graph of 2 000 nodes has about five million."""

MAX_RATIO = 60
"""How much smaller than that a record may be, beyond the first megabytes (those of graphs reach 20)."""

_FREE = 4 << 20


class RecordFile(msgspec.Struct, frozen=True):
    """The map of a record: the release that decided, the version of ggmltool that wrote it, the scenario as JSON text
    in its long form, whether its steps were computed, and what was recorded."""

    release: str
    writer: str
    scenario: str
    compute: bool
    run: msgspec.Raw


def is_record(head: bytes) -> bool:
    """Whether a file that begins so is a record."""
    return head.startswith(MAGIC)


def packed(record: RecordFile) -> bytes:
    """The bytes of the file."""
    return MAGIC + bytes([VERSION]) + zlib.compress(msgspec.msgpack.encode(record), 6)


def unpacked(raw: bytes, shown: str) -> RecordFile:
    """The map of a record whose file is called `shown`. Raises ScenarioError for one that cannot be read."""
    version = raw[len(MAGIC)] if len(raw) > len(MAGIC) else 0
    if version > VERSION:
        raise ScenarioError(
            f"this is a record of version {version}",
            shown,
            expected=f"this ggmltool reads version {VERSION}: update it",
        )
    if version < 1:
        raise ScenarioError("this record is cut off", shown)
    body = _inflated(raw[len(MAGIC) + 1 :], shown)
    try:
        return msgspec.msgpack.decode(body, type=RecordFile)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise damaged(shown, error) from None


def damaged(shown: str, error: Exception) -> ScenarioError:
    """What to raise for a record whose content is not what it has to be."""
    return ScenarioError(f"this record is damaged ({error})", shown, expected="`ggmltool record` writes it anew")


def _inflated(raw: bytes, shown: str) -> bytes:
    limit = min(MAX_UNPACKED, _FREE + MAX_RATIO * len(raw))
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(raw, limit + 1)
    except zlib.error as error:
        raise damaged(shown, error) from None
    if len(body) > limit:
        raise ScenarioError(f"this record of {len(raw)} bytes unpacks to more than {limit}", shown)
    if not unpacker.eof:
        raise ScenarioError("this record is cut off", shown)
    if unpacker.unused_data:
        raise ScenarioError("there is something behind the end of this record", shown)
    return body
