// Reads questions about ops and graphs from stdin, asks ggml's own functions, writes the answers to stdout.
// The formats are those of asking.py.
#include "judge.hpp"

#include <cstdarg>

extern "C" void ggml_abort(const char *, int, const char *, ...) { throw judge_aborted(); }

static size_t buft_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * t) { return judge_alloc_size(t); }

static ggml_backend_buffer_type make_buft() {
    ggml_backend_buffer_type buft = {};
    buft.iface.get_alloc_size = buft_alloc_size;
    return buft;
}
ggml_backend_buffer_type judge_buft = make_buft();

struct record {
    int32_t  type, op, flags, buffer, uses, view_src;
    uint64_t view_offs, data;
    int64_t  ne[GGML_MAX_DIMS];
    uint64_t nb[GGML_MAX_DIMS];
    int32_t  params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t  src[GGML_MAX_SRC];
};

template <typename T> static bool get(T * to, size_t n = 1) { return fread(to, sizeof(T), n, stdin) == n; }
template <typename T> static void put(T value) { fwrite(&value, sizeof(T), 1, stdout); }

static std::vector<ggml_tensor> read_tensors(std::vector<int> & uses) {
    uint32_t n = 0;
    get(&n);
    static ggml_backend_buffer buffers[2] = {};
    for (auto & buffer : buffers) {
        buffer.buft = &judge_buft;
    }
    buffers[0].usage = GGML_BACKEND_BUFFER_USAGE_COMPUTE;
    buffers[1].usage = GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
    std::vector<record> records(n);
    get(records.data(), n);
    std::vector<ggml_tensor> out(n);
    for (uint32_t i = 0; i < n; ++i) {
        const record & r = records[i];
        ggml_tensor & t = out[i];
        t.type = (ggml_type) r.type;
        t.op = (ggml_op) r.op;
        t.flags = r.flags;
        t.buffer = r.buffer ? &buffers[r.buffer - 1] : nullptr;
        t.view_src = r.view_src < 0 ? nullptr : &out[r.view_src];
        t.view_offs = r.view_offs;
        t.data = (void *) r.data;
        std::copy(r.ne, r.ne + GGML_MAX_DIMS, t.ne);
        std::copy(r.nb, r.nb + GGML_MAX_DIMS, t.nb);
        memcpy(t.op_params, r.params, sizeof(r.params));
        for (int s = 0; s < GGML_MAX_SRC; ++s) {
            t.src[s] = r.src[s] < 0 ? nullptr : &out[r.src[s]];
        }
        uses.push_back(r.uses);
    }
    return out;
}

static void answer_op(const ggml_tensor * op) {
    uint8_t supported = 2;
    uint64_t size = UINT64_MAX;
    try {
        supported = judge_supports_op(op);
    } catch (judge_aborted) {
    }
    try {
        size = judge_alloc_size(op);
    } catch (judge_aborted) {
    }
    put(supported);
    put(size);
}

static void answer_graph(std::vector<ggml_tensor> & tensors, const std::vector<int> & uses) {
    uint32_t n_own = 0, n = 0;
    get(&n_own);
    get(&n);
    std::vector<int32_t> at(n);
    get(at.data(), n);
    std::vector<ggml_tensor *> nodes;
    for (int32_t i : at) {
        nodes.push_back(&tensors[i]);
    }
    // What a backend reads behind the last node of a graph is no node.
    static ggml_tensor beyond = {};
    nodes.resize(n + 8, &beyond);
    const size_t size = ggml_hash_size(2 * tensors.size());
    std::vector<ggml_tensor *> keys(size);
    std::vector<ggml_bitset_t> used(ggml_bitset_size(size));
    std::vector<int32_t> counts(size);
    ggml_cgraph graph = {};
    graph.size = graph.n_nodes = (int) n_own;
    graph.nodes = nodes.data();
    graph.visited_hash_set = { size, used.data(), keys.data() };
    graph.use_counts = counts.data();
    for (size_t i = 0; i < tensors.size(); ++i) {
        counts[ggml_hash_find_or_insert(&graph.visited_hash_set, &tensors[i])] = uses[i];
    }
    judge_keeps keeps;
    uint8_t done = 1;
    try {
        judge_graph_optimize(&graph, &keeps);
    } catch (judge_aborted) {
        done = 0;
    }
    put(done);
    const auto index = [&](const ggml_tensor * t) { return t == &beyond ? -1 : (int32_t) (t - tensors.data()); };
    for (uint32_t i = 0; i < n; ++i) {
        put(index(nodes[i]));
    }
    put((uint32_t) keeps.keeps.size());
    for (const auto & [tensor, until] : keeps.keeps) {
        put(index(tensor));
        put(index(until));
    }
}

int main(int argc, char ** argv) {
    judge_hardware(argc > 1 ? argv[1] : "");
    uint8_t kind = 0;
    while (get(&kind)) {
        std::vector<int> uses;
        std::vector<ggml_tensor> tensors = read_tensors(uses);
        if (kind == 0) {
            answer_op(&tensors[0]);
        } else {
            answer_graph(tensors, uses);
        }
    }
}
