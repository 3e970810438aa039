"""A model and a context of llama.cpp, what the library logs of them, and graphs in its memory as a scenario."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import Error
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.oracle.structs import KNOWN, Buffer, BufferI, CGraphStruct
from ggmltool.sources.graph_writer import GraphWriter
from ggmltool.sources.llama.capture.lib import LOG_CALLBACK, LlamaLib
from ggmltool.sources.llama.capture.options import FLASH_ATTN, CaptureOptions
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.state.memory.pages import OwnMemory
from ggmltool.state.memory.tensors import MemoryTensors, TensorStruct
from ggmltool.structs.mirrors import mirrors

_NORESERVE = 0x40 if sys.platform == "darwin" else 0x4000
_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class PromisedMemory:
    """Takes the place of the CPU buffer type's allocator for as long as the object lives: memory as large as asked for,
    and no page of it real until written.

    llama.cpp allocates the compute buffers of the graph that it reserves. Nothing is computed in them, so a graph that
    needs more than this machine has can be captured nevertheless.

    What llama.cpp frees stays until `release`, and what is there when `keep` is called for good.
    """

    def __init__(self, lib: LlamaLib) -> None:
        self.lib = lib
        self.maps: list[tuple[mmap.mmap, object]] = []
        self.kept = 0
        buft = lib.ggml_backend_cpu_buffer_type()
        buffer = lib.ggml_backend_buft_alloc_buffer(buft, 64)
        self.interface = BufferI.from_buffer_copy(Buffer.from_address(buffer).iface)
        self.interface.free_buffer = None
        self.callback = _ALLOC(self._alloc)
        # It is the second function of every ggml's buffer types.
        table = mirrors("0.20.2")["ggml_backend_buffer_type_i"].from_address(buft)
        table.alloc_buffer = ctypes.cast(self.callback, ctypes.c_void_p).value

    def keep(self) -> None:
        """The buffers so far are those of the model."""
        self.kept = len(self.maps)

    def release(self) -> None:
        """Give back the others, which nothing may use any more."""
        del self.maps[self.kept :]

    def _alloc(self, buft: int, size: int) -> int | None:
        """A buffer; None where not even addresses are left."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        try:
            pages = mmap.mmap(-1, size, flags=flags)
        except (OSError, OverflowError):
            return None
        first = ctypes.c_char.from_buffer(pages)
        self.maps.append((pages, first))
        return int(self.lib.ggml_backend_buffer_init(buft, self.interface, ctypes.addressof(first), size))


LEVEL_DEBUG, LEVEL_ERROR, LEVEL_CONT = 1, 4, 5
_LOAD_MODE_NONE = 0


MAX_CTX = 1 << 24
"""Tokens of a context, at most: llama.cpp keeps some bytes for each of them."""


FOR = {"server": " for llama-server", "cli": " for llama-cli", "library": "", None: ""}
"""The program that a capture answers for, in its name."""


