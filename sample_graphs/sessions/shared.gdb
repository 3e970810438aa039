# What a scheduler holds between two graphs: tensors with memory, their backends, the splits, and all of the scheduler.
#   ggmltool debug --ggml 2025-03 --batch --echo -x sample_graphs/sessions/shared.gdb sample_graphs/sessions/shared.yaml
symbol-file 2025-01
tbreak ggml_backend_sched_alloc_graph
run
finish
p *a
p *b
p *mul
p (char *) b->data - (char *) a->data
p sched->hv_tensor_backend_ids[ggml_hash(a) % sched->hash_set->size]
p sched->hv_tensor_backend_ids[ggml_hash(b) % sched->hash_set->size]
p sched->hv_tensor_backend_ids[ggml_hash(mul) % sched->hash_set->size]
p sched->galloc->hash_values[ggml_hash(a) % sched->galloc->hash_set->size]
p sched->galloc->hash_values[ggml_hash(b) % sched->galloc->hash_set->size]
p sched->galloc->hash_values[ggml_hash(mul) % sched->galloc->hash_set->size]
p sched->n_splits
p sched->splits[0]
p *sched
p *sched->graph.nodes[0][0]->src[0]
tbreak ggml_backend_sched_alloc_graph
continue
p ggml_graph_print(graph)
quit
