// Behind the functions cut out of ggml-metal.cpp.
static ggml_metal_device device;

void judge_hardware(const char * hardware) {
    device.props.has_bfloat = strstr(hardware, "bfloat");
    device.props.has_simdgroup_mm = strstr(hardware, "simdgroup_mm");
    device.props.has_simdgroup_reduction = strstr(hardware, "simdgroup_reduction");
    device.props.max_theadgroup_memory_size = 32 << 10;
}

bool judge_supports_op(const ggml_tensor * op) { return ggml_metal_device_supports_op(&device, op); }

size_t judge_alloc_size(const ggml_tensor * tensor) {
    return ggml_backend_metal_buffer_type_get_alloc_size(nullptr, tensor);
}

void judge_graph_optimize(ggml_cgraph * graph, judge_keeps * keeps) {
    ggml_backend backend = {};
    judge_call(ggml_backend_metal_graph_optimize, &backend, graph, keeps);
}
