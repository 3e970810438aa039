"""How a library's structs are laid out, found by asking it: which field of a struct does a function of its API use?

A table of functions is filled with callbacks that say where they stand. Fields of the scheduler are found by giving two
schedulers different values.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ggmltool.ggml.version import hash_size
from ggmltool.oracle import structs
from ggmltool.oracle.fork import fork_child, quiet_child, read_exact
from ggmltool.oracle.lib import Lib

WORDS = 32
"""Words of a struct that callbacks are put into."""
WORD = ctypes.sizeof(ctypes.c_void_p)
SCHED_BYTES = 0x500
"""Bytes of a scheduler that are looked at: more than any known one has."""

_P, _Z = ctypes.c_void_p, ctypes.c_size_t
Arguments = Callable[[int, int, int], tuple[Any, ...]]
"""The arguments of a function, given the struct in question, a tensor and a graph."""


class Field(NamedTuple):
    """A field of a struct: where ggmltool has it, and where the library has it (None: it was not found)."""

    struct: str
    name: str
    expected: int | None
    found: int | None

    @property
    def differs(self) -> bool:
        """Whether it stands elsewhere."""
        return self.found is not None and self.expected != self.found


def _only(x: int, t: int, g: int) -> tuple[Any, ...]:
    return (_P(x),)


def _and_tensor(x: int, t: int, g: int) -> tuple[Any, ...]:
    return _P(x), _P(t)


def _and_graph(x: int, t: int, g: int) -> tuple[Any, ...]:
    return _P(x), _P(g)


def _and_word(x: int, t: int, g: int) -> tuple[Any, ...]:
    return _P(x), _Z(64)


def _transfer(x: int, t: int, g: int) -> tuple[Any, ...]:
    return _P(t), ctypes.create_string_buffer(64), _Z(0), _Z(4)


def _async_transfer(x: int, t: int, g: int) -> tuple[Any, ...]:
    return _P(x), *_transfer(x, t, g)


def _event(x: int, t: int, g: int) -> tuple[Any, ...]:
    event = structs.Event(x, 0)
    _kept.append(event)
    return (_P(ctypes.addressof(event)),)


_kept: list[Any] = []

TABLES: dict[str, dict[str, tuple[str, Arguments]]] = {
    "ggml_backend_buffer_type": {
        "get_name": ("ggml_backend_buft_name", _only),
        "alloc_buffer": ("ggml_backend_buft_alloc_buffer", _and_word),
        "alloc_buffer_n": ("ggml_backend_buft_alloc_buffer_n", lambda x, t, g: (_P(x), _P(0), ctypes.c_int(0))),
        "get_alignment": ("ggml_backend_buft_get_alignment", _only),
        "get_max_size": ("ggml_backend_buft_get_max_size", _only),
        "get_alloc_size": ("ggml_backend_buft_get_alloc_size", _and_tensor),
        "get_alloc_size_n": ("ggml_backend_buft_get_alloc_size_n", lambda x, t, g: (_P(x), _P(0), ctypes.c_int(0))),
        "is_host": ("ggml_backend_buft_is_host", _only),
        "device": ("ggml_backend_buft_get_device", _only),
    },
    "ggml_backend_buffer": {
        "free_buffer": ("ggml_backend_buffer_free", _only),
        "get_base": ("ggml_backend_buffer_get_base", _only),
        "init_tensor": ("ggml_backend_buffer_init_tensor", _and_tensor),
        "memset_tensor": ("ggml_backend_tensor_memset", lambda x, t, g: (_P(t), ctypes.c_uint8(1), _Z(0), _Z(4))),
        "set_tensor": ("ggml_backend_tensor_set", _transfer),
        "get_tensor": ("ggml_backend_tensor_get", _transfer),
        "clear": ("ggml_backend_buffer_clear", lambda x, t, g: (_P(x), ctypes.c_uint8(0))),
        "reset": ("ggml_backend_buffer_reset", _only),
        "buft": ("ggml_backend_buffer_get_type", _only),
        "size": ("ggml_backend_buffer_get_size", _only),
    },
    "ggml_backend": {
        "get_name": ("ggml_backend_name", _only),
        "free": ("ggml_backend_free", _only),
        "set_tensor_async": ("ggml_backend_tensor_set_async", _async_transfer),
        "get_tensor_async": ("ggml_backend_tensor_get_async", _async_transfer),
        "synchronize": ("ggml_backend_synchronize", _only),
        "graph_plan_create": ("ggml_backend_graph_plan_create", _and_graph),
        "graph_plan_free": ("ggml_backend_graph_plan_free", _and_graph),
        "graph_plan_compute": ("ggml_backend_graph_plan_compute", _and_graph),
        "graph_compute": ("ggml_backend_graph_compute_async", _and_graph),
        "event_record": ("ggml_backend_event_record", lambda x, t, g: (*_event(x, t, g), _P(x))),
        "event_wait": ("ggml_backend_event_wait", lambda x, t, g: (_P(x), *_event(x, t, g))),
        "device": ("ggml_backend_get_device", _only),
    },
    "ggml_backend_device": {
        "get_name": ("ggml_backend_dev_name", _only),
        "get_description": ("ggml_backend_dev_description", _only),
        "get_memory": ("ggml_backend_dev_memory", lambda x, t, g: (_P(x), _P(t), _P(t))),
        "get_type": ("ggml_backend_dev_type", _only),
        "get_props": ("ggml_backend_dev_get_props", _and_tensor),
        "init_backend": ("ggml_backend_dev_init", lambda x, t, g: (_P(x), _P(0))),
        "get_buffer_type": ("ggml_backend_dev_buffer_type", _only),
        "get_host_buffer_type": ("ggml_backend_dev_host_buffer_type", _only),
        "buffer_from_host_ptr": (
            "ggml_backend_dev_buffer_from_host_ptr", lambda x, t, g: (_P(x), _P(t), _Z(64), _Z(64))
        ),
        "supports_op": ("ggml_backend_dev_supports_op", _and_tensor),
        "supports_buft": ("ggml_backend_dev_supports_buft", _and_tensor),
        "offload_op": ("ggml_backend_dev_offload_op", _and_tensor),
        "event_new": ("ggml_backend_event_new", _only),
        "event_free": ("ggml_backend_event_free", _event),
        "event_synchronize": ("ggml_backend_event_synchronize", _event),
        "reg": ("ggml_backend_dev_backend_reg", _only),
    },
}  # fmt: skip
"""By struct and field: the function of the API that uses the field, and how it is called."""


class Probed(Lib):
    """A library whose structs may be any."""

    def _check_buffer_type(self) -> None:
        return None


def table_fields(lib: Lib) -> Iterator[Field]:
    """The fields of the structs that consist of functions, where ggmltool's layout of this library has them."""
    known: dict[str, Any] = {
        "ggml_backend_buffer_type": lib.structs["ggml_backend_buffer_type"],
        "ggml_backend_buffer": structs.Buffer,
        "ggml_backend": structs.Backend,
        "ggml_backend_device": structs.Device,
    }
    for struct, fields in TABLES.items():
        for name, (function, arguments) in fields.items():
            found = _slot(lib, struct, function, arguments) if lib.exports(function) else None
            yield Field(struct, name, _offset(known[struct], name), found)


