# The allocator's tables with two devices: a graph on the CPU, which is backend 1, planned and allocated.
#   ggmltool debug --ggml 2025-03 --batch --echo -x sample_graphs/sessions/two-devices.gdb sample_graphs/sched-issue.yaml
symbol-file 2025-01
break ggml_gallocr_allocate_node if node == l_r
run
up
p parent->name
p *p_hn
delete
finish
p *hn
p src->name
p galloc->n_buffers
p galloc->node_allocs[0]
p *graph->nodes[0]
p *graph->leafs[0]
p *graph->leafs[1]
tbreak ggml_backend_sched_alloc_splits
continue
next
p sched->node_backend_ids[i]
p sched->prev_node_backend_ids[i]
p sched->bufts[sched->node_backend_ids[i]]
p sched->bufts[sched->prev_node_backend_ids[i]]
quit
