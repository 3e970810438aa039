// Behind the functions cut out of ggml-opencl.cpp.
static ggml_backend_opencl_context backend;
static ggml_backend_opencl_device_context context = { &backend, nullptr };

static ggml_backend_device make_device() {
    ggml_backend_device dev = {};
    dev.context = &context;
    return dev;
}

static ggml_backend_device device = make_device();

void judge_hardware(const char *) {}

bool judge_supports_op(const ggml_tensor * op) { return ggml_opencl_supports_op(&device, op); }

size_t judge_alloc_size(const ggml_tensor * tensor) {
    ggml_backend_buffer_type buft = {};
    buft.device = &device;
    return ggml_backend_opencl_buffer_type_get_alloc_size(&buft, tensor);
}

void judge_graph_optimize(ggml_cgraph *, judge_keeps *) {}
