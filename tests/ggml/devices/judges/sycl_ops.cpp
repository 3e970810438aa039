// Behind the functions cut out of ggml-sycl.cpp.
void judge_hardware(const char * hardware) { g_ggml_sycl_fa_onednn = strstr(hardware, "onednn") != nullptr; }

bool judge_supports_op(const ggml_tensor * op) {
    ggml_backend_sycl_device_context context = { 0 };
    ggml_backend_device dev = {};
    dev.context = &context;
    return do_ggml_backend_sycl_device_supports_op(&dev, op);
}

size_t judge_alloc_size(const ggml_tensor * tensor) {
    return ggml_backend_sycl_buffer_type_get_alloc_size(nullptr, tensor);
}

void judge_graph_optimize(ggml_cgraph *, judge_keeps *) {}
