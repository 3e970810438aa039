# Down to the functions of the devices: what computes a split, what writes into memory, what is asked for a buffer type.
#   ggmltool debug --ggml 2025-03 --batch --echo -x sample_graphs/sessions/devices.gdb sample_graphs/priority.yaml
break ggml_backend_cuda_buffer_set_tensor
run
bt
delete
tbreak ggml_backend_sched_alloc_graph
continue
tbreak ggml_backend_buft_is_cuda_split
continue
bt
tbreak ggml_backend_cuda_graph_compute
continue
bt
tbreak ggml_backend_graph_compute_async
continue
bt
b ggml_backend_cpu_graph_compute
quit
