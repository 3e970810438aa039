// Behind the functions cut out of ggml-cann.cpp.
void judge_hardware(const char *) {}

bool judge_supports_op(const ggml_tensor * op) { return ggml_backend_cann_supports_op(nullptr, op); }

size_t judge_alloc_size(const ggml_tensor * tensor) {
    return ggml_backend_cann_buffer_type_get_alloc_size(nullptr, tensor);
}

void judge_graph_optimize(ggml_cgraph *, judge_keeps *) {}
