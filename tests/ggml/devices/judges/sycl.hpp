// In place of SYCL and oneDNN: an Intel GPU that is no Alchemist, for which oneDNN is taken if the question says so.
#pragma once

#include "judge.hpp"

namespace sycl {
typedef uint16_t half;
}

enum class gpu_arch { other, intel_gpu_dg2_g10, intel_gpu_dg2_g11, intel_gpu_dg2_g12, intel_gpu_bmg_g21, intel_gpu_bmg_g31 };

struct ggml_sycl_device_info {
    struct {
        struct {
            gpu_arch arch;
        } hw_info;
    } devices[1];
};

struct ggml_backend_sycl_device_context {
    int device;
};

inline const ggml_sycl_device_info & ggml_sycl_info() {
    static ggml_sycl_device_info info = {};
    return info;
}

inline int  ggml_sycl_get_device() { return 0; }
inline bool ggml_sycl_dnnl_has_optimized_gemm(int) { return true; }
inline int  ggml_sycl_get_env(const char *, int usual) { return usual; }

inline int g_ggml_sycl_enable_flash_attention = 1;
inline int g_ggml_sycl_enable_mkl_fa = 1;
inline int g_ggml_sycl_fa_onednn = 0;
inline int g_ggml_sycl_fa_onednn_max_kv = 0;
