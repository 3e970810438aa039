# An input of a split on another device: the scheduler copies it with ggml_backend_tensor_set.
#   ggmltool debug --ggml 2025-03 --batch --echo -x sample_graphs/sessions/copied.gdb sample_graphs/priority-any.yaml
tbreak ggml_backend_sched_compute_splits
run
tbreak ggml_backend_cuda_buffer_set_tensor
continue
bt
p ggml_backend_buffer_is_host(a->buffer)
p ggml_backend_buffer_is_host(c->buffer)
c
quit
