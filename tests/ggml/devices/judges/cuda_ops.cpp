// Behind the functions cut out of ggml-cuda.cu.
static ggml_cuda_device_info info = {};

const ggml_cuda_device_info & ggml_cuda_info() { return info; }

void judge_hardware(const char * hardware) {
    info.devices[0].cc = atoi(hardware);
    info.devices[0].smpb = strstr(hardware, "amd") ? 64 << 10 : 48 << 10;
    if (strstr(hardware, "amd")) {
        info.devices[0].cc = 0x1000000 + (int) strtol(hardware, nullptr, 16);
    }
}

static ggml_backend_cuda_device_context device_context;
static ggml_backend_cuda_buffer_type_context buft_context;

static ggml_backend_device make_device() {
    ggml_backend_device dev = {};
    dev.context = &device_context;
    return dev;
}

bool judge_supports_op(const ggml_tensor * op) {
    static ggml_backend_device dev = make_device();
    return ggml_backend_cuda_device_supports_op(&dev, op);
}

size_t judge_alloc_size(const ggml_tensor * tensor) {
    ggml_backend_buffer_type buft = {};
    buft.context = &buft_context;
    return ggml_backend_cuda_buffer_type_get_alloc_size(&buft, tensor);
}

void judge_graph_optimize(ggml_cgraph * graph, judge_keeps * keeps) {
    static ggml_backend_cuda_context context;
    ggml_backend backend = {};
    backend.context = &context;
    judge_call(ggml_backend_cuda_graph_optimize, &backend, graph, keeps);
}
