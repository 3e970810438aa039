// A device of one's own for ggml 0.20.2 and 0.26: "GPU0", whose memory no other device reads, and which runs a few ops on
// f32. ggml ships no header with these structs; they are written down here as its backends see them.

#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "ggml.h"

#ifndef GGML_OF_0_26
#define GGML_OF_0_26 0
#endif

struct buft_functions {
    const char * (*get_name)(ggml_backend_buffer_type_t);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t);
#if GGML_OF_0_26
    void * alloc_buffer_n;
#endif
    size_t (*get_alignment)(ggml_backend_buffer_type_t);
    size_t (*get_max_size)(ggml_backend_buffer_type_t);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t, const struct ggml_tensor *);
#if GGML_OF_0_26
    void * get_alloc_size_n;
#endif
    bool (*is_host)(ggml_backend_buffer_type_t);
};

struct ggml_backend_buffer_type {
    struct buft_functions iface;
    ggml_backend_dev_t    device;
    void *                context;
};

struct buffer_functions {
    void (*free_buffer)(ggml_backend_buffer_t);
    void * (*get_base)(ggml_backend_buffer_t);
    void * init_tensor;
    void (*memset_tensor)(ggml_backend_buffer_t, struct ggml_tensor *, uint8_t, size_t, size_t);
    void (*set_tensor)(ggml_backend_buffer_t, struct ggml_tensor *, const void *, size_t, size_t);
    void (*get_tensor)(ggml_backend_buffer_t, const struct ggml_tensor *, void *, size_t, size_t);
    void * set_tensor_2d;
    void * get_tensor_2d;
    void * cpy_tensor;
    void (*clear)(ggml_backend_buffer_t, uint8_t);
    void * reset;
};

struct ggml_backend_buffer {
    struct buffer_functions        iface;
    ggml_backend_buffer_type_t     buft;
    void *                         context;
    size_t                         size;
    enum ggml_backend_buffer_usage usage;
};

ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t, struct buffer_functions, void *, size_t);

struct ggml_backend {
    ggml_guid_t guid;
    struct {
        const char * (*get_name)(ggml_backend_t);
        void (*free)(ggml_backend_t);
        void * async[5];
        void * synchronize;
        void * plans[4];
        enum ggml_status (*graph_compute)(ggml_backend_t, struct ggml_cgraph *);
        void * event_record;
        void * event_wait;
        void * graph_optimize;
    } iface;
    ggml_backend_dev_t device;
    void *             context;
};

struct ggml_backend_device {
    struct {
        const char * (*get_name)(ggml_backend_dev_t);
        const char * (*get_description)(ggml_backend_dev_t);
        void (*get_memory)(ggml_backend_dev_t, size_t *, size_t *);
        enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
        void (*get_props)(ggml_backend_dev_t, struct ggml_backend_dev_props *);
        void * init_backend;
        ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
        void * get_host_buffer_type;
        void * buffer_from_host_ptr;
        bool (*supports_op)(ggml_backend_dev_t, const struct ggml_tensor *);
        bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
        bool (*offload_op)(ggml_backend_dev_t, const struct ggml_tensor *);
        void * events[3];
    } iface;
    ggml_backend_reg_t reg;
    void *             context;
};

// Whether a word is among those between commas.
static inline bool has_word(const char * words, const char * word) {
    size_t n = strlen(word);
    for (const char * at = words; (at = strstr(at, word)); at += n) {
        if ((at == words || at[-1] == ',') && (!at[n] || at[n] == ',')) {
            return true;
        }
    }
    return false;
}

// What the device is told to do wrong.
static bool device_computes_wrong = false;
static bool device_crashes        = false;
static bool device_is_picky       = false;
static bool device_is_full        = false;
static bool device_gives_up       = false;

static struct ggml_backend_buffer_type device_buft;
static struct ggml_backend_device      device;

static const char * buft_name(ggml_backend_buffer_type_t t) { (void) t; return "GPU0"; }
static size_t buft_alignment(ggml_backend_buffer_type_t t) { (void) t; return 128; }

static void   buffer_free(ggml_backend_buffer_t b) { free(b->context); }
static void * buffer_base(ggml_backend_buffer_t b) { return b->context; }
static void buffer_clear(ggml_backend_buffer_t b, uint8_t value) { memset(b->context, value, b->size); }
static void buffer_memset(ggml_backend_buffer_t b, struct ggml_tensor * t, uint8_t value, size_t at, size_t n) {
    (void) b;
    memset((char *) t->data + at, value, n);
}
static void buffer_set(ggml_backend_buffer_t b, struct ggml_tensor * t, const void * from, size_t at, size_t n) {
    (void) b;
    memcpy((char *) t->data + at, from, n);
}
static void buffer_get(ggml_backend_buffer_t b, const struct ggml_tensor * t, void * to, size_t at, size_t n) {
    (void) b;
    memcpy(to, (const char *) t->data + at, n);
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t t, size_t size) {
    if (device_is_full) {
        return NULL;
    }
    struct buffer_functions f = {0};
    f.free_buffer   = buffer_free;
    f.get_base      = buffer_base;
    f.memset_tensor = buffer_memset;
    f.set_tensor    = buffer_set;
    f.get_tensor    = buffer_get;
    f.clear         = buffer_clear;
    return ggml_backend_buffer_init(t, f, aligned_alloc(128, (size + 255) / 128 * 128), size);
}