class LlamaLog:
    """What the library logs, as whole lines with their level. Errors come as exceptions of CaptureError's."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self._open = False
        self._kept = 0
        self.callback = LOG_CALLBACK(self._add)

    def _add(self, level: int, text: bytes, _: int | None) -> None:
        said = text.decode("utf-8", "replace")
        if level == LEVEL_CONT or self._open:
            last = self.lines.pop() if self.lines else (level, "")
            level, said = last[0], last[1] + said
        self._open = not said.endswith("\n")
        self.lines.append((level, said.removesuffix("\n")))

    def keep(self) -> None:
        """What was said so far is said of all contexts."""
        self._kept = len(self.lines)

    def forget(self) -> None:
        """Forget what was said of a context."""
        del self.lines[self._kept :]

    def said(self) -> list[str]:
        """All lines but those for debugging."""
        return [said for level, said in self.lines if level != LEVEL_DEBUG]

    def errors(self) -> list[str]:
        """The error lines without the function that says them."""
        return [said.partition(": ")[2] or said for level, said in self.lines if level == LEVEL_ERROR]

    def error(self, what: str) -> CaptureError:
        """`what` failed, with the first reason that the library gave."""
        reasons = [text.removeprefix("error loading model: ") for text in self.errors()]
        return CaptureError(f"{what}: {reasons[0]}" if reasons else what)


class Session:
    """A model and a context of llama.cpp, made as the options say; `load` makes them. Raises CaptureError.

    One model may have many contexts, one after the other: `renew`. Separate methods make the params, so that a
    subclass can use other devices than the CPU.
    """

    def __init__(self, options: CaptureOptions) -> None:
        self.options = options
        self.log = LlamaLog()
        self.lib = lib = LlamaLib(options.library)
        lib.llama_log_set(self.log.callback, None)
        lib.llama_backend_init()
        self.memory = PromisedMemory(lib)
        self.no_devices = (ctypes.c_void_p * 1)(None)
        self.model = 0
        self.ctx = 0

    def load(self, path: str) -> None:
        """Load the model and make its context."""
        self.load_model(path)
        self.make_context()

    def load_model(self, path: str) -> None:
        """Load the model alone."""
        self.model = int(self.lib.llama_model_load_from_file(os.fsencode(path), self.model_params()) or 0)
        if not self.model:
            raise self.log.error("llama.cpp cannot load the model")
        self.log.keep()
        self.memory.keep()

    def make_context(self) -> None:
        """Make a context of the model."""
        self.ctx = int(self.lib.llama_init_from_model(self.model, self.context_params()) or 0)
        if not self.ctx:
            raise self.log.error("llama.cpp cannot create a context for the model")

    def renew(self, options: CaptureOptions) -> None:
        """Take the place of the context before with one that is made as other options say."""
        if self.ctx:
            self.lib.llama_free(self.ctx)
            self.ctx = 0
            self.memory.release()
        self.log.forget()
        self.options = options
        self.make_context()

    def model_params(self) -> Any:
        """Metadata only, all of it on the CPU: the weights get no memory and are not read."""
        params = self.lib.llama_model_default_params()
        params.devices = ctypes.addressof(self.no_devices)
        params.n_gpu_layers = 0
        params.load_mode = _LOAD_MODE_NONE
        params.use_extra_bufts = False
        params.no_alloc = True
        return params

    def context_params(self) -> Any:
        """The options as llama.cpp takes them."""
        options = self.options
        n_ctx = options.n_ctx or self.lib.llama_model_n_ctx_train(self.model)
        if not 0 <= n_ctx <= MAX_CTX:
            n_ctx %= 1 << 32
            raise CaptureError(f"a context of {n_ctx} tokens is too large; use a --ctx-size of at most {MAX_CTX}")
        params = self.lib.llama_context_default_params()
        params.n_ctx = options.n_ctx
        params.n_batch = options.n_batch
        if options.serves and options.embeddings:
            params.n_batch = min(options.n_batch, options.n_ubatch)
        params.n_ubatch = options.n_ubatch
        params.n_outputs_max = options.n_outputs_max
        if options.n_outputs is not None:
            # A context has room for an output of each sequence.
            params.n_outputs_max = max(options.n_outputs, options.n_parallel)
        params.n_seq_max = options.n_parallel
        params.flash_attn_type = FLASH_ATTN[options.flash_attn]
        params.type_k, params.type_v = TYPES[options.type_k].id, TYPES[options.type_v].id
        for name in ("swa_full", "kv_unified", "offload_kqv", "embeddings"):
            setattr(params, name, getattr(options, name))
        return params

    def batch(self, phase: str) -> tuple[int, int, int]:
        """Tokens, sequences and outputs of a graph. Raises CaptureError for a batch that no context can have."""
        options, lib = self.options, self.lib
        one_of_two = phase == "token" and options.phase == "both"
        n_ubatch, n_seq_max = lib.llama_n_ubatch(self.ctx), lib.llama_n_seq_max(self.ctx)
        n_seqs = n_seq_max if options.n_seqs is None else options.n_seqs
        if n_seqs > n_seq_max:
            raise CaptureError(f"--n-seqs {n_seqs} needs --parallel {n_seqs}; the context has {n_seq_max}")
        n_tokens = None if one_of_two else options.n_tokens
        if n_tokens is None:
            n_tokens = n_seqs if phase == "token" else min(lib.llama_n_ctx(self.ctx), n_ubatch)
        if n_tokens > n_ubatch:
            raise CaptureError(f"--n-tokens {n_tokens} needs --ubatch-size {n_tokens}; the context has {n_ubatch}")
        # The outputs that the program reserves memory for: a model with an encoder gives one of every token.
        most = 0 if lib.llama_model_has_encoder(self.model) else options.n_outputs_max
        n_outputs = min(n_tokens, most) if most else n_tokens
        # llama.cpp reserves for as many tokens in every sequence.
        n_tokens = -(-n_tokens // n_seqs) * n_seqs
        # Attention takes a batch in as many parts as there are sequences with a KV cache of their own.
        attends = lib.llama_get_memory(self.ctx) and not lib.llama_model_is_recurrent(self.model)
        n_streams = int(n_seq_max) if attends and not options.kv_unified else 1
        if n_tokens % n_streams:
            raise CaptureError(
                f"{n_tokens} tokens are not a multiple of {n_streams}, the number of sequences with separate KV "
                "caches; change --n-tokens, or share the cache with --kv-unified"
            )
        if options.n_outputs is not None and not one_of_two:
            n_outputs = options.n_outputs
        if n_outputs > n_tokens:
            raise CaptureError(f"--outputs {n_outputs} is more than the {n_tokens} tokens of the graph")
        if not n_outputs:
            raise CaptureError("--outputs 0: llama.cpp reserves memory for one output at least")
        return n_tokens, n_seqs, n_outputs

    def reserve(self, phase: str) -> int:
        """The graph of a phase, until the next one is reserved. Raises CaptureError if it cannot be."""
        graph = self.lib.graph_reserve(self.ctx, *self.batch(phase))
        if not graph:
            raise self.log.error("llama.cpp cannot reserve the graph")
        return graph

    def facts(self, flash_attn: bool, phase: str, n_tokens: int, n_seqs: int, n_outputs: int) -> dict[str, Any]:
        """What the graphs were made from and with: the scenario's `meta`. The batch is that of the first one."""
        lib, model, ctx, options = self.lib, self.model, self.ctx, self.options
        return {
            "source": "llama.cpp",
            "library": lib.title,
            **({"note": lib.behavior.note} if lib.behavior.note else {}),
            "model": printable(lib.model_value(model, "general.name")),
            "architecture": printable(lib.model_value(model, "general.architecture")),
            "n_layer": lib.llama_model_n_layer(model),
            "n_params": lib.llama_model_n_params(model),
            "model_size": lib.llama_model_size(model),
            "n_ctx_train": lib.llama_model_n_ctx_train(model),
            "n_swa": lib.llama_model_n_swa(model),
            **({"program": options.program} if phase != "tokens" else {}),
            "phase": phase,
            "n_tokens": n_tokens,
            "n_seqs": n_seqs,
            "n_outputs": n_outputs,
            **{n: getattr(lib, f"llama_{n}")(ctx) for n in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "n_seq_max")},
            "flash_attn": flash_attn,
            **{n: getattr(options, n) for n in ("type_k", "type_v", "swa_full", "kv_unified", "offload_kqv")},
        }

    def scenario(self, path: str, facts: dict[str, Any], batch: str, written: dict[str, Any]) -> dict[str, Any]:
        """The scenario of what was `written`; `batch` says in words what its graphs are for."""
        file = printable(os.path.basename(path))  # noqa: PTH119 - it is text here
        return {
            "ggmltool": 1,
            "ggml": self.lib.behavior.release.name,
            "name": f"{facts['model'] or file}{FOR[facts.get('program')]}, {batch}, captured from llama.cpp",
            "meta": {"file": file, **facts},
            "backends": [{"name": "CPU"}],
            **written,
        }


