// A program that uses ggml's scheduler as programs do: it reserves for a large graph, then allocates and computes graphs
// of a small model, two of three layers on GPU0 (device.h) or a real Vulkan device, and prints what comes out.

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "ggml-cpu.h"

static const char USAGE[] =
    "usage: graphs [--iterations N] [--forever] [--pause MS] [--layers N] [--threads N] [--schedulers N] [--fork]\n"
    "              [--no-reserve] [--no-alloc] [--parallel] [--no-offload] [--assign] [--wrong] [--gallocr]\n"
    "              [--abort buffer|preallocated|memory|device] [--crash] [--picky] [--vulkan libggml-vulkan.so]\n";

static struct {
    int  iterations, pause, layers, threads, schedulers;
    bool forever, fork, reserve, alloc, parallel, offload, assign, abort_buffer, abort_preallocated, abort_memory,
         gallocr;
    const char * vulkan;
} asked = { .iterations = 3, .layers = 4, .threads = 1, .schedulers = 1, .reserve = true, .alloc = true, .offload = true };

static volatile sig_atomic_t stopped = 0;
static void stop(int signal) { (void) signal; stopped = 1; }

enum { COLUMNS = 32, HIDDEN = 48, MOST_LAYERS = 2000, MOST_TOKENS = 64 };

struct model {
    struct ggml_context * on_cpu;
    struct ggml_context * on_gpu;
    ggml_backend_buffer_t buffers[2];
    struct ggml_tensor *  norm[MOST_LAYERS];
    struct ggml_tensor *  up[MOST_LAYERS];
    struct ggml_tensor *  down[MOST_LAYERS];
};

struct worker {
    ggml_backend_t       backends[2];
    ggml_backend_sched_t scheds[4];
    ggml_gallocr_t       galloc;
    struct model         model;
    char *               said;
    size_t               n_said;
    FILE *               out;
};

static struct ggml_tensor * weight(struct ggml_context * ctx, const char * name, int layer, int64_t n0, int64_t n1) {
    struct ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n0, n1);
    ggml_format_name(t, "blk.%d.%s.weight", layer, name);
    return t;
}

static void fill(struct ggml_context * ctx) {
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t; t = ggml_get_next_tensor(ctx, t)) {
        float * values = malloc(ggml_nbytes(t));
        for (int64_t i = 0; i < ggml_nelements(t); i++) {
            values[i] = (float) ((i * 37 + t->ne[1] * 11) % 101 - 50) / 400.0f;
        }
        ggml_backend_tensor_set(t, values, 0, ggml_nbytes(t));
        free(values);
    }
}

// Every third layer stays on the CPU; a graph allocator alone has all on one backend.
static bool is_on_cpu(int layer) { return asked.gallocr ? !asked.vulkan : layer % 3 == 2; }

static void load(struct model * m, ggml_backend_t * backends) {
    struct ggml_init_params params = { (3 * asked.layers + 8) * ggml_tensor_overhead(), NULL, true };
    m->on_cpu = ggml_init(params);
    m->on_gpu = ggml_init(params);
    for (int i = 0; i < asked.layers; i++) {
        struct ggml_context * ctx = is_on_cpu(i) ? m->on_cpu : m->on_gpu;
        m->norm[i] = weight(ctx, "norm", i, COLUMNS, 1);
        m->up[i]   = weight(ctx, "up", i, COLUMNS, HIDDEN);
        m->down[i] = weight(ctx, "down", i, HIDDEN, COLUMNS);
    }
    weight(m->on_cpu, "scratch", asked.layers, COLUMNS, 1);
    m->buffers[0] = ggml_backend_alloc_ctx_tensors(m->on_gpu, backends[0]);
    m->buffers[1] = ggml_backend_alloc_ctx_tensors(m->on_cpu, backends[1]);
    for (int i = 0; i < 2 && m->buffers[i]; i++) {
        ggml_backend_buffer_set_usage(m->buffers[i], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    fill(m->on_cpu);
    fill(m->on_gpu);
}

static struct ggml_cgraph * build(struct ggml_context * ctx, struct model * m, int tokens) {
    struct ggml_cgraph * graph = ggml_new_graph_custom(ctx, 8 * asked.layers + 16, false);
    struct ggml_tensor * x     = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, COLUMNS, tokens);
    ggml_set_name(x, "inp");
    ggml_set_input(x);
    for (int i = 0; i < asked.layers; i++) {
        struct ggml_tensor * normed = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), m->norm[i]);
        struct ggml_tensor * act    = ggml_silu(ctx, ggml_mul_mat(ctx, m->up[i], normed));
        ggml_format_name(normed, "normed-%d", i);
        ggml_format_name(act, "act-%d", i);
        x = ggml_add(ctx, x, ggml_mul_mat(ctx, m->down[i], act));
        ggml_format_name(x, "l_out-%d", i);
    }
    if (asked.abort_preallocated) {
        ggml_build_forward_expand(graph, ggml_silu_inplace(ctx, m->up[0]));
    }
    ggml_set_name(x, "result");
    ggml_set_output(x);
    ggml_build_forward_expand(graph, x);
    return graph;
}

