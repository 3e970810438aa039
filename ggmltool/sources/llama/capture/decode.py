"""Capturing what llama.cpp does with given tokens: its graphs, and the inputs that it sets for each of them.

llama.cpp is asked to decode, and stopped at the first node: by then it has built the graph, allocated it and set the
inputs (tokens, positions, places in the KV cache, masks, rows of which logits are asked). Next to nothing is computed,
so that the KV cache holds no values; which of its cells are taken is all that the inputs depend on.
"""

from __future__ import annotations

import base64
import ctypes
from array import array
from collections.abc import Hashable
from typing import Any

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import FLAG_COMPUTE
from ggmltool.oracle.structs import KNOWN, Tensor
from ggmltool.sources.llama.capture.lib import Batch
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.capture.session import LlamaGraphWriter, Session
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.state.memory.tensors import TensorStruct

_LOAD_MODE_MMAP = 1
_USAGE_COMPUTE = 2
_EVAL_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_NUMBERS = {TYPES["i32"].id: "i", TYPES["i64"].id: "q"}

Inputs = dict[str, Any]
"""The data of a graph's inputs, by id, as a scenario has it."""


class DecodedGraphWriter(LlamaGraphWriter):
    """Writes graphs that are allocated: what lies in a compute buffer is the scheduler's.

    A graph that is there already is not written again. `ids_of` has the ids of each graph's tensors by address.
    """

    def __init__(self, lib: Any) -> None:
        super().__init__(lib)
        self.ids_of: dict[str, dict[int, str]] = {}
        self._known: dict[Hashable, str] = {}

    def has_memory(self, tensor: TensorStruct) -> bool:
        """Whether the tensor is pre-allocated, from before the graph was allocated."""
        if not tensor.buffer:
            return False
        return int(self.lib.ggml_backend_buffer_get_usage(tensor.buffer)) != _USAGE_COMPUTE

    def name_of(self, graph: int, phase: str) -> str:
        """The name of a graph of that phase, which is written unless the same one was before."""
        nodes, leafs = self.lib.graph_tensors(graph)
        # What tells a graph from another one, which llama.cpp builds in the same memory.
        tensors = [(address, Tensor.from_address(address)) for address in (*leafs, *nodes)]
        key = tuple(
            (at, t.op, t.type, *t.ne, *t.nb, *t.op_params, *t.src, t.view_src, t.view_offs, t.name) for at, t in tensors
        )
        name = self._known.get(key)
        if name is None:
            n = sum(other.partition("_")[0] == phase for other in self.graphs)
            name = self._known[key] = f"{phase}_{n + 1}" if n else phase
            self.ids_of[name] = self.add(name, graph)
        return name

    def read_inputs(self, graph: int, name: str) -> Inputs:
        """The values of the inputs that any node of the graph reads that is computed."""
        nodes, leafs = self.lib.graph_tensors(graph)
        computed = [t for t in map(Tensor.from_address, nodes) if t.flags & FLAG_COMPUTE]
        read = {source for t in computed for source in t.src}
        out: Inputs = {}
        for address in leafs:
            tensor = self.memory.tensor(address)
            if address in read and tensor.data and not tensor.view_src and not self.has_memory(tensor):
                content = ctypes.string_at(tensor.data, self.lib.ggml_nbytes(address))
                data: Any = {"fill": 0}
                if tensor.type in _NUMBERS:
                    data = array(_NUMBERS[tensor.type], content).tolist()
                elif any(content):
                    data = {"base64": base64.b64encode(content).decode("ascii")}
                out[self.ids_of[name][address]] = data
        return out


