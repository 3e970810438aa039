// In place of Metal: one GPU, with the features that the question names.
#pragma once

#include "judge.hpp"

#include <cassert>

typedef struct ggml_metal * ggml_metal_t;
typedef void * ggml_metal_buffer_t;

struct ggml_metal_device_props {
    bool   has_simdgroup_reduction, has_simdgroup_mm, has_bfloat;
    size_t max_theadgroup_memory_size;
};

typedef struct ggml_metal_device * ggml_metal_device_t;

struct ggml_metal_device {
    ggml_metal_device_props props;
};

struct ggml_metal_buffer_id {
    void * metal;
    size_t offs;
};

// Where allocated tensors are is asked when a graph is computed, not when its nodes are ordered.
extern "C" inline ggml_metal_buffer_id ggml_metal_buffer_get_id(ggml_metal_buffer_t, const ggml_tensor *) {
    throw judge_aborted();
}

extern "C" void ggml_graph_optimize(ggml_cgraph * gf);

extern "C" inline void ggml_metal_graph_optimize(ggml_metal_t, ggml_cgraph * gf) {
    ggml_graph_optimize(gf);
}

extern "C" bool ggml_metal_device_supports_op(ggml_metal_device_t dev, const ggml_tensor * op);
