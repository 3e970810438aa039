// What a judge is made of: ggml's tensors and graphs as the questions describe them, and the answers.
#pragma once

#include "ggml.h"
#include "ggml-impl.h"
#include "ggml-backend-impl.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfloat>
#include <climits>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

// What ggml_abort throws: the device would not answer.
struct judge_aborted {};

// What a family defines, in the words of its own backend. `hardware` is what the question names.
void   judge_hardware(const char * hardware);
bool   judge_supports_op(const ggml_tensor * op);
size_t judge_alloc_size(const ggml_tensor * tensor);

struct judge_keeps {
    std::vector<std::pair<ggml_tensor *, ggml_tensor *>> keeps;
    void add(ggml_tensor * tensor, ggml_tensor * until) { keeps.emplace_back(tensor, until); }
};
void judge_graph_optimize(ggml_cgraph * graph, judge_keeps * keeps);

// Calls a backend's graph_optimize as it was before allocation dependencies, and as it is with them.
inline void judge_call(void (*f)(ggml_backend_t, ggml_cgraph *), ggml_backend_t backend, ggml_cgraph * graph, judge_keeps *) {
    f(backend, graph);
}
template <typename params>
void judge_call(void (*f)(ggml_backend_t, ggml_cgraph *, params *), ggml_backend_t backend, ggml_cgraph * graph, judge_keeps * keeps) {
    params p = {};
    p.add_alloc_dep = [](void * to, ggml_tensor * tensor, ggml_tensor * until) { ((judge_keeps *) to)->add(tensor, until); };
    p.user_data = keeps;
    f(backend, graph, &p);
}

// The buffers of the questions: memory of the device, in use for weights or for results.
extern ggml_backend_buffer_type judge_buft;
