// What a walk through ggml's memory looks at: a context with a graph and a tensor, a view, and a tensor of a device.

#ifdef GGML_OF_2024
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#define device_backend ggml_backend_cpu_init
#else
#include "device.h"
#include "ggml-alloc.h"
#include "ggml-cpu.h"
#endif

static void in_context(struct ggml_context * ctx, struct ggml_cgraph * cgraph, struct ggml_tensor * a) {
    (void) ctx;
    (void) cgraph;
    (void) a;
}

static void viewed(struct ggml_tensor * a) { (void) a; }

static void before(struct ggml_tensor * first) { (void) first; }

static void in_buffer(struct ggml_tensor * tensor, ggml_backend_buffer_t buffer) {
    (void) tensor;
    (void) buffer;
}

static void graph(void) {
    struct ggml_init_params params = { 16 * 1024 * 1024, NULL, false };
    struct ggml_context *   ctx    = ggml_init(params);
    struct ggml_cgraph *    cgraph = ggml_new_graph(ctx);
    in_context(ctx, cgraph, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1));
    ggml_free(ctx);
}

static void view(void) {
    struct ggml_init_params params = { 16 * 1024, NULL, false };
    struct ggml_context *   ctx    = ggml_init(params);
    struct ggml_tensor *    x      = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 10);
    for (int i = 0; i < 10; i++) {
        ((float *) x->data)[i] = (float) (i + 1);
    }
    struct ggml_tensor * view = ggml_view_1d(ctx, x, 5, 5 * ggml_type_size(x->type));
    viewed(view->view_src);
    ggml_free(ctx);
}

static void backend(void) {
    ggml_backend_t          device = device_backend();
    struct ggml_init_params params = { 16 * 1024, NULL, true };
    struct ggml_context *   ctx    = ggml_init(params);
    struct ggml_tensor *    x      = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 10);
    ggml_set_name(x, "x");
    before(x);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, device);
    in_buffer(x, buffer);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(device);
}

int main(void) {
    ggml_backend_free(ggml_backend_cpu_init());
    graph();
    view();
    backend();
    return 0;
}