class Decoder(Session):
    """A model with its weights where they are in the file, and a context that decodes without computing.

    `steps` is what the scheduler did so far, as the steps of a scenario.
    """

    def __init__(self, options: CaptureOptions) -> None:
        super().__init__(options)
        self.writer = DecodedGraphWriter(self.lib)
        self.steps: list[Any] = []
        self._phase = ""
        self._newest = ""
        self._failed: Exception | None = None
        self._callback = _EVAL_CALLBACK(self._evaluate)

    def model_params(self) -> Any:
        """All of it on the CPU, the weights mapped into memory."""
        params = super().model_params()
        params.no_alloc = False
        params.load_mode = _LOAD_MODE_MMAP
        return params

    def context_params(self) -> Any:
        """As the options say, for logits of as many tokens as are asked for, with a callback before the first node."""
        params = super().context_params()
        params.n_outputs_max = 0
        params.cb_eval = ctypes.cast(self._callback, ctypes.c_void_p).value
        return params

    def decode(self, tokens: list[int], next_tokens: list[int], n_outputs: int) -> None:
        """Decode a prompt, of whose last `n_outputs` tokens logits are asked, and one token after the other."""
        n_batch = int(self.lib.llama_n_batch(self.ctx))
        for at in range(0, len(tokens), n_batch):
            self._decode("prompt", at, tokens[at : at + n_batch], len(tokens) - n_outputs - at)
        for at, token in enumerate(next_tokens, len(tokens)):
            self._decode("token", at, [token], 0)

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text, after those that the model begins with. Raises CaptureError for a model without."""
        lib, data = self.lib, text.encode()
        vocabulary = lib.llama_model_get_vocab(self.model)
        room = (ctypes.c_int32 * (len(data) + 16))()
        known = lib.llama_vocab_type(vocabulary)
        n = lib.llama_tokenize(vocabulary, data, len(data), room, len(room), True, True) if known else 0
        if n <= 0:
            raise CaptureError("the model has no vocabulary to tokenize text with; use --tokens")
        return list(room[:n])

    def _decode(self, phase: str, at: int, tokens: list[int], first_output: int) -> None:
        """Decode tokens from position `at` on; those from number `first_output` on have logits."""
        n = len(tokens)
        sequence = ctypes.c_int32(0)
        batch = Batch(
            n,
            (ctypes.c_int32 * n)(*tokens),
            None,
            (ctypes.c_int32 * n)(*range(at, at + n)),
            (ctypes.c_int32 * n)(*[1] * n),
            (ctypes.c_void_p * n)(*[ctypes.addressof(sequence)] * n),
            (ctypes.c_int8 * n)(*(i >= first_output for i in range(n))),
        )
        self._phase = phase
        status = self.lib.llama_decode(self.ctx, batch)
        if self._failed is not None:
            raise self._failed
        if status:
            raise self.log.error("llama.cpp cannot decode the tokens")

    def _evaluate(self, node: int, ask: bool, _: int | None) -> bool:
        """Called before the first node of a graph, which is then computed, and after it: that is the end of it."""
        if ask:
            try:
                self._note(_graph_of(node))
            except Exception as error:  # it would be lost in the library
                self._failed = self._failed or error
        return ask

    def _note(self, graph: int) -> None:
        """Note a graph that is about to be computed: how the scheduler came to it, and with which inputs."""
        writer = self.writer
        is_new = len(writer.graphs)
        name = writer.name_of(graph, self._phase)
        inputs = writer.read_inputs(graph, name)
        if not self.steps:
            self.steps.append(f"reserve {name}")
        if name != self._newest:
            self.steps += [*(["reset"] if self._newest else []), f"alloc {name}"]
        if is_new < len(writer.graphs):
            tensors = writer.contexts[writer.inputs]["tensors"]
            for id, data in inputs.items():
                tensors[id]["data"] = data
        else:
            self.steps.append({"set": inputs})
        self.steps.append(f"compute {name}")
        self._newest = name


def _graph_of(node: int) -> int:
    """The ggml_cgraph that a node was built for: the first object of its ggml_context, where llama.cpp puts it."""
    header = KNOWN["ggml_object"]
    start = node - int(header.from_address(node - ctypes.sizeof(header)).offs)
    first = header.from_address(start)
    if first.type != KNOWN.types.enums["ggml_object_type"].members["GGML_OBJECT_TYPE_GRAPH"]:
        raise CaptureError("llama.cpp keeps its graphs in a place that ggmltool does not know")
    return start + int(first.offs)


def capture_decoded(path: str, options: CaptureOptions) -> dict[str, Any]:
    """The scenario of what decodes the tokens of the options, and what the library logged. Raises CaptureError."""
    session = Decoder(options)
    session.load(path)
    lib = session.lib
    if not lib.llama_get_memory(session.ctx) or lib.llama_model_has_encoder(session.model):
        raise CaptureError(
            "the model has an encoder, or no memory of earlier tokens; --tokens is for models that decode"
        )
    tokens = session.tokenize(options.prompt) if options.prompt else list(options.tokens)
    n_all, n_ctx = len(tokens) + len(options.next_tokens), lib.llama_n_ctx_seq(session.ctx)
    if n_all > n_ctx:
        raise CaptureError(f"{n_all} tokens do not fit into a context of {n_ctx}; use a larger --ctx-size")
    n_outputs = len(tokens) if options.n_outputs is None else options.n_outputs
    if n_outputs > len(tokens):
        raise CaptureError(f"--outputs {n_outputs} is more than the {len(tokens)} tokens of the prompt")
    session.decode(tokens, list(options.next_tokens), n_outputs)
    writer = session.writer
    n_next = len(options.next_tokens)
    batch = f"prompt of {len(tokens)} tokens" + (f" and {n_next} more, one at a time" if n_next else "")
    facts = session.facts(writer.has_op("flash_attn_ext"), "tokens", len(tokens), 1, n_outputs)
    scenario = session.scenario(path, facts, batch, {**writer.written(), "steps": session.steps})
    return {"scenario": scenario, "log": session.log.said()}