def sched_fields(lib: Lib) -> Iterator[Field]:
    """The fields of a scheduler that can be told apart by their values."""
    small, large = (
        _scheduler(lib, graph_size=n, debug=d, op_offload=o) for n, d, o in ((100, 1, True), (300, 2, False))
    )
    backend = lib.cpu_backend()
    overhead = lib.ggml_tensor_overhead() - 32  # without the header of an object
    arena = [n * 60 * overhead + lib.ggml_graph_overhead_custom(n, False) for n in (100, 300)]
    values: dict[str, tuple[int, int, int]] = {
        "backends": (backend, backend, WORD),
        "hash_set": (hash_size(100), hash_size(300), WORD),
        "context_buffer_size": (arena[0], arena[1], WORD),
        "op_offload": (1, 0, 1),
        "debug": (1, 2, 4),
        "debug_realloc": (5, 5, 4),
    }
    for setter, field in (
        ("ggml_backend_sched_set_eval_callback", "callback_eval"),
        ("ggml_backend_sched_set_copy_callback", "callback_copy"),
        ("ggml_backend_sched_set_realloc_callback", "callback_realloc"),
    ):
        if lib.exports(setter):
            values[field] = (_MARK + len(field), _MARK + len(field), WORD)
    for name, (a, b, size) in values.items():
        at = [
            i
            for i in range(0, SCHED_BYTES, size)
            if int.from_bytes(small[i : i + size], "little") == a and int.from_bytes(large[i : i + size], "little") == b
        ]
        expected = _offset(lib.structs["ggml_backend_sched"], name)
        yield Field("ggml_backend_sched", name, expected, expected if expected in at else at[0] if at else None)