static struct ggml_context * room(void) {
    size_t size = (8 * asked.layers + 16) * ggml_tensor_overhead() + ggml_graph_overhead_custom(8 * asked.layers + 16, false);
    struct ggml_init_params params = { size, NULL, true };
    return ggml_init(params);
}

static void give(struct ggml_cgraph * graph, int tokens) {
    float values[COLUMNS * MOST_TOKENS];
    for (int i = 0; i < COLUMNS * tokens; i++) {
        values[i] = (float) (i % 17 - 8) / 8.0f;
    }
    ggml_backend_tensor_set(ggml_graph_get_tensor(graph, "inp"), values, 0, sizeof(float) * COLUMNS * tokens);
}

static double sum_of(struct ggml_cgraph * graph) {
    struct ggml_tensor * result = ggml_graph_get_tensor(graph, "result");
    double  sum    = 0;
    float * values = malloc(ggml_nbytes(result));
    ggml_backend_tensor_get(result, values, 0, ggml_nbytes(result));
    for (int64_t i = 0; i < ggml_nelements(result); i++) {
        sum += values[i] * (double) (i % 7 + 1);
    }
    free(values);
    return sum;
}

static double compute(struct worker * w, ggml_backend_sched_t sched, int tokens) {
    struct ggml_context * ctx   = room();
    struct ggml_cgraph *  graph = build(ctx, &w->model, tokens);
    ggml_backend_sched_reset(sched);
    if (asked.assign) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_get_tensor(graph, "normed-1"), w->backends[1]);
    }
    if (asked.abort_buffer) {
        float zero = 0;
        ggml_backend_tensor_set(ggml_graph_get_tensor(graph, "inp"), &zero, 0, sizeof zero);
    }
    if (asked.alloc) {
        ggml_backend_sched_alloc_graph(sched, graph);
        give(graph, tokens);
    }
    enum ggml_status status = ggml_backend_sched_graph_compute(sched, graph);
    double sum = status == GGML_STATUS_SUCCESS ? 0 : -1;
    if (asked.alloc) {
        sum += sum_of(graph);
    }
    ggml_free(ctx);
    return sum;
}

static ggml_backend_t only(struct worker * w) { return w->backends[asked.vulkan ? 0 : 1]; }

// The same without a scheduler.
static double compute_alone(struct worker * w, int tokens) {
    struct ggml_context * ctx   = room();
    struct ggml_cgraph *  graph = build(ctx, &w->model, tokens);
    double                sum   = -1;
    if (ggml_gallocr_alloc_graph(w->galloc, graph)) {
        give(graph, tokens);
        sum = ggml_backend_graph_compute(only(w), graph) == GGML_STATUS_SUCCESS ? sum_of(graph) : -1;
    }
    ggml_free(ctx);
    return sum;
}

static ggml_backend_t vulkan_backend(void) {
    void * library = dlopen(asked.vulkan, RTLD_NOW);
    ggml_backend_t (*init)(size_t) = library ? (ggml_backend_t (*)(size_t)) dlsym(library, "ggml_backend_vk_init") : NULL;
    ggml_backend_t backend = init ? init(0) : NULL;
    if (!backend) {
        fputs("there is no Vulkan device\n", stderr);
        exit(3);
    }
    return backend;
}

static void start(struct worker * w) {
    w->backends[0] = asked.vulkan ? vulkan_backend() : device_backend();
    w->backends[1] = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(w->backends[1], 1);
    load(&w->model, w->backends);
    device_is_full = asked.abort_memory;
    if (asked.gallocr) {
        w->galloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(only(w)));
    }
    for (int i = 0; i < asked.schedulers && !asked.gallocr; i++) {
        w->scheds[i] = ggml_backend_sched_new(w->backends, NULL, 2, 8 * asked.layers + 16, asked.parallel, asked.offload);
        if (asked.reserve) {
            struct ggml_context * ctx = room();
            ggml_backend_sched_reserve(w->scheds[i], build(ctx, &w->model, MOST_TOKENS));
            ggml_free(ctx);
        }
    }
}

