// A product on a device of the highest priority, and two sums with tensors of the CPU's memory. The device stands for
// CUDA's: its functions have the names of that backend's.
//
//     priority          the CPU's tensors are weights: the sums are computed there
//     priority any      they are not: the sums are computed on the device, and the tensors copied to it

#define backend_compute ggml_backend_cuda_graph_compute
#define buffer_set ggml_backend_cuda_buffer_set_tensor
#define device_supports_buft ggml_backend_cuda_device_supports_buft

#include "device.h"
#include "ggml-alloc.h"
#include "ggml-cpu.h"

struct simple_model {
    ggml_backend_t        backends[2];
    ggml_backend_sched_t  sched;
    struct ggml_tensor *  a;
    struct ggml_tensor *  b;
    struct ggml_tensor *  c;
    struct ggml_tensor *  d;
};

static const float NUMBERS[12] = { 2, 8, 5, 1, 4, 2, 8, 6, 1, 1, 1, 1 };

static void compute(struct simple_model * model, struct ggml_cgraph * graph) {
    ggml_backend_sched_alloc_graph(model->sched, graph);
    ggml_backend_tensor_set(model->a, NUMBERS, 0, ggml_nbytes(model->a));
    ggml_backend_tensor_set(model->b, NUMBERS, 0, ggml_nbytes(model->b));
    ggml_backend_tensor_set(model->c, NUMBERS, 0, ggml_nbytes(model->c));
    ggml_backend_tensor_set(model->d, NUMBERS, 0, ggml_nbytes(model->d));
    ggml_backend_sched_graph_compute(model->sched, graph);
}

int main(int n, char ** words) {
    (void) words;
    struct ggml_init_params params = { 16 * ggml_tensor_overhead() + ggml_graph_overhead(), NULL, true };
    struct simple_model     model  = { .backends = { device_backend(), ggml_backend_cpu_init() } };
    struct ggml_context *   on_gpu = ggml_init(params);
    struct ggml_context *   on_cpu = ggml_init(params);
    struct ggml_context *   ctx    = ggml_init(params);
    model.a = ggml_new_tensor_2d(on_gpu, GGML_TYPE_F32, 2, 4);
    model.b = ggml_new_tensor_2d(on_gpu, GGML_TYPE_F32, 2, 3);
    model.c = ggml_new_tensor_2d(on_cpu, GGML_TYPE_F32, 4, 3);
    model.d = ggml_new_tensor_2d(on_cpu, GGML_TYPE_F32, 4, 3);
    ggml_backend_buffer_set_usage(
        ggml_backend_alloc_ctx_tensors(on_gpu, model.backends[0]), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_set_usage(
        ggml_backend_alloc_ctx_tensors(on_cpu, model.backends[1]),
        n > 1 ? GGML_BACKEND_BUFFER_USAGE_ANY : GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    struct ggml_tensor * sum   = ggml_add(ctx, ggml_mul_mat(ctx, model.a, model.b), model.c);
    ggml_build_forward_expand(graph, ggml_add(ctx, sum, model.d));
    model.sched = ggml_backend_sched_new(model.backends, NULL, 2, 2048, false, true);
    compute(&model, graph);
    ggml_backend_sched_free(model.sched);
    return 0;
}
