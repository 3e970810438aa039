"""What devices say of their memory, and of errors while they compute: CUDA and its kin, Vulkan, Metal."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Case, Message

_SMALLER = (
    "make the ubatch (-ub) or the context (-c) smaller, quantize the KV cache, or put fewer layers there (-ngl, -ot)"
)
_POOLS = (
    "A device came to compute a node and had no memory left for a runtime pool: room for a dequantized K and V, for "
    "partial sums of flash attention, for f16 copies of weights, for cuBLAS. No plan has these: ggml takes them when a "
    "kernel runs, so a model that loads may still fail at the first long prompt."
)
_POOL_SHAPES = (
    "A card filled to the last MiB; a quantized KV cache with flash attention, whose K and V are made f16 for the "
    "whole context; a large ubatch; a longer prompt than any before; other programs on the card."
)
_POOL_REMEDY = (
    "leave memory free beside what is planned (1 GiB is what llama.cpp's --fit keeps; more with a quantized KV cache), "
    "lower -ub, shorten the context, or put a layer less there"
)
_LATER = (
    "A kernel failed, and CUDA says so at the next call that waits ({function}). That is not the function to blame: "
    "the node is one before it."
)
_BLAME = (
    "run it with CUDA_LAUNCH_BLOCKING=1 (and GGML_CUDA_DISABLE_GRAPHS=1), so that the failing kernel is named; which "
    "nodes run there is in a log of GGML_SCHED_DEBUG=2"
)
_ERROR = (
    ("error", "an error"),
    ("device", "the device"),
    ("function", "named in the line after it"),
    ("at", ""),
    ("line", ""),
    ("call", ""),
)
_ERROR_CASES = (
    Case("call", r"cuMem(?:Create|Map|AddressReserve)\(.*", _POOLS, _POOL_SHAPES, _POOL_REMEDY, "place"),
    Case("function", r"alloc|ggml_cuda_pool\w*|ggml_cuda_device_malloc", _POOLS, _POOL_SHAPES, _POOL_REMEDY, "place"),
    Case("error", r"out of memory.*", _POOLS, _POOL_SHAPES, _POOL_REMEDY, "place"),
    Case(
        "error",
        r"(?:an illegal memory access|unspecified launch failure|misaligned address|an illegal instruction).*",
        _LATER,
        "A mistake in a kernel, or shapes or strides that it does not take: newly supported types, MUL_MAT_ID with "
        "experts on the CPU (-ot exp=CPU: ggml copies the used experts to the GPU for large batches), CUDA graphs.",
        f"{_BLAME}; try --no-op-offload, -fa off, or another -ot, which move the nodes to other kernels, and report it",
        "splits --by op,backend LOG",
    ),
    Case(
        "error",
        r"no kernel image is available.*|the provided PTX.*|device kernel image is invalid.*",
        "The program was built for other GPUs than this one.",
        "A build with CMAKE_CUDA_ARCHITECTURES that leave this card out, or a toolkit newer than the driver.",
        "build for the card's compute capability, or update the driver",
        "",
    ),
    Case(
        "error",
        r"invalid argument.*|invalid configuration argument.*|invalid resource handle.*",
        "CUDA refused a call ({function}): a size or an address that it does not take.",
        "A kernel launched for shapes beyond its limits (very many rows, a batch of 0), a copy between cards that "
        "cannot reach each other, a CUDA graph that is used again after its nodes have changed.",
        f"{_BLAME}; try GGML_CUDA_DISABLE_GRAPHS=1, a smaller -ub, or --no-op-offload",
        "splits --bytes LOG",
    ),
)

DEVICES: dict[str, Message] = {
    "cuda_error": Message(
        (
            "CUDA error: %s current device: %d, in function %s at %s:%d %s",
            "ROCm error: %s current device: %d, in function %s at %s:%d %s",
            "MUSA error: %s current device: %d, in function %s at %s:%d %s",
            "CUDA error: %s",
            "ROCm error: %s",
            "MUSA error: %s",
        ),
        ("ggml_cuda_error",),
        "A call of CUDA failed ({error}), and ggml stopped. The lines behind it name the device, the function of ggml "
        "and the call.",
        "Memory that ran out, a kernel that failed, or a driver that does not fit the build.",
        _BLAME,
        "import LOG",
        places=_ERROR,
        cases=_ERROR_CASES,
    ),
    "cuda_error_place": Message(
        ("current device: %d, in function %s at %s:%d %s", "current device: %d, in function %s at %s:%d"),
        ("ggml_cuda_error",),
        "This is where an error of CUDA was noticed: device {device}, in {function}. What failed stands in the line "
        "before it.",
        "It follows “CUDA error: …”; for errors of a kernel it is the next call that waits, not the kernel.",
        "explain the line before it, or all of them (`explain error LOG`)",
        "",
        places=(("device", "the device"), ("function", "a function"), ("at", ""), ("line", ""), ("call", "")),
        cases=tuple(case for case in _ERROR_CASES[:2]),
    ),
    "cuda_op_failed": Message(
        ("ggml_cuda_compute_forward: %s failed",),
        ("ggml_cuda_compute_forward",),
        "A kernel of CUDA for {op} could not be started; the line after it says why.",
        "A card or driver that the build was not made for, or shapes that the kernel does not take.",
        "explain the lines after it (`explain error LOG`); keep the op on the CPU to go on",
        "supports",
        places=(("op", "an op"),),
    ),
    "cuda_aborted": Message(
        ("CUDA error", "ROCm error", '!"CUDA error"'),
        ("ggml_cuda_error",),
        "ggml stopped after an error of CUDA; which one stands in the lines before it.",
        "It follows “CUDA error: …”.",
        "explain the lines before it (`explain error LOG`)",
        "",
    ),
    "pool_no_memory": Message(
        (
            "cuMemCreate(&handle, reserve_size, &prop, 0)",
            "CUDA pool[%d]: alloc of %.2f MiB failed, flushing %.2f MiB of cached buffers and retrying",
        ),
        ("ggml_cuda_pool_vmm::alloc", "ggml_cuda_pool_leg::alloc"),
        _POOLS,
        _POOL_SHAPES,
        _POOL_REMEDY,
        "place",
    ),
    "cuda_out_of_memory": Message(
        (
            "%s: allocating %.2f MiB on device %d: cudaMalloc failed: %s",
            "%s: allocating %.2f MiB on device %d: aclrtMalloc failed: %s",
            "cudaMalloc failed: %s",
        ),
        ("ggml_backend_cuda_buffer_type_alloc_buffer", "ggml_backend_cann_buffer_type_alloc_buffer"),
        "Device {device} has no memory for one whole buffer of {mib} MiB: the weights, the KV cache, or the compute "
        "buffer. The lines after it say which.",
        "A model, a context or a ubatch that is too large for the card, or other programs on it. A buffer is one "
        "piece, so memory that is free in pieces does not help.",
        _SMALLER,
        "place",
        places=(("mib", "some"), ("device", "of CUDA"), ("error", "")),
    ),
    "pinned_failed": Message(
        (
            "%s: failed to allocate %.2f MiB of pinned memory: %s",
            "%s: failed to allocate %.2f MiB of pinned memory",
            "WARNING: failed to allocate %.2f MB of pinned memory: %s",
            "ggml_vulkan: Failed to allocate pinned memory (%s)",
        ),
        ("ggml_cuda_host_malloc", "ggml_vk_host_malloc", "ggml_sycl_host_malloc"),
        "The host gave no pinned memory (CUDA_Host), so the buffer is ordinary memory of the CPU. Copies to the GPU "
        "are slower then; nothing fails.",
        "A limit on locked memory (ulimit -l, WSL, containers), or a host that is nearly full.",
        "raise the limit on locked memory, or leave it as it is; GGML_CUDA_NO_PINNED=1 does not ask for any",
        "splits --bytes",
        level="warning",
    ),
    "vulkan_no_memory": Message(
        (
            "ggml_vulkan: Device memory allocation of size %zu failed.",
            "ggml_vulkan: Memory allocation of size %zu failed.",
            "ErrorOutOfDeviceMemory",
            "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        ),
        ("ggml_vk_create_buffer",),
        "A Vulkan device has no memory for one whole buffer: the weights, the KV cache, or the compute buffer.",
        "A model, a context or a ubatch that is too large for the device, or other programs on it.",
        _SMALLER,
        "place",
    ),
    "vulkan_buffer_limit": Message(
        (
            "Requested buffer size exceeds device buffer size limit",
            "Requested buffer size exceeds device memory allocation limit",
        ),
        ("ggml_vk_create_buffer",),
        "A buffer would be larger than the driver lets one buffer be (maxBufferSize), however much memory is free. "
        "Compute buffers are cut into chunks below the limit; a single tensor is not.",
        "One tensor of several GiB: logits of a large batch, KQ without flash attention, a huge embedding.",
        "make the ubatch smaller, or use flash attention (-fa on); GGML_VK_FORCE_MAX_BUFFER_SIZE raises the limit",
        "buffers --chunks",
    ),
    "metal_no_memory": Message(
        (
            "%s: error: failed to allocate buffer, size = %8.2f MiB",
            "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
            "error: Insufficient Memory",
        ),
        ("ggml_metal_buffer_init", "ggml_metal_synchronize"),
        "Metal gave no memory: for a buffer when the model is loaded, or, as an error of a command buffer, while it "
        "computes.",
        "A model and its context beyond what macOS lets the GPU use (recommendedMaxWorkingSetSize, some three quarters "
        "of the memory).",
        f"{_SMALLER}; `sudo sysctl iogpu.wired_limit_mb` raises the limit",
        "place",
    ),
    "op_unsupported": Message(
        ("%s: op not supported %s (%s)", "%s: error: unsupported op '%s'", "unsupported op '%s'", "ok"),
        ("ggml_cuda_graph_evaluate_and_capture", "ggml_metal_op_encode_impl"),
        "A device was given a node that it has no kernel for, and stopped.",
        "supports_op said yes to what the kernel does not take, or the scheduler was not asked: a graph computed on "
        "one backend directly (ggml_backend_graph_compute).",
        "compute the graph by a scheduler with the CPU behind the device, or keep the op on the CPU",
        "supports",
    ),
}