static void finish(struct worker * w) {
    for (int i = 0; i < asked.schedulers && !asked.gallocr; i++) {
        ggml_backend_sched_free(w->scheds[i]);
    }
    if (asked.gallocr) {
        ggml_gallocr_free(w->galloc);
    }
    for (int i = 0; i < 2; i++) {
        ggml_backend_buffer_free(w->model.buffers[i]);
        ggml_backend_free(w->backends[i]);
    }
    ggml_free(w->model.on_cpu);
    ggml_free(w->model.on_gpu);
}

static void * work(void * argument) {
    static const int tokens[] = { 2, MOST_TOKENS, 1, 33 };
    struct worker * w = argument;
    start(w);
    for (int i = 0; (asked.forever || i < asked.iterations) && !stopped; i++) {
        if (asked.gallocr) {
            fprintf(w->out, "graph %d alone: %.5g\n", i, compute_alone(w, tokens[i % 4]));
            fflush(w->out);
        }
        for (int s = 0; s < asked.schedulers && !asked.gallocr; s++) {
            int    n   = tokens[(i + s) % 4];
            double sum = compute(w, w->scheds[s], n);
            if (!asked.forever) {
                fprintf(w->out, "graph %d, scheduler %d, tokens %d, splits %d: %.5g\n", i, s, n,
                        ggml_backend_sched_get_n_splits(w->scheds[s]), sum);
            } else if (i < 4) {
                fprintf(w->out, "tokens %d: %.5g\n", n, sum);
            }
            fflush(w->out);
        }
        usleep(asked.pause * 1000);
    }
    finish(w);
    return NULL;
}

// The workers' lines come out one worker after the other, whoever was first.
static void work_all(void) {
    struct worker * workers = calloc(asked.threads, sizeof *workers);
    pthread_t       threads[64];
    for (int i = 0; i < asked.threads; i++) {
        workers[i].out = asked.threads > 1 ? open_memstream(&workers[i].said, &workers[i].n_said) : stdout;
    }
    for (int i = 1; i < asked.threads; i++) {
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    work(&workers[0]);
    for (int i = 1; i < asked.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; asked.threads > 1 && i < asked.threads; i++) {
        fclose(workers[i].out);
        printf("worker %d\n%s", i, workers[i].said);
        free(workers[i].said);
    }
    free(workers);
}

static void read_arguments(int argc, char ** argv) {
    for (int i = 1; i < argc; i++) {
        const char * a    = argv[i];
        const char * next = i + 1 < argc ? argv[i + 1] : "";
        int *        n    = !strcmp(a, "--iterations") ? &asked.iterations :
                            !strcmp(a, "--pause") ? &asked.pause :
                            !strcmp(a, "--layers") ? &asked.layers :
                            !strcmp(a, "--threads") ? &asked.threads :
                            !strcmp(a, "--schedulers") ? &asked.schedulers : NULL;
        if (n) {
            *n = atoi(next);
            i++;
        } else if (!strcmp(a, "--abort")) {
            asked.abort_buffer       = !strcmp(next, "buffer");
            asked.abort_preallocated = !strcmp(next, "preallocated");
            asked.abort_memory       = !strcmp(next, "memory");
            device_gives_up          = !strcmp(next, "device");
            i++;
        } else if (!strcmp(a, "--vulkan")) {
            asked.vulkan = next;
            i++;
        } else if (!strcmp(a, "--forever")) { asked.forever = true;
        } else if (!strcmp(a, "--fork")) { asked.fork = true;
        } else if (!strcmp(a, "--no-reserve")) { asked.reserve = false;
        } else if (!strcmp(a, "--no-alloc")) { asked.alloc = false;
        } else if (!strcmp(a, "--parallel")) { asked.parallel = true;
        } else if (!strcmp(a, "--no-offload")) { asked.offload = false;
        } else if (!strcmp(a, "--gallocr")) { asked.gallocr = true;
        } else if (!strcmp(a, "--assign")) { asked.assign = true;
        } else if (!strcmp(a, "--wrong")) { device_computes_wrong = true;
        } else if (!strcmp(a, "--crash")) { device_crashes = true;
        } else if (!strcmp(a, "--picky")) { device_is_picky = true;
        } else {
            fputs(USAGE, stderr);
            exit(2);
        }
    }
    if (asked.layers < 2 || asked.layers > MOST_LAYERS || asked.threads < 1 || asked.threads > 64 ||
        asked.schedulers < 1 || asked.schedulers > 4) {
        fputs(USAGE, stderr);
        exit(2);
    }
}

int main(int argc, char ** argv) {
    read_arguments(argc, argv);
    signal(SIGTERM, stop);
    printf("ggml %s\n", ggml_version());
    fflush(stdout);
    if (asked.fork && fork() == 0) {
        work_all();
        return 0;
    }
    if (asked.fork) {
        int status;
        wait(&status);
        printf("the child ended with %d\n", status);
    }
    work_all();
    puts("done");
    return 0;
}
