"""What backends do when they are to compute a node that their device does not support: each family in its own words.

From ggml 0.20.2: ggml_backend_blas_graph_compute, ggml_cuda_graph_evaluate_and_capture, ggml_metal_op_encode_impl,
ggml_vk_build_graph, ggml_backend_sycl_graph_compute_impl, evaluate_and_capture_cann_graph,
ggml_backend_opencl_graph_compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, GgmlFailed, LineAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, op_desc

Beyond = Literal["refused", "computed", "anything"]
"""What a backend does with an op that it has, of types or shapes that its device refuses: it ends as with an op that it
lacks, it computes the node all the same, or anything, from an assertion in a kernel to wrong values."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """How a backend ends when it has no kernel for a node: `error` is ggml's, `beyond` what is refused for less."""

    error: Callable[[Tensor], GgmlError]
    beyond: Beyond = "anything"

    def of(self, n: Tensor, backend: str, why: str, lacks: bool) -> GgmlError | None:
        """What comes of a node that the device of `backend` refuses, and `why`; `lacks`: it has no such op at all. None
        if it is computed.
        """
        if lacks or self.beyond == "refused":
            return self.error(n)
        if self.beyond == "computed":
            return None
        return NotComputable(
            "ggml_backend_graph_compute",
            f"{backend} does not support {n.label} ({op_desc(n)}): {why}",
            explanation="its kernel aborts, or computes something else",
        )


def aborts(function: str, text: str = "{function}: unsupported op {op}", beyond: Beyond = "computed") -> Unsupported:
    """GGML_ABORT; `{op}` of its text is the op, by ggml_op_desc."""
    return Unsupported(lambda n: GgmlAbort(function, text.format(function=function, op=op_desc(n))), beyond)


def asserts(function: str, error: str = "") -> Unsupported:
    """A line in the log, in which `error` stands before the text, and GGML_ASSERT(ok)."""
    text = f"{{function}}: {error}op not supported {{name}} ({{op}})"
    return Unsupported(lambda n: GgmlAssert(function, "ok", _printed(function, text, n)))


def asserts_at(
    function: str, file: str, line: int, condition: str = "ok", text: str = "", beyond: Beyond = "anything"
) -> Unsupported:
    """The same of 2024, whose assertion says where it stands."""
    text = text or "{function}: error: op not supported {name} ({op})"
    return Unsupported(lambda n: LineAssert(function, file, line, condition, _printed(function, text, n)), beyond)


def passes_over(function: str) -> Unsupported:
    """No word: the node is not computed, and its memory keeps what was there."""
    return Unsupported(
        lambda n: GgmlFailed(
            function,
            f"{n.label} ({op_desc(n)}) is not computed",
            explanation=f"{function} has no case for the op and skips the node silently; reading the node returns what "
            "was in its memory before",
        )
    )


def _printed(function: str, text: str, n: Tensor) -> str:
    line = text.format(function=function, name=n.name, op=Op(n.op).name, desc=op_desc(n))
    return f"before it, ggml prints: {line}"
