# What ggml puts into the memory of a context: a header of 32 bytes before each object, a graph with its arrays, a tensor.
#   ggmltool debug --ggml 2024-01 --batch --echo -x sample_graphs/sessions/graph.gdb sample_graphs/arena.yaml
symbol-file 2023-12
start
step 4
p ggml_graph_nbytes(2048, false)
set $obj = (struct ggml_object *) ((char *) cgraph - sizeof(struct ggml_object))
p *$obj
p sizeof(struct ggml_object)
p ctx->mem_buffer
p $obj
p ((struct ggml_object *) ctx->mem_buffer)->offs
p *(struct ggml_object *) ctx->mem_buffer
ptype struct ggml_cgraph
p *cgraph
p sizeof(struct ggml_cgraph)
p cgraph
p cgraph + 1
p (char *) (cgraph + 1) - (char *) cgraph
p 0x7ffff6ba0080 - 0x7ffff6ba0030
p ggml_hash_size(cgraph->size * 2)
p cgraph->visited_hash_table.size
p sizeof(struct ggml_tensor**)
set $size = cgraph->size
p $size * 8
set $leafs_ptr = cgraph->leafs
p $leafs_ptr
set $nodes_ptr = cgraph->nodes
p $nodes_ptr
p $nodes_ptr == (struct ggml_tensor **) (cgraph + 1)
p (char *) $leafs_ptr - (char *) $nodes_ptr
p 0x7ffff6ba4080 - 0x7ffff6ba0080
p sizeof(struct ggml_tensor)
p ggml_nbytes(factor)
p sizeof(struct ggml_tensor) + ggml_nbytes(factor)
p ggml_init
ptype struct ggml_context
quit