static void add_or_multiply(struct ggml_tensor * t) {
    const struct ggml_tensor * a = t->src[0];
    const struct ggml_tensor * b = t->src[1];
    for (int64_t row = 0; row < ggml_nrows(t); row++) {
        const float * x = (const float *) a->data + row * t->ne[0];
        const float * y = (const float *) b->data + row % ggml_nrows(b) * t->ne[0];
        float *       z = (float *) t->data + row * t->ne[0];
        for (int64_t i = 0; i < t->ne[0]; i++) {
            z[i] = t->op == GGML_OP_ADD ? x[i] + y[i] : x[i] * y[i];
            z[i] *= device_computes_wrong && t->op == GGML_OP_MUL ? 1.5f : 1.0f;
        }
    }
}

static void multiply_matrices(struct ggml_tensor * t) {
    const struct ggml_tensor * a = t->src[0];
    const struct ggml_tensor * b = t->src[1];
    for (int64_t row = 0; row < t->ne[1]; row++) {
        for (int64_t column = 0; column < t->ne[0]; column++) {
            float sum = 0;
            for (int64_t i = 0; i < a->ne[0]; i++) {
                sum += ((const float *) a->data)[column * a->ne[0] + i] * ((const float *) b->data)[row * b->ne[0] + i];
            }
            ((float *) t->data)[row * t->ne[0] + column] = sum;
        }
    }
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    (void) backend;
    if (device_gives_up) {
        GGML_ABORT("GPU error: %s in %s", "the bus is gone", "gpu_mul_mat");
    }
    if (device_crashes) {
        *(volatile int *) 0 = 1;
    }
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor * t = ggml_graph_node(graph, i);
        if (t->op == GGML_OP_MUL_MAT) {
            multiply_matrices(t);
        } else if (t->op == GGML_OP_ADD || t->op == GGML_OP_MUL) {
            add_or_multiply(t);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static bool plain(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && t->ne[2] == 1 && t->ne[3] == 1;
}

static bool device_supports_op(ggml_backend_dev_t d, const struct ggml_tensor * op) {
    (void) d;
    // A scheduler never asks about the input of a program.
    if (device_is_picky && op->op == GGML_OP_NONE && !strcmp(op->name, "inp")) {
        GGML_ABORT("nobody asks about an input");
    }
    switch (op->op) {
        case GGML_OP_NONE: case GGML_OP_VIEW: case GGML_OP_RESHAPE:
            return true;
        case GGML_OP_ADD: case GGML_OP_MUL:
            return plain(op) && plain(op->src[0]) && plain(op->src[1]) && op->src[1]->ne[0] == op->ne[0];
        case GGML_OP_MUL_MAT:
            return plain(op) && plain(op->src[0]) && plain(op->src[1]);
        default:
            return false;
    }
}

static bool device_offload_op(ggml_backend_dev_t d, const struct ggml_tensor * op) {
    (void) d;
    return op->op == GGML_OP_MUL_MAT && op->ne[1] >= 32;
}

static bool device_supports_buft(ggml_backend_dev_t d, ggml_backend_buffer_type_t t) { return t->device == d; }
static const char * device_name(ggml_backend_dev_t d) { (void) d; return "GPU0"; }
static const char * device_description(ggml_backend_dev_t d) { (void) d; return "a device of the tests"; }
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t d) { (void) d; return GGML_BACKEND_DEVICE_TYPE_GPU; }
static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t d) { (void) d; return &device_buft; }
static void device_memory(ggml_backend_dev_t d, size_t * unused, size_t * total) {
    (void) d;
    *unused = (size_t) 3 << 30;
    *total  = (size_t) 4 << 30;
}
static void device_props(ggml_backend_dev_t d, struct ggml_backend_dev_props * p) {
    memset(p, 0, sizeof *p);
    p->name        = device_name(d);
    p->description = device_description(d);
    p->type        = device_type(d);
    device_memory(d, &p->memory_free, &p->memory_total);
}

static const char * backend_name(ggml_backend_t b) { (void) b; return "GPU0"; }
static void backend_free(ggml_backend_t b) { free(b); }

static ggml_backend_t device_backend(void) {
    device.iface.get_name        = device_name;
    device.iface.get_description = device_description;
    device.iface.get_memory      = device_memory;
    device.iface.get_type        = device_type;
    device.iface.get_props       = device_props;
    device.iface.get_buffer_type = device_buffer_type;
    device.iface.supports_op     = device_supports_op;
    device.iface.supports_buft   = device_supports_buft;
    device.iface.offload_op      = device_offload_op;

    device_buft.iface.get_name      = buft_name;
    device_buft.iface.alloc_buffer  = buft_alloc;
    device_buft.iface.get_alignment = buft_alignment;
    device_buft.device              = &device;

    ggml_backend_t backend       = calloc(1, sizeof *backend);
    backend->iface.get_name      = backend_name;
    backend->iface.free          = backend_free;
    backend->iface.graph_compute = backend_compute;
    backend->device              = &device;
    return backend;
}
