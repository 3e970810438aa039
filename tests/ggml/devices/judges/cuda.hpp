// In place of the CUDA runtime: one device, of the compute capability that the question names.
#pragma once

#include "judge.hpp"

#include "ggml-cuda.h"

typedef void * cudaStream_t;

// What concurrent streams would be made of, with GGML_CUDA_GRAPH_OPT.
struct ggml_cuda_concurrent_event {
    explicit ggml_cuda_concurrent_event(int) {}
    std::unordered_map<const ggml_tensor *, int> stream_mapping;
    std::vector<const ggml_tensor *> original_order;
    const ggml_tensor * join_node = nullptr;
};

struct ggml_cuda_stream_context {
    std::unordered_map<const ggml_tensor *, ggml_cuda_concurrent_event> concurrent_events;
    void reset() { concurrent_events.clear(); }
};

struct ggml_backend_cuda_context {
    int device = 0;
    ggml_cuda_stream_context streams;
    ggml_cuda_stream_context & stream_context() { return streams; }
};

struct ggml_backend_cuda_device_context {
    int device = 0;
};

struct ggml_backend_cuda_buffer_type_context {
    int         device = 0;
    std::string name = "CUDA0";
};

struct ggml_cuda_device_info {
    int device_count = 1;
    struct {
        int    cc;
        size_t smpb;
    } devices[1];
};

const ggml_cuda_device_info & ggml_cuda_info();

inline void ggml_cuda_set_device(int) {}

template <int D, ggml_type type_K, ggml_type type_V>
void ggml_cuda_flash_attn_ext_vec_case(ggml_backend_cuda_context &, ggml_tensor *) {}