_MARK = 0x5EED0000
"""Above this are values that no scheduler has by itself."""


def _scheduler(lib: Lib, graph_size: int, debug: int, op_offload: bool) -> bytes:
    """The bytes of a new scheduler with the CPU alone."""

    def made() -> bytes:
        os.environ.update(GGML_SCHED_DEBUG=str(debug), GGML_SCHED_DEBUG_REALLOC="5")
        backends = (_P * 1)(lib.cpu_backend())
        sched = int(lib.ggml_backend_sched_new(backends, None, 1, graph_size, False, op_offload))
        for name in ("eval", "copy", "realloc"):
            setter = f"ggml_backend_sched_set_{name}_callback"
            if lib.exports(setter):
                value = _MARK + len(f"callback_{name}")
                getattr(lib.base, setter)(_P(sched), _P(value), _P(value + 0x1000))
        return ctypes.string_at(sched, SCHED_BYTES)

    done = lib.run_forked(made)
    return done if isinstance(done, bytes) else b"\0" * SCHED_BYTES


def _slot(lib: Lib, struct: str, function: str, arguments: Arguments) -> int | None:
    """The offset of the word that a function calls, or gives back, of a struct whose words are callbacks."""
    read_fd, write_fd = os.pipe()
    pid = fork_child()
    if pid == 0:
        os.close(read_fd)
        _ask(lib, struct, function, arguments, write_fd)
    os.close(write_fd)
    said = read_exact(read_fd, WORD)
    os.close(read_fd)
    os.waitpid(pid, 0)
    return None if said is None else int.from_bytes(said, "little")


def _ask(lib: Lib, struct: str, function: str, arguments: Arguments, fd: int) -> None:
    quiet_child()

    def say(word: int) -> None:
        os.write(fd, (word * WORD).to_bytes(WORD, "little"))
        os._exit(0)

    try:
        callbacks = [ctypes.CFUNCTYPE(_Z, _P)(lambda _, i=i: say(i)) for i in range(WORDS)]  # type: ignore[misc]
        addresses = [ctypes.cast(c, _P).value or 0 for c in callbacks]
        words = (_P * WORDS)(*addresses)
        ctx = lib.init(1 << 20)
        t = lib.tensor(ctx, "f32", (16,))
        tensor = structs.Tensor.from_address(t)
        tensor.data, tensor.buffer = ctypes.addressof(ctypes.create_string_buffer(64)), ctypes.addressof(words)
        asked = getattr(lib.base, function)
        asked.restype = _P
        asked.argtypes = None
        given = asked(*arguments(ctypes.addressof(words), t, lib.graph(ctx, [t])))
        if given in addresses:
            say(addresses.index(given))
    finally:
        os._exit(0)


def _offset(struct: Any, name: str) -> int | None:
    """Where a struct has a field, in a table inside of it too."""
    for field, kind, *_ in struct._fields_:
        if field == name:
            return int(getattr(struct, name).offset)
        if field == "iface" and hasattr(kind, name):
            return int(getattr(struct, "iface").offset + getattr(kind, name).offset)  # noqa: B009
    return None