def printable(text: str) -> str:
    """Text that a file brings along, without what a scenario's names cannot have."""
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


_USAGE_WEIGHTS = 1
_SUB_OPS = {"UNARY": "ggml_unary_op_name", "GLU": "ggml_glu_op_name"}


class LibraryTensors(MemoryTensors):
    """The tensors that the library has in this process."""

    def __init__(self, lib: LlamaLib) -> None:
        super().__init__(OwnMemory(), KNOWN.types)
        self.lib = lib

    def arena(self, address: int) -> Sequence[int]:
        """The tensors of the ggml_context that a tensor lies in, in the order of its objects."""
        return next(iter(self.arenas([address])), ())

    def type_name(self, number: int) -> str:
        """ggml_type_name."""
        return str(self.lib.ggml_type_name(number).decode())

    def op_name(self, number: int, first_word: int) -> str:
        """ggml_op_name, or the name of the function of UNARY and GLU."""
        name = str(self.lib.ggml_op_name(number).decode())
        return str(getattr(self.lib, _SUB_OPS[name])(first_word).decode()) if name in _SUB_OPS else name


class LlamaGraphWriter(GraphWriter):
    """Writes graphs of one llama_context, everything on the CPU.

    Contexts are `weights` (also those that no graph uses), `kv` (KV cache and recurrent state) and, for each graph, its
    inputs, which the scheduler allocates.
    """

    def __init__(self, lib: LlamaLib) -> None:
        super().__init__(LibraryTensors(lib))
        self.lib = lib
        self.graph_size = 0

    def add(self, name: str, graph: int) -> dict[int, str]:
        """Write a ggml_cgraph that was not split yet, or only for one backend; the ids of its tensors by address.

        Raises CaptureError for an op or a type that this ggml does not have.
        """
        self.graph_size = max(self.graph_size, CGraphStruct.from_address(graph).size)
        return self.write(name, *self.lib.graph_tensors(graph))

    def has_op(self, op: str) -> bool:
        """Whether any node written so far is of the op."""
        return any(node["op"] == op for graph in self.graphs.values() for node in graph["nodes"].values())

    def written(self) -> dict[str, Any]:
        """The parts `scheduler`, `contexts` and `graphs` of the scenario.

        Weights are in the order in which llama.cpp made them, which is that of their memory.
        """
        for context in self.contexts.values():
            if context.get("usage") == "weights":
                context["tensors"] = self.in_order_of_memory(context["tensors"])
        scheduler: dict[str, Any] = {"graph_size": self.graph_size}
        if self.lib.has("ggml_backend_sched_set_copy_callback"):
            scheduler["copy_callback"] = "used_experts"
        return {"scheduler": scheduler, "contexts": self.contexts, "graphs": self.graphs}

    def place(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        """The context of a weight or a cache."""
        weights = self.lib.ggml_backend_buffer_get_usage(tensor.buffer) == _USAGE_WEIGHTS
        return ("weights" if weights else "kv"), {"buft": "CPU", "usage": "weights" if weights else "any"}

    def unknown_type(self, name: str) -> Error:
        """No such type here."""
        return CaptureError(f"the model has tensors of the type {name}, which ggml {NEWEST.name} does not have")

    def unknown_op(self, name: str) -> Error:
        """No such op here."""
        return CaptureError(
            f"the graph has the op {name} (ggml {self.lib.ggml}), which ggml {NEWEST.name} does not have; ggmltool "
            "cannot plan it"
        )
