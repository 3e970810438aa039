// In place of OpenCL: a GPU that is no Adreno 7xx, its compiler one of today.
#pragma once

#include "judge.hpp"

#include <regex>

enum ADRENO_GPU_GEN { ADRENO_UNKNOWN, A6X, A7X, A8X };
enum GPU_FAMILY { ADRENO, INTEL, UNKNOWN };
enum ADRENO_CL_COMPILER_TYPE { E031, DX, E17 };

typedef int cl_kernel;

struct ggml_cl_compiler_version {
    ADRENO_CL_COMPILER_TYPE type = E031;

    bool newer_than_or_same(ADRENO_CL_COMPILER_TYPE, int, int, int) const { return true; }
};

struct ggml_backend_opencl_context {
    ADRENO_GPU_GEN           adreno_gen = ADRENO_UNKNOWN;
    GPU_FAMILY               gpu_family = ADRENO;
    ggml_cl_compiler_version adreno_cl_compiler_version;
    size_t                   alignment = 128;
    cl_kernel                kernel_argsort_f32_i32 = 0;

    int get_kernel_workgroup_size(cl_kernel) const { return 1024; }
};

struct ggml_backend_opencl_device_context {
    ggml_backend_opencl_context * backend_ctx;
    std::unique_ptr<std::regex>   opfilter;
};

inline void load_cl_kernels_argsort(ggml_backend_opencl_context *) {}
inline bool ggml_opencl_ensure_fa_f32_f16_prefill_512(ggml_backend_opencl_context *, bool) { return true; }
