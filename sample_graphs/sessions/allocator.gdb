# What ggml_gallocr_reserve_n does to a product of two inputs on one CPU: the table of the allocator, one tensor at a time.
#   ggmltool debug --ggml 2025-03 --batch --echo -x sample_graphs/sessions/allocator.gdb sample_graphs/allocator.yaml
symbol-file 2025-01
break ggml_gallocr_reserve_n
run
p galloc->n_nodes
p graph->n_nodes
p *galloc.buf_tallocs[0]
p galloc.buf_tallocs[0]->n_free_blocks
p galloc.buf_tallocs[0]->free_blocks[0]
tbreak ggml_gallocr_alloc_graph_impl
continue
p galloc->hash_values[ggml_hash(a) % galloc->hash_set->size]
break ggml_gallocr_allocate_node
continue
p *node
next
ptype hn
p ggml_hash(node) % galloc->hash_set->size
p *hn
p galloc.buf_tallocs[0].free_blocks[0]
continue
next
p *hn
p galloc->hash_values[ggml_hash(graph->leafs[0]) % galloc->hash_set->size]
p galloc->hash_values[ggml_hash(graph->leafs[1]) % galloc->hash_set->size]
continue
next
p parent->name
p ggml_op_can_inplace(node->op)
p *p_hn
finish
next
p galloc->hash_values[ggml_hash(a) % galloc->hash_set->size]
p galloc->hash_values[ggml_hash(b) % galloc->hash_set->size]
p galloc->hash_values[ggml_hash(mul) % galloc->hash_set->size]
delete
p src->name
p *ggml_gallocr_hash_get(galloc, src)
p node_alloc->src[0]
p node_alloc->src[1]
ptype *galloc->node_allocs
ptype galloc->node_allocs[0].dst
ptype galloc->leaf_allocs[0]
tbreak ggml_backend_sched_alloc_graph
continue
p galloc->leaf_allocs[0]
p galloc->leaf_allocs[1]
p *galloc->buf_tallocs[0]
p *galloc->buffers[0]
quit
